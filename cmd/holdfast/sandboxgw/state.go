package sandboxgw

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

// Limits of the sandbox: it stands on somebody's own machine.
const (
	maxPayments = 200_000 // kept in memory; the oldest is forgotten first
	maxRefunds  = 50      // of one payment
)

// record is a payment and the keys of the calls that changed it.
type record struct {
	sandbox.Payment
	Keys map[string]string `json:"keys,omitempty"` // idempotency key of a call → what was asked
}

// refusal is an answer other than 2xx.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return refusal{status, fmt.Sprintf(format, args...)}
}

// state is every payment of the sandbox, by reference and by the key it was
// made with. The server's lock guards it.
type state struct {
	byRef map[string]*record
	byKey map[string]string
	order []string // references, oldest first
	file  *os.File // one line of JSON for each change; nil keeps nothing
}

// openState reads the file of an earlier run: the last line of a payment counts,
// and a line cut short by a crash is passed over.
func openState(path string) (*state, error) {
	s := &state{byRef: map[string]*record{}, byKey: map[string]string{}}
	if path == "" {
		return s, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sandbox gateway: %w", err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Key string `json:"key"`
			record
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Reference != "" {
			r := line.record
			s.put(&r, line.Key)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox gateway: %s: %w", path, err), f.Close())
	}
	// A line cut short must not swallow the next one.
	_, _ = f.WriteString("\n")
	s.file = f
	return s, nil
}

func (s *state) put(r *record, key string) {
	if _, known := s.byRef[r.Reference]; !known {
		s.order = append(s.order, r.Reference)
		if len(s.order) > maxPayments {
			delete(s.byRef, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.byRef[r.Reference] = r
	if key != "" {
		s.byKey[key] = r.Reference
	}
}

// save writes a changed payment to the file. A sandbox whose disk is full goes
// on without: it is for trying out.
func (s *state) save(r *record, key string) {
	if s.file == nil {
		return
	}
	b, err := json.Marshal(struct {
		Key string `json:"key,omitempty"`
		*record
	}{key, r})
	if err == nil {
		_, _ = s.file.Write(append(b, '\n'))
	}
}

func (s *state) find(ref string) (*record, error) {
	if r, ok := s.byRef[ref]; ok {
		return r, nil
	}
	return nil, refuse(404, "no payment %q", ref)
}

// repeated says whether a call with this key was made before. The same key for
// something else is refused.
func (r *record) repeated(key, what string) (bool, error) {
	if key == "" {
		return false, refuse(400, "the header %s is required", sandbox.KeyHeader)
	}
	was, ok := r.Keys[key]
	if ok && was != what {
		return false, refuse(409, "this key was used for something else")
	}
	return ok, nil
}

func (r *record) remember(key, what string) {
	if r.Keys == nil {
		r.Keys = map[string]string{}
	}
	r.Keys[key] = what
}

// knows says whether something was made with this key.
func (s *state) knows(key string) bool { return s.byKey[key] != "" }

// create makes a payment, or finds the one made with this key.
func (s *state) create(c sandbox.Create, key string, now time.Time) (r *record, made bool, err error) {
	if key == "" || len(key) > 255 {
		return nil, false, refuse(400, "the header %s is required, at most 255 characters", sandbox.KeyHeader)
	}
	if c.Amount <= 0 || len(c.Currency) != 3 {
		return nil, false, refuse(422, "amount must be above 0 and currency a code of three letters")
	}
	what := fmt.Sprintf("create %d %s %v", c.Amount, c.Currency, c.Manual)
	if ref, ok := s.byKey[key]; ok {
		if r, ok := s.byRef[ref]; ok {
			_, err := r.repeated(key, what)
			return r, false, err
		}
	}
	r = &record{Payment: sandbox.Payment{
		Reference: "sb_" + random(), Status: payment.Pending, Amount: c.Amount, Currency: c.Currency, Manual: c.Manual,
		Metadata: c.Metadata, Description: c.Description, ReturnURL: c.ReturnURL,
		ClientSecret: "secret_" + random(), CreatedAt: now.UTC().Truncate(time.Millisecond),
	}}
	r.remember(key, what)
	s.put(r, key)
	s.save(r, key)
	return r, true, nil
}

// capture takes an authorised amount, or a part of it unless whole. What was
// voided, or was authorised too long ago, is not to be had.
func (s *state) capture(r *record, amount int64, key string, now time.Time, whole bool) error {
	what := fmt.Sprintf("capture %d", amount)
	if done, err := r.repeated(key, what); done || err != nil {
		return err
	}
	if r.Status != payment.Authorised {
		return refuse(409, "a payment that is %s cannot be captured", r.Status)
	}
	if r.AuthorisedAt == nil || now.Sub(*r.AuthorisedAt) >= sandbox.AuthorisationLife {
		return refuse(409, "the authorisation has ended")
	}
	if amount <= 0 || amount > r.Amount || whole && amount < r.Amount {
		return refuse(422, "amount must be 1 to %d, and all of it where a part cannot be captured", r.Amount)
	}
	r.Status, r.Captured = payment.Succeeded, amount
	r.remember(key, what)
	s.save(r, "")
	return nil
}

// cancel ends a payment that has not been captured; one that has stays.
func (s *state) cancel(r *record, key string) error {
	if done, err := r.repeated(key, "cancel"); done || err != nil {
		return err
	}
	if r.Status != payment.Succeeded {
		r.Status = payment.Cancelled
	}
	r.remember(key, "cancel")
	s.save(r, "")
	return nil
}

// refund gives back a captured amount or a part of it, once for each key.
func (s *state) refund(r *record, m sandbox.Move, key string) (f sandbox.Refund, made bool, err error) {
	what := fmt.Sprintf("refund %d", m.Amount)
	if done, err := r.repeated(key, what); err != nil {
		return f, false, err
	} else if done {
		i := slices.IndexFunc(r.Refunds, func(f sandbox.Refund) bool { return f.Key == key })
		return r.Refunds[i], false, nil
	}
	if m.Currency != "" && m.Currency != r.Currency {
		return f, false, refuse(422, "currency must be %s", r.Currency)
	}
	if m.Amount <= 0 || m.Amount > r.Captured-r.Refunded {
		return f, false, refuse(422, "amount must be 1 to %d, what is captured and not given back", r.Captured-r.Refunded)
	}
	if len(r.Refunds) >= maxRefunds {
		return f, false, refuse(409, "at most %d refunds of one payment", maxRefunds)
	}
	f = sandbox.Refund{Reference: "sbr_" + random(), Key: key, Status: payment.Succeeded, Amount: m.Amount, Currency: r.Currency}
	r.Refunds = append(slices.Clone(r.Refunds), f)
	r.Refunded += m.Amount
	r.remember(key, what)
	s.save(r, "")
	return f, true, nil
}

// set changes what the payer or the bank decides. A payment whose money was
// taken, or that was cancelled, stays as it is unless forced.
func (s *state) set(r *record, to payment.Status, amount int64, force bool, now time.Time) error {
	if r.Status == to {
		return nil
	}
	if !force && (r.Status == payment.Succeeded || r.Status == payment.Cancelled) {
		return refuse(409, "a payment that is %s stays so (force: true all the same)", r.Status)
	}
	r.Status = to
	switch to {
	case payment.Succeeded:
		r.Captured = amount
	case payment.Authorised:
		at := now.UTC().Truncate(time.Millisecond)
		r.AuthorisedAt = &at
	}
	s.save(r, "")
	return nil
}

func random() string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
