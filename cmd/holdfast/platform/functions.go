package platform

import (
	admittick "handler/function/functions/admit-tick"
	catalog "handler/function/functions/catalog"
	confirm "handler/function/functions/confirm"
	hold "handler/function/functions/hold"
	joinroom "handler/function/functions/join-room"
	match "handler/function/functions/match"
	pay "handler/function/functions/pay"
	reconcile "handler/function/functions/reconcile"
	releaseevent "handler/function/functions/release-event"
	seatmap "handler/function/functions/seat-map"
	signin "handler/function/functions/sign-in"
	standby "handler/function/functions/standby"
	ticket "handler/function/functions/ticket"
	web "handler/function/functions/web"
)

// Functions are the entries of all functions of stack.yml.
var Functions = map[string]Handle{
	"admit-tick":    admittick.Handle,
	"catalog":       catalog.Handle,
	"confirm":       confirm.Handle,
	"hold":          hold.Handle,
	"join-room":     joinroom.Handle,
	"match":         match.Handle,
	"pay":           pay.Handle,
	"reconcile":     reconcile.Handle,
	"release-event": releaseevent.Handle,
	"seat-map":      seatmap.Handle,
	"sign-in":       signin.Handle,
	"standby":       standby.Handle,
	"ticket":        ticket.Handle,
	"web":           web.Handle,
}
