package sandboxgw

import (
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strconv"

	"handler/function/shared/money"
	"handler/function/shared/payment"
	"handler/function/shared/sandbox"
)

//go:embed *.html
var pageFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"money": func(n int64, currency string) string { return money.Amount{Amount: n, Currency: currency}.String() },
}).ParseFS(pageFiles, "*.html"))

// button is one thing a person can make a payment do.
type button struct{ Do, Label string }

var (
	payerButtons = []button{{"succeed", "Pay"}, {"fail", "Decline"}, {"pend", "Leave it pending"}, {"late", "Pay in 10 seconds"}}
	allButtons   = []button{{"succeed", "succeed"}, {"fail", "fail"}, {"pend", "pend"}, {"late", "late"},
		{"twice", "twice"}, {"disorder", "out of order"}, {"fail-succeed", "fail, then succeed"}, {"cancel", "cancel"}}
)

func (s *Server) pages() {
	s.mux.HandleFunc("GET /{$}", s.home)
	s.mux.HandleFunc("GET /pay/{ref}", s.payPage)
	s.mux.HandleFunc("POST /pay/{ref}", s.payForm)
	s.mux.HandleFunc("POST /faults", s.faultsForm)
}

func (s *Server) home(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	all, faults := s.newest(), s.faults
	s.mu.Unlock()
	show(w, "home.html", map[string]any{
		"Base": s.conf.URL, "Payments": all, "Buttons": allButtons, "Faults": faults, "Sent": s.hooks.sent(),
		"Autos": []string{"", "succeed", "fail", "pend"},
	})
}

func (s *Server) payPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	rec, err := s.state.find(r.PathValue("ref"))
	var p sandbox.Payment
	if err == nil {
		p = s.shown(rec)
	}
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	open := p.Status == payment.Pending || p.Status == payment.Failed
	show(w, "pay.html", map[string]any{"Base": s.conf.URL, "P": p, "Open": open, "Buttons": payerButtons, "Back": back(p)})
}

// payForm is a button pressed: on the payer's page it leads back to the shop.
func (s *Server) payForm(w http.ResponseWriter, r *http.Request) {
	ref := r.PathValue("ref")
	a := Act{Do: r.FormValue("do")}
	if a.Do == "late" {
		a.Do, a.DelayMS = "succeed", int(lateAfter.Milliseconds())
		s.do(ref, a)
	} else if err := s.now(ref, a, false); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	s.mu.Lock()
	rec, err := s.state.find(ref)
	var p sandbox.Payment
	if err == nil {
		p = s.shown(rec)
	}
	s.mu.Unlock()
	if to := back(p); err == nil && to != "" && r.FormValue("home") == "" {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, s.conf.URL+"/", http.StatusSeeOther)
}

// back is where the payer goes afterwards: the shop's return address with our
// payment id in the query, as real gateways add theirs.
func back(p sandbox.Payment) string {
	u, err := url.Parse(p.ReturnURL)
	if p.ReturnURL == "" || err != nil {
		return ""
	}
	if id := p.Metadata[sandbox.MetadataPayment]; id != "" {
		q := u.Query()
		q.Set("payment", id)
		u.RawQuery = q.Encode()
	}
	return u.String()
}

func (s *Server) faultsForm(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int {
		n, _ := strconv.Atoi(r.FormValue(name))
		return max(n, 0)
	}
	auto := r.FormValue("auto")
	switch auto {
	case "", "succeed", "fail", "pend":
	default:
		auto = ""
	}
	s.SetFaults(Faults{
		Auto: auto, Early: r.FormValue("early") != "", DelayMS: number("delay_ms"), AnswerDelayMS: number("answer_delay_ms"),
		TimeOut: number("time_out"), LoseWebhooks: number("lose_webhooks"), TwiceWebhooks: number("twice_webhooks"),
		RefuseCreate: number("refuse_create"), RefuseCapture: number("refuse_capture"), RefuseRefund: number("refuse_refund"),
		Down: r.FormValue("down") != "", NoMetadata: r.FormValue("no_metadata") != "", WholeOnly: r.FormValue("whole_only") != "",
	})
	http.Redirect(w, r, s.conf.URL+"/", http.StatusSeeOther)
}

func show(w http.ResponseWriter, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err := pages.ExecuteTemplate(w, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
