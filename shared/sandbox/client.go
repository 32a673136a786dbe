package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"handler/function/shared/key"
	"handler/function/shared/money"
	"handler/function/shared/payment"
)

// callTimeout bounds one call. Shorter than the exec_timeout of every function
// that calls, so that the answer "nobody knows" still reaches the caller.
const callTimeout = 8 * time.Second

// maxAnswer is the largest answer read from the sandbox.
const maxAnswer = 1 << 20

// Client is the sandbox as a payment.Gateway. It is safe for concurrent use.
type Client struct {
	base  string
	ring  key.Ring
	http  *http.Client
	whole bool // see WholeOnly
}

var _ payment.Gateway = (*Client)(nil)

// New makes the adapter for the sandbox at baseURL (HOLDFAST_SANDBOX_URL), whose
// webhooks are signed with a key of the ring (secret sandbox-key).
func New(baseURL string, ring key.Ring) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("sandbox: HOLDFAST_SANDBOX_URL %q must be an http address", baseURL)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	return &Client{
		base: strings.TrimRight(baseURL, "/") + "/api/payments",
		ring: ring,
		http: &http.Client{Timeout: callTimeout, Transport: transport},
	}, nil
}

// Name is "sandbox".
func (c *Client) Name() string { return Name }

// Traits of the sandbox.
func (c *Client) Traits() payment.Traits {
	return payment.Traits{AuthorisationLife: AuthorisationLife, CapturePart: !c.whole, TestOnly: true}
}

// WholeOnly is the same sandbox as a gateway that cannot capture a part. The
// server's fault whole_only makes it refuse who tries all the same.
func (c *Client) WholeOnly() *Client {
	whole := *c
	whole.whole = true
	return &whole
}

// Create makes a payment.
func (c *Client) Create(ctx context.Context, o payment.Order) (payment.Charge, error) {
	return c.create(ctx, o, false)
}

// Authorise makes a payment that waits for Capture.
func (c *Client) Authorise(ctx context.Context, o payment.Order) (payment.Charge, error) {
	return c.create(ctx, o, true)
}

func (c *Client) create(ctx context.Context, o payment.Order, manual bool) (payment.Charge, error) {
	return c.charge(ctx, http.MethodPost, "", o.Key, Create{
		Amount: o.Amount.Amount, Currency: o.Amount.Currency, Manual: manual,
		Metadata:    map[string]string{MetadataPayment: o.Payment},
		Description: o.Description, ReturnURL: o.ReturnURL,
	})
}

// LookUp says how a payment stands.
func (c *Client) LookUp(ctx context.Context, reference string) (payment.Charge, error) {
	return c.charge(ctx, http.MethodGet, "/"+url.PathEscape(reference), "", nil)
}

// Capture takes an authorised amount or a part of it.
func (c *Client) Capture(ctx context.Context, reference string, amount int64, key string) (payment.Charge, error) {
	return c.charge(ctx, http.MethodPost, "/"+url.PathEscape(reference)+"/capture", key, Move{Amount: amount})
}

// Cancel ends a payment that has not been captured.
func (c *Client) Cancel(ctx context.Context, reference, key string) (payment.Charge, error) {
	return c.charge(ctx, http.MethodPost, "/"+url.PathEscape(reference)+"/cancel", key, struct{}{})
}

// Refund gives back a captured amount or a part of it.
func (c *Client) Refund(ctx context.Context, reference string, a money.Amount, key string) (payment.Repayment, error) {
	var r Refund
	err := c.call(ctx, http.MethodPost, "/"+url.PathEscape(reference)+"/refunds", key, Move{Amount: a.Amount, Currency: a.Currency}, &r)
	return payment.Repayment{Reference: r.Reference, Status: r.Status}, err
}

func (c *Client) charge(ctx context.Context, method, path, key string, body any) (payment.Charge, error) {
	var p Payment
	if err := c.call(ctx, method, path, key, body, &p); err != nil {
		return payment.Charge{}, err
	}
	if p.Reference == "" {
		return payment.Charge{}, fmt.Errorf("sandbox: %s %s answered without a reference", method, path)
	}
	return payment.Charge{
		Reference: p.Reference, Payment: p.Metadata[MetadataPayment], Status: p.Status,
		Amount: money.Amount{Amount: p.Amount, Currency: p.Currency}, Captured: p.Captured,
		ClientSecret: p.ClientSecret, RedirectURL: p.RedirectURL,
	}, nil
}

// call makes one call. 404 is ErrUnknown, another 4xx but 408 and 429 is
// ErrRefused; for everything else nobody knows whether it acted.
func (c *Client) call(ctx context.Context, method, path, key string, body, answer any) error {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(KeyHeader, key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("sandbox: reading the answer to %s %s: %w", method, path, err)
	}
	switch s := resp.StatusCode; {
	case s == http.StatusNotFound:
		return fmt.Errorf("sandbox: %s %s: %w", method, path, payment.ErrUnknown)
	case s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooManyRequests:
		return fmt.Errorf("sandbox: %s %s: %w: %d %s", method, path, payment.ErrRefused, s, firstLine(b))
	case s < 200 || s > 299:
		return fmt.Errorf("sandbox: %s %s answered %d %s", method, path, s, firstLine(b))
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("sandbox: answer to %s %s: %w", method, path, err)
	}
	return nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line[:min(len(line), 200)])
}

// Verify checks and reads a webhook.
func (c *Client) Verify(header http.Header, body []byte, now time.Time) (payment.Event, error) {
	if err := CheckSignature(c.ring, header.Get(SignatureHeader), body, now); err != nil {
		return payment.Event{}, err
	}
	var w Webhook
	if err := json.Unmarshal(body, &w); err != nil {
		return payment.Event{}, fmt.Errorf("sandbox: webhook body: %w", err)
	}
	if w.ID == "" || len(w.ID) > 255 || w.Type == "" || w.Payment.Reference == "" || len(w.Payment.Reference) > 255 {
		return payment.Event{}, fmt.Errorf("sandbox: webhook body needs id, type and payment.reference of at most 255 characters")
	}
	e := payment.Event{
		Gateway: Name, ID: w.ID, Type: w.Type, Reference: w.Payment.Reference,
		Payment: w.Payment.Metadata[MetadataPayment],
		Amount:  money.Amount{Amount: w.Payment.Amount, Currency: w.Payment.Currency},
		Body:    body,
	}
	if w.Refund != nil {
		e.RefundKey = w.Refund.Key
	}
	return e, nil
}
