package text

func init() {
	register(map[string]string{
		"Train ticket":                    "火车票",
		"Admission ticket":                "入场券",
		"Stay voucher":                    "住宿凭证",
		"From":                            "出发",
		"To":                              "到达",
		"Starts":                          "开始",
		"Ends":                            "结束",
		"Check-in":                        "入住",
		"Check-out":                       "离店",
		"Class":                           "等级",
		"Room type":                       "房型",
		"Room":                            "房间",
		"Place":                           "位置",
		"Seat":                            "座位",
		"Section":                         "区域",
		"Coach":                           "车厢",
		"Passenger":                       "乘客",
		"Booking code":                    "订单号",
		"Ticket":                          "票",
		"Price":                           "票价",
		"Booked on":                       "预订日期",
		"timetable of %s":                 "%s 时刻表",
		"%d min":                          "%d 分钟",
		"%s h %02d min":                   "%s 小时 %02d 分",
		"%d of %d":                        "第 %d / %d",
		"(for all %d)":                    "（共 %d 张）",
		"Stops on request: tell the crew": "招呼站：请提前告知乘务员",
		"Show this code at the gate, printed or on a screen. It lets one person in, once, for what is named above. Bring proof of the name on it. What can be changed or refunded stands with your booking.": "请在检票口出示此二维码（纸质或屏幕均可）。一码一人，仅限上述行程或场次使用一次。请携带与姓名相符的证件。改签与退款规则见您的订单。",
	})
}
