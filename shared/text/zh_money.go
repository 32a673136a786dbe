package text

func init() {
	register(map[string]string{
		"We are still checking your payment. You need not pay again.":              "我们仍在核实您的付款，无需再次支付。",
		"Paid. Your ticket is on its way.":                                         "支付成功，车票即将送达。",
		"Your payment came too late or twice. All of it comes back to you.":        "您的付款来得太晚或重复，全部款项将退还给您。",
		"Your payment has been given back.":                                        "您的付款已退还。",
		"The payment did not succeed. Nothing was charged.":                        "支付未成功，没有扣款。",
		"The payment gateway does not answer. Please try again.":                   "支付渠道没有响应，请重试。",
		"The payment gateway refused this payment. Please try another way to pay.": "支付渠道拒绝了这笔付款，请换一种支付方式。",
		"The hold has ended. What was paid for it comes back by itself.":           "占座已到期，已付款项会自动退还。",
		"The hold has ended.":                                             "占座已到期。",
		"This booking is not waiting to be paid for.":                     "该订单不处于待支付状态。",
		"There are too many attempts to pay for this booking.":            "该订单的支付尝试次数过多。",
		"The signature of this webhook is not right.":                     "通知的签名不正确。",
		"Under maintenance, please send this again.":                      "系统维护中，请重新发送。",
		"The same request is still being worked on.":                      "相同的请求仍在处理中。",
		"This Idempotency-Key was used with another body.":                "该 Idempotency-Key 已用于其他内容。",
		"This booking is not a hold that could be let go.":                "该订单不是可以放弃的占座。",
		"A payment for this booking is under way.":                        "该订单正在支付中。",
		"A ticket of this booking was checked in. It cannot be returned.": "该订单的车票已检票，不能退票。",
		"This booking is not one that could be returned.":                 "该订单不能退票。",
		"must be one of the gateways of this sale":                        "须为本次销售的支付渠道之一",
		"must be a gateway of this installation":                          "须为本系统的支付渠道",
		"must be an http or https address of at most %d characters":       "须为不超过 %d 个字符的 http 或 https 地址",
		"must be an event as the gateway sends it":                        "须为支付渠道发送的事件",
		"must name the gateway that sends this":                           "须写明发送方的支付渠道",
		"must name a payment":                                             "须写明付款编号",
		"must be the id of a booking":                                     "须为订单编号",
		"must be left out with %s":                                        "与 %s 一起时请不要填写",
		"must be left out with ABANDON: letting go costs nothing":         "与 ABANDON 一起时请不要填写：放弃占座没有费用",
	})
}
