package harness

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-message"
	_ "github.com/emersion/go-message/charset" // mails in any charset
	"github.com/emersion/go-message/mail"
	"github.com/emersion/go-smtp"
)

// Mail is a mail that a test's SMTP server has taken.
type Mail struct {
	To          []string
	ID          string // Message-ID
	Subject     string
	Text        string
	Attachments map[string][]byte // by file name
}

// SMTPServer takes mails in the test's own process.
type SMTPServer struct {
	URL string // smtp-url

	mu     sync.Mutex
	mails  []Mail
	refuse func(to string) error
	server *smtp.Server
}

// SMTP starts an SMTP server of this test's own.
func SMTP(t testing.TB) *SMTPServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &SMTPServer{URL: "smtp://" + l.Addr().String() + "?from=" + url.QueryEscape("Holdfast <tickets@example.org>")}
	s.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &smtpSession{to: s}, nil }))
	s.server.Domain = "localhost"
	s.server.ReadTimeout, s.server.WriteTimeout = 10*time.Second, 10*time.Second
	s.server.EnableSMTPUTF8 = true
	go func() { _ = s.server.Serve(l) }()
	t.Cleanup(func() { _ = s.server.Close() })
	return s
}

// Refuse makes every recipient be answered with the error that f gives; nil
// takes all again. Temporarily and ForGood make such errors.
func (s *SMTPServer) Refuse(f func(to string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Temporarily is an SMTP answer worth another try.
func Temporarily() error {
	return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"}
}

// ForGood is an SMTP answer to an address that does not exist.
func ForGood() error {
	return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
}

// Mails are the mails taken so far for a recipient, "" for all.
func (s *SMTPServer) Mails(to string) []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []Mail
	for _, m := range s.mails {
		for _, r := range m.To {
			if to == "" || r == to {
				some = append(some, m)
				break
			}
		}
	}
	return some
}

type smtpSession struct {
	to   *SMTPServer
	rcpt []string
}

func (s *smtpSession) Reset()                               { s.rcpt = nil }
func (s *smtpSession) Logout() error                        { return nil }
func (s *smtpSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *smtpSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to.mu.Lock()
	refuse := s.to.refuse
	s.to.mu.Unlock()
	if refuse != nil {
		if err := refuse(to); err != nil {
			return err
		}
	}
	s.rcpt = append(s.rcpt, to)
	return nil
}

func (s *smtpSession) Data(r io.Reader) error {
	mr, err := mail.CreateReader(r)
	if err != nil && !message.IsUnknownCharset(err) {
		return err
	}
	m := Mail{To: s.rcpt, Attachments: map[string][]byte{}}
	m.Subject, _ = mr.Header.Subject()
	m.ID, _ = mr.Header.MessageID()
	for {
		p, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(p.Body)
		if err != nil {
			return err
		}
		switch h := p.Header.(type) {
		case *mail.AttachmentHeader:
			name, _ := h.Filename()
			m.Attachments[name] = body
		case *mail.InlineHeader:
			m.Text += string(body)
		}
	}
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.to.mails = append(s.to.mails, m)
	return nil
}
