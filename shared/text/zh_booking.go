package text

func init() {
	register(map[string]string{
		"At most %d seats can be had here.":                                       "此处最多可购 %d 个席位。",
		"Names can be changed while a booking is held or booked; this one is %s.": "仅占座或已出票的订单可修改姓名；该订单状态为 %s。",
		"No longer free: %s":                                                           "已被占用：%s",
		"Not so many seats are left between these stops.":                              "该区间余票不足。",
		"There is no such booking.":                                                    "没有该订单。",
		"This admission has its booking already, or has been used twice.":              "该入场资格已有订单，或已使用两次。",
		"This hold has ended. The seats are free for others.":                          "占座已到期，席位已释放。",
		"What is free now is offered to those on standby first.":                       "现有空位优先提供给候补。",
		"You let these seats go a moment ago; for ten minutes they are for others: %s": "您刚释放了这些席位，十分钟内留给他人：%s",
		"Your admission has ended. You can join again.":                                "入场资格已到期，可重新排队。",
		"is named twice":                                                  "重复",
		"is not of this class":                                            "不属于该席别",
		"%s is not free":                                                  "%s 已被占用",
		"must be a seat of this sale":                                     "必须是该销售项目的席位",
		"must be %d to %d printable characters":                           "必须是 %d 至 %d 个可打印字符",
		"must be 1 to %d, or seats must be named":                         "必须是 1 至 %d，或指定席位",
		"must be a language tag like en or zh-CN":                         "必须是语言标签，如 en 或 zh-CN",
		"must be a phone number with + and country code, 7 to 15 digits":  "必须是带 + 和国家代码的电话号码，7 至 15 位",
		"must be an e-mail address":                                       "必须是电子邮箱地址",
		"must be an id as the catalogue gives it, a number":               "必须是目录中的编号（数字）",
		"must be at most %d":                                              "最多 %d",
		"must be at most one a seat: %d":                                  "每个席位最多一位：%d",
		"must be left out, or be the number of seats named":               "应省略，或等于指定席位数",
		"must name at least one passenger":                                "至少填写一位乘客",
		"must not be given with booking":                                  "不可与 booking 同时给出",
		"stands with passengers alone: names are all that can be changed": "只能与 passengers 一起给出：仅可修改姓名",
	})
}
