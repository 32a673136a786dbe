package room

import (
	"context"

	"handler/function/shared/queue"
)

// SayGone is Service.SoldOut for who has no Service: the function hold.
func SayGone(ctx context.Context, client *queue.Client, room, sale int64) error {
	return line{client: client, room: room}.sayGone(ctx, sale)
}
