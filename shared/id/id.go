// Package id makes and checks the public ids. Each carries its sale and a
// short MAC (law 8), so that a made-up one is refused without a look into
// Postgres. A MAC key is added to the ring, never replaced: ids live longer
// than keys.
package id

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"

	"handler/function/shared/key"
	"handler/function/shared/problem"

	"github.com/gofrs/uuid/v5"
)

// MaxBooking is the largest booking number of a sale: 22 bits, so that a
// locator has room for it. Numbers of a sale come round after that.
const MaxBooking = 1<<22 - 1

var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// Maker makes and reads public ids with the keys of a ring.
type Maker struct{ ring key.Ring }

// New makes a Maker from the secret `id-key`.
func New(ring key.Ring) *Maker { return &Maker{ring: ring} }

const macLen = 8 // bytes of MAC in an id of any length

// Booking is the public id of a booking: "B" and Crockford base32.
func (m *Maker) Booking(sale, number int64) string { return m.encode('B', varints(sale, number)) }

// ParseBooking reads a booking id; not-found for anything that is none.
func (m *Maker) ParseBooking(s string) (sale, number int64, err error) {
	b, err := m.decode('B', s)
	if err != nil {
		return 0, 0, err
	}
	sale, b = varint(b)
	number, b = varint(b)
	if sale <= 0 || number <= 0 || len(b) != 0 {
		return 0, 0, notFound()
	}
	return sale, number, nil
}

// Payment is the public id of a payment.
func (m *Maker) Payment(sale int64, u uuid.UUID) string { return m.withUUID('P', sale, u) }

// ParsePayment reads a payment id; not-found for anything that is none.
func (m *Maker) ParsePayment(s string) (int64, uuid.UUID, error) { return m.parseUUID('P', s) }

func (m *Maker) withUUID(kind byte, sale int64, u uuid.UUID) string {
	return m.encode(kind, append(varints(sale), u[:]...))
}

func (m *Maker) parseUUID(kind byte, s string) (int64, uuid.UUID, error) {
	b, err := m.decode(kind, s)
	if err != nil {
		return 0, uuid.Nil, err
	}
	sale, rest := varint(b)
	u, err := uuid.FromBytes(rest)
	if sale <= 0 || err != nil {
		return 0, uuid.Nil, notFound()
	}
	return sale, u, nil
}

// AccountTag stands for an account inside a public id.
type AccountTag [8]byte

// TagOf is the tag of an account: the first bytes of its SHA-256.
func TagOf(account string) (t AccountTag) {
	sum := sha256.Sum256([]byte(account))
	copy(t[:], sum[:])
	return t
}

// OrderRef is what the public id of a standby order says: whose it is and where
// it waits. So another's order is refused, and the queues are known, without a
// look into Postgres.
type OrderRef struct {
	Sale, Number int64
	From, To     int        // legs, 1-based and inclusive
	Classes      []int      // positions among the sale's classes, in order of liking
	Account      AccountTag // see TagOf
}

// maxOrderClasses is the most classes an order may name (migrations/00060).
const maxOrderClasses = 10

// Of says whether the order is the account's.
func (r OrderRef) Of(account string) bool { return r.Account == TagOf(account) }

// Order is the public id of a standby order.
func (m *Maker) Order(r OrderRef) string {
	b := varints(r.Sale, r.Number, int64(r.From), int64(r.To))
	for _, c := range r.Classes {
		b = binary.AppendUvarint(b, uint64(c))
	}
	return m.encode('O', append(b, r.Account[:]...))
}

// ParseOrder reads an order id; not-found for anything that is none.
func (m *Maker) ParseOrder(s string) (OrderRef, error) {
	b, err := m.decode('O', s)
	if err != nil {
		return OrderRef{}, err
	}
	var r OrderRef
	var from, to int64
	r.Sale, b = varint(b)
	r.Number, b = varint(b)
	from, b = varint(b)
	to, b = varint(b)
	if r.Sale <= 0 || r.Number <= 0 || from < 1 || to < from || to > 1<<16 || len(b) <= len(r.Account) {
		return OrderRef{}, notFound()
	}
	r.From, r.To = int(from), int(to)
	for len(b) > len(r.Account) {
		var c int64
		if c, b = varint(b); len(b) < len(r.Account) || c > 1<<16 || len(r.Classes) == maxOrderClasses {
			return OrderRef{}, notFound()
		}
		r.Classes = append(r.Classes, int(c))
	}
	copy(r.Account[:], b)
	return r, nil
}

func (m *Maker) encode(kind byte, body []byte) string {
	tag := mac(m.ring.Sign(), kind, body)
	return string(kind) + crockford.EncodeToString(append(body, tag[:macLen]...))
}

func (m *Maker) decode(kind byte, s string) ([]byte, error) {
	if len(s) < 2 || len(s) > 120 || s[0] != kind {
		return nil, notFound()
	}
	b, err := crockford.DecodeString(s[1:])
	// An encoding with stray low bits is another spelling of the same id.
	if err != nil || len(b) <= macLen || crockford.EncodeToString(b) != s[1:] {
		return nil, notFound()
	}
	body, tag := b[:len(b)-macLen], b[len(b)-macLen:]
	for _, k := range m.ring.All() {
		if want := mac(k, kind, body); hmac.Equal(tag, want[:macLen]) {
			return body, nil
		}
	}
	return nil, notFound()
}

// A locator is 60 bits, 12 Crockford characters: 3 bits of layout (how many
// bytes and halves the sale takes), the sale, 22 bits of booking number, and
// a MAC in all that is left: at least 15 bits up to a million sales.
const locatorBits = 60

func saleBits(layout uint64) uint { return 8 + 4*uint(layout) }

// Locator is a booking's short human code. Sales above 2^32-1 do not fit.
func (m *Maker) Locator(sale, number int64) string {
	layout := uint64(0)
	for sale>>saleBits(layout) != 0 {
		layout++
	}
	v, left := locatorHead(layout, sale, number)
	return spell(v<<left | locatorMAC(m.ring.Sign(), v, left))
}

func locatorHead(layout uint64, sale, number int64) (v uint64, left uint) {
	v = layout<<saleBits(layout) | uint64(sale)
	v = v<<22 | uint64(number)
	return v, locatorBits - 3 - saleBits(layout) - 22
}

func locatorMAC(k key.Key, v uint64, left uint) uint64 {
	tag := mac(k, 'L', varints(int64(v)))
	return binary.BigEndian.Uint64(tag[:8]) >> (64 - left)
}

func spell(v uint64) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var b [12]byte
	for i := 11; i >= 0; i-- {
		b[i] = digits[v&31]
		v >>= 5
	}
	return string(b[:])
}

// ParseLocator reads a locator as a person types it: lower case, spaces and
// dashes are fine, O reads as 0, I and L as 1. not-found for any other.
func (m *Maker) ParseLocator(s string) (sale, number int64, err error) {
	if len(s) > 40 {
		return 0, 0, notFound()
	}
	s = strings.NewReplacer(" ", "", "-", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(s))
	if len(s) != 12 {
		return 0, 0, notFound()
	}
	var v uint64
	for i := range len(s) {
		d := strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", s[i])
		if d < 0 {
			return 0, 0, notFound()
		}
		v = v<<5 | uint64(d)
	}
	layout := v >> (locatorBits - 3)
	left := locatorBits - 3 - int(saleBits(layout)) - 22
	if left < 1 {
		return 0, 0, notFound()
	}
	head, tag := v>>uint(left), v&(1<<uint(left)-1)
	number = int64(head & MaxBooking)
	sale = int64(head >> 22 & (1<<saleBits(layout) - 1))
	for _, k := range m.ring.All() {
		if locatorMAC(k, head, uint(left)) == tag && sale > 0 && number > 0 {
			return sale, number, nil
		}
	}
	return 0, 0, notFound()
}

// Sale reads a public sale id, a small decimal number.
func Sale(field, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > 1<<32-1 || strconv.FormatInt(n, 10) != s {
		return 0, problem.Invalid(field, "must be an id as the catalogue gives it, a number")
	}
	return n, nil
}

// Format writes a sale's or a room's public id.
func Format(n int64) string { return strconv.FormatInt(n, 10) }

func mac(k key.Key, kind byte, body []byte) []byte {
	h := hmac.New(sha256.New, k.Bytes)
	h.Write([]byte{'i', 'd', kind})
	h.Write(body)
	return h.Sum(nil)
}

func varints(ns ...int64) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func varint(b []byte) (int64, []byte) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > 1<<62 {
		return 0, nil
	}
	return int64(n), b[used:]
}

func notFound() error { return problem.New(problem.NotFound, "There is nothing here by that name.") }
