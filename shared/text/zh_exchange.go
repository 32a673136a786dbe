package text

func init() {
	register(map[string]string{
		"Booking %[1]s was exchanged": "订单 %[1]s 已改签",
		"Your booking %[1]s (%[2]s) was exchanged at the same price. The new ticket comes by itself; the old one lets nobody in any more.": "您的订单 %[1]s（%[2]s）已同价改签。新票将另行发送，原票不能再用于检票。",
		"A ticket of this booking was checked in. It cannot be exchanged.":                                                                 "该订单的车票已检票，不能改签。",
		"This booking is not one that could be exchanged.":                                                                                 "该订单不能改签。",
		"costs %s, this booking %s; only an exchange at the same price is possible":                                                        "价格为 %s，该订单为 %s；只能同价改签",
		"is what this booking has already":                                                                                                 "与该订单现有内容相同",
		"must be %d, as many as this booking has":                                                                                          "须为 %d，与该订单的席位数相同",
		"must be the sale of this booking":                                                                                                 "须为该订单所属的销售项目",
		"must say what is wanted instead: sale, class, from, to and quantity or seats":                                                     "须写明改签内容：sale、class、from、to 及 quantity 或 seats",
		"must be ABANDON, REFUND or RESCHEDULE":                                                                                            "须为 ABANDON、REFUND 或 RESCHEDULE",
		"must be left out with %s: a booking is taken as a whole":                                                                          "与 %s 一起时请不要填写：订单须整单处理",
	})
}
