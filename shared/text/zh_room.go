package text

func init() {
	register(map[string]string{
		"Queued. System busy, position available later": "排队成功，系统繁忙，名次稍后可查",
		"System busy, please ask again later":           "系统繁忙，请稍后查询",
		"A few seconds more, you are next":              "请再等几秒，马上轮到您",

		"There is no such waiting room.":                                                           "没有这个候场。",
		"Joining opens later.":                                                                     "尚未开始排队。",
		"This waiting room is closed.":                                                             "该候场已关闭。",
		"This sale has no waiting room: hold directly.":                                            "该场次无需排队，可直接选座。",
		"The waiting room was reset. Please join again.":                                           "候场已重置，请重新排队。",
		"You are in line already; your place stays yours.":                                         "您已在队列中，名次保留。",
		"You are admitted already; use that admission first.":                                      "您已获准入场，请先使用该资格。",
		"The Place-Token is not accepted. Join again without it.":                                  "排队凭证无效，请不带凭证重新排队。",
		"The Place-Token is of another room or account.":                                           "排队凭证属于其他候场或账户。",
		"Join the waiting room first.":                                                             "请先排队入场。",
		"Your admission has ended. You can join again.":                                            "您的入场资格已到期，可重新排队。",
		"The Admit-Token is not accepted.":                                                         "入场凭证无效。",
		"This admission is for another room, account or purpose.":                                  "该入场资格属于其他候场、账户或用途。",
		"The list of this draw is not there yet.":                                                  "本次抽签名单尚未公布。",
		"The list has no such page.":                                                               "名单没有这一页。",
		"The draw of this room is over; its times cannot change. Reset the room for another draw.": "该候场的抽签已结束，时间不可更改。如需再次抽签请重置候场。",
	})
}
