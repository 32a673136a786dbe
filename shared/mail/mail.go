// Package mail sends mail over SMTP, as the secret `smtp-url` says:
//
//	smtp://USER:PASSWORD@HOST:PORT?from=Holdfast%20%3Ctickets@example.org%3E&tls=required
//
// Scheme smtp (port 587 by default, STARTTLS) or smtps (port 465, TLS from the
// start); user and password are optional; tls is required (default), optional or
// none; from is the sender. On the machine itself (localhost, 127.0.0.1) tls is
// optional and from may be left out.
package mail

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// timeout bounds one message, dialling included.
const timeout = 15 * time.Second

// maxAddress is the longest address of RFC 5321 (4.5.3.1.3), in bytes.
const maxAddress = 254

// ErrRefused says that the server will never take this message: the recipient
// does not exist, or the message is not acceptable. Trying again is useless.
var ErrRefused = errors.New("mail: refused for good")

// ErrDown says that the server cannot be reached or takes no mail from us now:
// it is not about this message.
var ErrDown = errors.New("mail: the server is away")

// Message is one mail to one person.
type Message struct {
	To      string // an address, see Address
	Subject string
	Text    string
	// ID is the same for every try of one message (RFC 5322 Message-ID without
	// the angle brackets), so that a copy sent twice can be told by the reader's
	// mail system.
	ID          string
	Language    string // BCP 47
	Attachments []Attachment
}

// Attachment is a file beside the text.
type Attachment struct {
	Name, Type string
	Data       []byte
}

// Sender sends mail. Safe for concurrent use: each message has its connection.
type Sender struct {
	host    string
	from    string
	options []gomail.Option
}

// New reads an smtp-url. It does not connect.
func New(smtpURL string) (*Sender, error) {
	u, err := url.Parse(smtpURL)
	if err != nil || u.Hostname() == "" || (u.Scheme != "smtp" && u.Scheme != "smtps") {
		return nil, errors.New("mail: smtp-url must be smtp://[user:password@]host[:port]?from=… or smtps://…") // err would show the password
	}
	q := u.Query()
	s := &Sender{host: u.Hostname(), from: q.Get("from")}
	encryption := q.Get("tls")
	if ip := net.ParseIP(s.host); s.host == "localhost" || ip != nil && ip.IsLoopback() {
		s.from, encryption = cmp.Or(s.from, "Holdfast <tickets@localhost>"), cmp.Or(encryption, "optional")
	}
	if _, err := netmail.ParseAddress(s.from); err != nil {
		return nil, errors.New("mail: smtp-url needs from=ADDRESS, such as from=tickets@example.org")
	}
	s.options = []gomail.Option{gomail.WithTimeout(timeout)}
	port := 587
	if u.Scheme == "smtps" {
		port = 465
		s.options = append(s.options, gomail.WithSSL())
	} else {
		policy, ok := map[string]gomail.TLSPolicy{
			"": gomail.TLSMandatory, "required": gomail.TLSMandatory, "optional": gomail.TLSOpportunistic, "none": gomail.NoTLS,
		}[encryption]
		if !ok {
			return nil, errors.New("mail: smtp-url: tls must be required, optional or none")
		}
		s.options = append(s.options, gomail.WithTLSPolicy(policy))
	}
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return nil, errors.New("mail: smtp-url: port")
		}
	}
	s.options = append(s.options, gomail.WithPort(port))
	if u.User != nil {
		password, _ := u.User.Password()
		s.options = append(s.options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover),
			gomail.WithUsername(u.User.Username()), gomail.WithPassword(password))
	}
	return s, nil
}

// Address checks a mail address and returns it as it is sent to: no display
// name, no comments, no line breaks, the domain in lower case.
func Address(s string) (string, bool) {
	if len(s) > maxAddress || strings.ContainsAny(s, "\r\n\x00<>") {
		return "", false
	}
	a, err := netmail.ParseAddress(strings.TrimSpace(s))
	if err != nil || a.Name != "" {
		return "", false
	}
	at := strings.LastIndexByte(a.Address, '@')
	local, domain := a.Address[:at], strings.ToLower(a.Address[at+1:])
	if local == "" || !strings.Contains(domain, ".") && domain != "localhost" || strings.HasPrefix(domain, "[") {
		return "", false
	}
	return local + "@" + domain, true
}

// Send hands the message to the server. When it returns nil the server has
// taken charge of it. Errors wrap ErrRefused or ErrDown where it is one of them;
// others are worth another try.
func (s *Sender) Send(ctx context.Context, m Message) error {
	to, ok := Address(m.To)
	if !ok {
		return fmt.Errorf("%w: not an address", ErrRefused)
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := msg.From(s.from); err != nil {
		return fmt.Errorf("mail: from: %w", err)
	}
	if err := msg.To(to); err != nil {
		return fmt.Errorf("%w: not an address", ErrRefused)
	}
	msg.Subject(m.Subject)
	msg.SetMessageIDWithValue(m.ID)
	msg.SetDate()
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	if m.Language != "" {
		msg.SetGenHeader("Content-Language", m.Language)
	}
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	for _, a := range m.Attachments {
		if err := msg.AttachReader(a.Name, bytes.NewReader(a.Data), gomail.WithFileContentType(gomail.ContentType(a.Type))); err != nil {
			return fmt.Errorf("mail: attachment %s: %w", a.Name, err)
		}
	}
	client, err := gomail.NewClient(s.host, s.options...)
	if err != nil {
		return fmt.Errorf("mail: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = client.DialAndSendWithContext(ctx, msg)
	if err == nil || msg.IsDelivered() {
		return nil // what goes wrong after the server took it is no failure
	}
	return sendError(err)
}

// sendError sorts errors without repeating the recipient, who is nobody's
// business in a log.
func sendError(err error) error {
	var failed *gomail.SendError
	if errors.As(err, &failed) {
		switch permanent := failed.ErrorCode() >= 500 && failed.ErrorCode() < 600; failed.Reason {
		case gomail.ErrConnCheck:
			return fmt.Errorf("%w: %s", ErrDown, failed.Reason)
		case gomail.ErrSMTPMailFrom: // we are not welcome, whoever the mail is for
			if permanent {
				return fmt.Errorf("%w: %s, code %d", ErrDown, failed.Reason, failed.ErrorCode())
			}
		case gomail.ErrSMTPRcptTo, gomail.ErrSMTPData, gomail.ErrSMTPDataClose:
			if permanent {
				return fmt.Errorf("%w: %s, code %d", ErrRefused, failed.Reason, failed.ErrorCode())
			}
		}
		return fmt.Errorf("mail: %s, code %d", failed.Reason, failed.ErrorCode())
	}
	var network net.Error
	if errors.As(err, &network) {
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	return fmt.Errorf("%w: %s", ErrDown, err)
}
