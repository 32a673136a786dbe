package room

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"handler/function/shared/key"
)

// scoreBits is the length of a public score: a whole number that a Redis sorted
// set and JSON keep exactly (a double has 53 bits).
const scoreBits = 52

// Seed is the secret of one draw: HMAC-SHA256 of the draw secret over the room
// and the generation, each as its decimal text behind a 4-byte length.
func Seed(secret key.Key, room, generation int64) [32]byte {
	return mac(secret.Bytes, decimal(room), decimal(generation))
}

// Commitment is what is published of a seed before the draw: its SHA-256.
func Commitment(seed [32]byte) [32]byte { return sha256.Sum256(seed[:]) }

// SeedFor finds the seed that was committed to, whichever key of the ring made
// it: a draw secret may be rotated while rooms are open.
func SeedFor(secrets key.Ring, room, generation int64, commitment []byte) (seed [32]byte, ok bool) {
	for _, k := range secrets.All() {
		seed = Seed(k, room, generation)
		if c := Commitment(seed); subtle.ConstantTimeCompare(c[:], commitment) == 1 {
			return seed, true
		}
	}
	return [32]byte{}, false
}

// Score is a person's score in a draw, 0 to 2^52-1: the first 52 bits of
// HMAC-SHA256(seed, room, generation, account), each part as text behind its
// length in bytes as a 4-byte big-endian number, room and generation in decimal.
// Lower scores come first.
func Score(seed [32]byte, room, generation int64, account string) uint64 {
	return mark(seed, room, generation, account) >> (64 - scoreBits)
}

// mark is the first 64 bits of the HMAC of which a score is the first 52. The
// list keeps marks: the 12 bits more tell a person in the list from one who
// joined later and happens to have the same score.
func mark(seed [32]byte, room, generation int64, account string) uint64 {
	return marker(seed, room, generation)(account)
}

// marker makes the marks of many accounts with one HMAC.
func marker(seed [32]byte, room, generation int64) func(account string) uint64 {
	h := hmac.New(sha256.New, seed[:])
	head := parts(nil, decimal(room), decimal(generation))
	var buf []byte
	var sum [32]byte
	return func(account string) uint64 {
		buf = append(buf[:0], head...)
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(account)))
		buf = append(buf, account...)
		h.Reset()
		h.Write(buf)
		return binary.BigEndian.Uint64(h.Sum(sum[:0]))
	}
}

func mac(secret []byte, of ...[]byte) (sum [32]byte) {
	h := hmac.New(sha256.New, secret)
	h.Write(parts(nil, of...))
	h.Sum(sum[:0])
	return sum
}

// parts puts each part behind its length, so that no two lists of parts are the
// same bytes.
func parts(to []byte, of ...[]byte) []byte {
	for _, p := range of {
		to = binary.BigEndian.AppendUint32(to, uint32(len(p)))
		to = append(to, p...)
	}
	return to
}
