package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-message"
	_ "github.com/emersion/go-message/charset" // mails in any charset
	"github.com/emersion/go-message/mail"
	"github.com/emersion/go-smtp"
)

// Bounds of what /dev/mail keeps: the newest of both.
const (
	maxMessages     = 5000
	maxMessageBytes = 256 << 20 // all together
	maxMail         = 10 << 20  // of one
)

// Message is a mail or an SMS that a function sent.
type Message struct {
	ID          int          `json:"id"`
	Kind        string       `json:"kind"` // mail or sms
	At          time.Time    `json:"at"`
	From        string       `json:"from"`
	To          []string     `json:"to"`
	Subject     string       `json:"subject"`
	Text        string       `json:"text"`
	HTML        string       `json:"html,omitempty"`
	Attachments []Attachment `json:"attachments"`

	size int
}

// Attachment is a file in a mail, served at URL.
type Attachment struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size int    `json:"size"`
	URL  string `json:"url"`

	data []byte
}

// outbound keeps what functions send to people, in memory: the SMTP server and
// the SMS provider of the workbench.
type outbound struct {
	mu       sync.Mutex
	messages []*Message // oldest first
	last     int
	bytes    int
	smtp     *smtp.Server
	smtpAddr string
}

// startOutbound starts the SMTP server on a free port of 127.0.0.1.
func startOutbound() (*outbound, error) {
	o := &outbound{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.smtpAddr = l.Addr().String()
	o.smtp = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{to: o}, nil }))
	o.smtp.Domain = "localhost"
	o.smtp.MaxMessageBytes = maxMail
	o.smtp.MaxRecipients = 50
	o.smtp.ReadTimeout, o.smtp.WriteTimeout = 30*time.Second, 30*time.Second
	o.smtp.EnableSMTPUTF8 = true // addresses and names in any script
	go func() { _ = o.smtp.Serve(l) }()
	return o, nil
}

func (o *outbound) close() { _ = o.smtp.Close() }

func (o *outbound) add(m *Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	m.ID, m.At = o.last, time.Now()
	m.size = len(m.Text) + len(m.HTML)
	for i := range m.Attachments {
		a := &m.Attachments[i]
		a.Size = len(a.data)
		a.URL = fmt.Sprintf("/dev/mail?id=%d&attachment=%d", m.ID, i)
		m.size += a.Size
	}
	o.messages = append(o.messages, m)
	o.bytes += m.size
	for len(o.messages) > maxMessages || o.bytes > maxMessageBytes && len(o.messages) > 1 {
		o.bytes -= o.messages[0].size
		o.messages = slices.Delete(o.messages, 0, 1)
	}
}

// session is one SMTP conversation.
type session struct {
	to   *outbound
	from string
	rcpt []string
}

func (s *session) Reset()        { s.from, s.rcpt = "", nil }
func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.rcpt = append(s.rcpt, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	m, err := readMail(r)
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "no mail as RFC 5322 has it: " + err.Error()}
	}
	m.Kind, m.From, m.To = "mail", s.from, s.rcpt
	s.to.add(m)
	return nil
}

func readMail(r io.Reader) (*Message, error) {
	mr, err := mail.CreateReader(r)
	if err != nil && !message.IsUnknownCharset(err) {
		return nil, err
	}
	defer mr.Close()
	m := &Message{Attachments: []Attachment{}}
	m.Subject, _ = mr.Header.Subject()
	for {
		p, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil && !message.IsUnknownCharset(err) {
			return nil, err
		}
		body, err := io.ReadAll(p.Body)
		if err != nil {
			return nil, err
		}
		kind, name := "", ""
		switch h := p.Header.(type) {
		case *mail.InlineHeader:
			kind, _, _ = h.ContentType()
		case *mail.AttachmentHeader:
			kind, _, _ = h.ContentType()
			name, _ = h.Filename()
		}
		switch {
		case name == "" && kind == "text/plain" && m.Text == "":
			m.Text = string(body)
		case name == "" && kind == "text/html" && m.HTML == "":
			m.HTML = string(body)
		default:
			m.Attachments = append(m.Attachments, Attachment{Name: name, Type: kind, data: body})
		}
	}
}

// sms takes what the generic provider sends: {"from","to","text"}.
func (o *outbound) sms(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		From string `json:"from"`
		To   string `json:"to"`
		Text string `json:"text"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&m); err != nil || m.To == "" || m.Text == "" {
		http.Error(w, `an SMS is {"from","to","text"}`, http.StatusBadRequest)
		return
	}
	o.add(&Message{Kind: "sms", From: m.From, To: []string{m.To}, Text: m.Text, Attachments: []Attachment{}})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte(`{"accepted":true}`))
}

// serve answers /dev/mail: JSON, or a page for a browser; ?to= chooses by
// recipient, ?id= one message, ?attachment= its file; newest first.
func (o *outbound) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id, _ := strconv.Atoi(q.Get("id"))
	o.mu.Lock()
	list := []*Message{}
	for _, m := range slices.Backward(o.messages) {
		if (id == 0 || m.ID == id) && (q.Get("to") == "" || slices.Contains(m.To, q.Get("to"))) {
			list = append(list, m)
		}
	}
	o.mu.Unlock()
	if n, err := strconv.Atoi(q.Get("attachment")); err == nil {
		if id == 0 || len(list) == 0 || n < 0 || n >= len(list[0].Attachments) {
			http.NotFound(w, r)
			return
		}
		a := list[0].Attachments[n]
		w.Header().Set("Content-Type", a.Type)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Disposition", "inline; filename*=UTF-8''"+urlPath(a.Name))
		_, _ = w.Write(a.data)
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; img-src data:")
		_ = mailPage.Execute(w, list)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"messages": list})
}

var mailPage = template.Must(template.New("mail").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Mails and SMS sent</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}
article{border-top:1px solid #999;padding:1rem 0}pre{white-space:pre-wrap;font:inherit}
iframe{width:100%;height:24rem;border:1px solid #ccc}small{color:#555}</style>
<h1>Mails and SMS sent</h1>
{{range .}}<article id="m{{.ID}}"><h2>{{if .Subject}}{{.Subject}}{{else}}{{.Kind}}{{end}}</h2>
<small>{{.Kind}} to {{range .To}}{{.}} {{end}}at {{.At.Format "15:04:05"}}</small>
<pre>{{.Text}}</pre>
{{if .HTML}}<iframe sandbox srcdoc="{{.HTML}}" title="the mail as sent"></iframe>{{end}}
<ul>{{range .Attachments}}<li><a href="{{.URL}}">{{.Name}}</a> ({{.Type}}, {{.Size}} bytes)</li>{{end}}</ul></article>
{{else}}<p>Nothing was sent yet.</p>{{end}}`))
