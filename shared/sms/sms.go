// Package sms sends short messages through any provider that takes an HTTP POST,
// as the secret `sms-url` says:
//
//	https://USER:PASSWORD@HOST/PATH?format=json&to_field=to&text_field=text&sender=Holdfast
//
// format is json (default) or form; to_field and text_field name the fields of
// the number and the text (to and text by default); every other parameter is
// sent as a field as it stands. User and password become Basic authorisation.
// Each message carries an Idempotency-Key that is the same for every try.
package sms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// timeout bounds one message.
const timeout = 10 * time.Second

// MaxText is the longest text, in characters: three parts of a message in UCS-2.
const MaxText = 201

// ErrRefused says that the provider will never take this message.
var ErrRefused = errors.New("sms: refused for good")

// ErrDown says that the provider cannot be reached or takes nothing now.
var ErrDown = errors.New("sms: the provider is away")

var number = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// Sender sends short messages. Safe for concurrent use.
type Sender struct {
	address    string
	user, pass string
	form       bool
	to, text   string
	fields     url.Values
	client     *http.Client
}

// New reads an sms-url. It does not connect.
func New(smsURL string) (*Sender, error) {
	u, err := url.Parse(smsURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("sms: sms-url must be https://[user:password@]host/path?…") // err would show the password
	}
	s := &Sender{to: "to", text: "text", fields: u.Query(), client: &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	take := func(name, fallback string) string {
		v := s.fields.Get(name)
		s.fields.Del(name)
		if v == "" {
			return fallback
		}
		return v
	}
	s.to, s.text = take("to_field", "to"), take("text_field", "text")
	switch take("format", "json") {
	case "json":
	case "form":
		s.form = true
	default:
		return nil, errors.New("sms: sms-url: format must be json or form")
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.pass, _ = u.User.Password()
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	s.address = u.String()
	return s, nil
}

// Number returns a phone number as it is sent to (E.164: + and 7 to 15 digits),
// without the spaces, dots, dashes and brackets people write.
func Number(s string) (string, bool) {
	s = strings.NewReplacer(" ", "", "-", "", ".", "", "(", "", ")", "").Replace(strings.TrimSpace(s))
	if strings.HasPrefix(s, "00") {
		s = "+" + s[2:]
	}
	return s, number.MatchString(s)
}

// Send hands one message to the provider. id is the same for every try. Errors
// wrap ErrRefused or ErrDown where it is one of them.
func (s *Sender) Send(ctx context.Context, id, to, text string) error {
	to, ok := Number(to)
	if !ok {
		return fmt.Errorf("%w: not a number in the international form", ErrRefused)
	}
	if r := []rune(text); len(r) > MaxText {
		text = string(r[:MaxText-1]) + "…"
	}
	body, contentType, err := s.body(to, text)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("sms: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Idempotency-Key", id)
	if s.user != "" || s.pass != "" {
		req.SetBasicAuth(s.user, s.pass)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	switch {
	case res.StatusCode >= 200 && res.StatusCode < 300:
		return nil
	case res.StatusCode == http.StatusBadRequest, res.StatusCode == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: status %d", ErrRefused, res.StatusCode)
	}
	return fmt.Errorf("%w: status %d", ErrDown, res.StatusCode)
}

func (s *Sender) body(to, text string) ([]byte, string, error) {
	if s.form {
		fields := url.Values{s.to: {to}, s.text: {text}}
		for name, values := range s.fields {
			fields[name] = values
		}
		return []byte(fields.Encode()), "application/x-www-form-urlencoded", nil
	}
	fields := map[string]string{s.to: to, s.text: text}
	for name := range s.fields {
		fields[name] = s.fields.Get(name)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, "", fmt.Errorf("sms: %w", err)
	}
	return b, "application/json", nil
}
