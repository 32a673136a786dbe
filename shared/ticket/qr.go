package ticket

import (
	"crypto/ed25519"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"handler/function/shared/key"
)

// The code on a ticket:
//
//	"HF1" base32( version kid sale booking serial seat first last day name signature )
//
// Base32 without padding and upper case, so that a QR code stores it in its
// dense alphanumeric mode and no scanner, URL or keyboard spoils it: base45 is
// 7 % shorter and has a space and a percent sign. The signature is Ed25519 over
// signedContext and all bytes before it.

const (
	codePrefix    = "HF1"
	codeVersion   = 1
	signedContext = "holdfast ticket 1\x00"
	maxCode       = 400 // characters; ours have about 160
	maxName       = 40  // bytes of a seat's name
)

var codeText = base32.StdEncoding.WithPadding(base32.NoPadding)

// day0 is what service dates are counted from.
var day0 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrCode is returned for anything that is not a code signed by a known key.
var ErrCode = errors.New("ticket: not a code of ours")

// Pass is what a code says: enough to check it at a gate without a network.
type Pass struct {
	KeyID       string
	Sale        int64
	Booking     int64
	Serial      int    // 1 to the number of seats of the booking
	Seat        int    // number of the seat; 0 for counted stock
	SeatName    string // as printed
	FirstLeg    int    // 1-based, inclusive
	LastLeg     int
	ServiceDate string // YYYY-MM-DD
}

// PublicKeys verify codes, by kid.
type PublicKeys map[string]ed25519.PublicKey

// Signer signs codes with the first key of the secret `ticket-key`.
type Signer struct {
	kid     string
	private ed25519.PrivateKey
	public  PublicKeys
}

// NewSigner reads the ring of Ed25519 seeds.
func NewSigner(ring key.Ring) (*Signer, error) {
	s := &Signer{public: PublicKeys{}}
	for i, k := range ring.All() {
		if len(k.Bytes) != ed25519.SeedSize {
			return nil, fmt.Errorf("ticket: key %s has %d bytes, an Ed25519 seed has %d", k.ID, len(k.Bytes), ed25519.SeedSize)
		}
		private := ed25519.NewKeyFromSeed(k.Bytes)
		s.public[k.ID] = private.Public().(ed25519.PublicKey)
		if i == 0 {
			s.kid, s.private = k.ID, private
		}
	}
	if s.private == nil {
		return nil, errors.New("ticket: the secret ticket-key is empty")
	}
	return s, nil
}

// Public are the keys a gate needs.
func (s *Signer) Public() PublicKeys { return s.public }

// Sign makes the code of a pass; its KeyID is the signer's.
func (s *Signer) Sign(p Pass) (string, error) {
	day, err := time.Parse(time.DateOnly, p.ServiceDate)
	if err != nil || day.Before(day0) {
		return "", fmt.Errorf("ticket: service date %q", p.ServiceDate)
	}
	if p.Sale <= 0 || p.Booking <= 0 || p.Serial <= 0 || p.Seat < 0 || p.FirstLeg <= 0 || p.LastLeg < p.FirstLeg {
		return "", fmt.Errorf("ticket: pass %+v", p)
	}
	if len(p.SeatName) > maxName {
		return "", fmt.Errorf("ticket: the seat name %q has more than %d bytes", p.SeatName, maxName)
	}
	b := []byte{codeVersion}
	b = appendText(b, s.kid)
	for _, n := range []int64{p.Sale, p.Booking, int64(p.Serial), int64(p.Seat), int64(p.FirstLeg), int64(p.LastLeg), int64(day.Sub(day0).Hours() / 24)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = appendText(b, p.SeatName)
	b = append(b, ed25519.Sign(s.private, append([]byte(signedContext), b...))...)
	return codePrefix + codeText.EncodeToString(b), nil
}

// Verify reads a code and checks its signature. It looks at nothing but its
// arguments, so a gate can do the same offline; whether the ticket was refunded
// or used only the platform knows. Errors are ErrCode.
func Verify(keys PublicKeys, code string) (Pass, error) {
	code = strings.ToUpper(strings.TrimSpace(code))
	body, ok := strings.CutPrefix(code, codePrefix)
	if !ok || len(code) > maxCode {
		return Pass{}, ErrCode
	}
	b, err := codeText.DecodeString(body)
	if err != nil || len(b) < 1+ed25519.SignatureSize || b[0] != codeVersion {
		return Pass{}, ErrCode
	}
	// Base32 ignores spare bits at the end: only the one spelling is ours.
	if codeText.EncodeToString(b) != body {
		return Pass{}, ErrCode
	}
	signed, signature := b[:len(b)-ed25519.SignatureSize], b[len(b)-ed25519.SignatureSize:]
	r := codeReader{rest: signed[1:]}
	p := Pass{KeyID: r.text()}
	public, ok := keys[p.KeyID]
	if !ok || !ed25519.Verify(public, append([]byte(signedContext), signed...), signature) {
		return Pass{}, ErrCode
	}
	p.Sale, p.Booking = r.number(), r.number()
	p.Serial, p.Seat = int(r.number()), int(r.number())
	p.FirstLeg, p.LastLeg = int(r.number()), int(r.number())
	days := r.number()
	p.SeatName = r.text()
	if r.bad || len(r.rest) != 0 || days > 1<<20 {
		return Pass{}, ErrCode
	}
	p.ServiceDate = day0.AddDate(0, 0, int(days)).Format(time.DateOnly)
	return p, nil
}

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

type codeReader struct {
	rest []byte
	bad  bool
}

func (r *codeReader) number() int64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > 1<<62 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return int64(n)
}

func (r *codeReader) text() string {
	if len(r.rest) == 0 || len(r.rest) < 1+int(r.rest[0]) {
		r.bad, r.rest = true, nil
		return ""
	}
	n := int(r.rest[0])
	s := string(r.rest[1 : 1+n])
	r.rest = r.rest[1+n:]
	return s
}
