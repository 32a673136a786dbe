// Package sandbox is the gateway for tests and for trying Holdfast out. Its
// server is part of the workbench (cmd/holdfast/sandboxgw); this package is the
// adapter that talks to it and what both sides agree on. It takes no real money
// and is refused unless the installation and the sale both say test.
package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"handler/function/shared/key"
	"handler/function/shared/payment"
)

// Name is what a sale's list of gateways calls the sandbox.
const Name = "sandbox"

// SignatureHeader carries the signature of a webhook:
// `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`.
const SignatureHeader = "Sandbox-Signature"

// MaxAge is how old a webhook's signature may be, and how far ahead of our
// clock: five minutes, as other gateways have it.
const MaxAge = 5 * time.Minute

// AuthorisationLife is how long an authorised sum can be captured: seven days, as
// a card's.
const AuthorisationLife = 7 * 24 * time.Hour

// KeyHeader carries the idempotency key of a call.
const KeyHeader = "Idempotency-Key"

// Payment is a payment at the sandbox, as its API shows it. Amounts are minor
// units.
type Payment struct {
	Reference    string            `json:"reference"`
	Status       payment.Status    `json:"status"`
	Amount       int64             `json:"amount"`
	Currency     string            `json:"currency"`
	Captured     int64             `json:"captured"`
	Refunded     int64             `json:"refunded"`
	Manual       bool              `json:"manual"` // waits for capture
	Metadata     map[string]string `json:"metadata,omitempty"`
	Description  string            `json:"description,omitempty"`
	ReturnURL    string            `json:"return_url,omitempty"`
	ClientSecret string            `json:"client_secret"`
	RedirectURL  string            `json:"redirect_url"`
	CreatedAt    time.Time         `json:"created_at"`
	AuthorisedAt *time.Time        `json:"authorised_at,omitempty"`
	Refunds      []Refund          `json:"refunds,omitempty"`
}

// Refund is money given back at the sandbox.
type Refund struct {
	Reference string         `json:"reference"`
	Key       string         `json:"key"`
	Status    payment.Status `json:"status"`
	Amount    int64          `json:"amount"`
	Currency  string         `json:"currency"`
}

// Create is the body that makes a payment.
type Create struct {
	Amount      int64             `json:"amount"`
	Currency    string            `json:"currency"`
	Manual      bool              `json:"manual,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Description string            `json:"description,omitempty"`
	ReturnURL   string            `json:"return_url,omitempty"`
}

// Move is the body of a capture or a refund.
type Move struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency,omitempty"`
}

// Webhook is the body the sandbox posts to `confirm`.
type Webhook struct {
	ID      string            `json:"id"`
	Type    payment.EventType `json:"type"`
	Payment WebhookPayment    `json:"payment"`
	Refund  *WebhookRefund    `json:"refund,omitempty"`
}

// WebhookPayment names the payment; Amount is what the event is about (of a
// refund event: what was given back).
type WebhookPayment struct {
	Reference string            `json:"reference"`
	Amount    int64             `json:"amount"`
	Currency  string            `json:"currency"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// WebhookRefund names the refund of a refund event.
type WebhookRefund struct {
	Reference string `json:"reference"`
	Key       string `json:"key"`
}

// MetadataPayment is the metadata field with our public payment id.
const MetadataPayment = "payment"

// Sign makes the signature header of a webhook sent at that moment.
func Sign(k key.Key, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(tag(k, t, body))
}

// CheckSignature verifies a signature header against any key of the ring, and
// its age. The error wraps payment.ErrSignature.
func CheckSignature(ring key.Ring, header string, body []byte, now time.Time) error {
	var stamp string
	var tags [][]byte
	for i, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case i >= 8:
			return fmt.Errorf("%w: too many parts", payment.ErrSignature)
		case name == "t":
			stamp = value
		case name == "v1":
			if b, err := hex.DecodeString(value); err == nil {
				tags = append(tags, b)
			}
		}
	}
	sec, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(tags) == 0 {
		return fmt.Errorf("%w: %s must be t=<unix>,v1=<hex>", payment.ErrSignature, SignatureHeader)
	}
	genuine := false
	for _, k := range ring.All() {
		want := tag(k, stamp, body)
		for _, got := range tags {
			genuine = genuine || hmac.Equal(got, want)
		}
	}
	if !genuine {
		return payment.ErrSignature
	}
	if age := now.Sub(time.Unix(sec, 0)); age > MaxAge || age < -MaxAge {
		return fmt.Errorf("%w: it is more than %s old", payment.ErrSignature, MaxAge)
	}
	return nil
}

func tag(k key.Key, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, k.Bytes)
	h.Write([]byte(stamp))
	h.Write([]byte{'.'})
	h.Write(body)
	return h.Sum(nil)
}
