// Package signin tries signing in on a real Redis and an SMTP server.
package signin

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	handler "github.com/openfaas/templates-sdk/go-http"

	function "handler/function/functions/sign-in"
	"handler/function/shared/account"
	"handler/function/shared/fn"
	"handler/function/shared/key"
	"handler/function/shared/mail"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/text"
	"handler/function/tests/contract"
	"handler/function/tests/harness"
)

var sixDigits = regexp.MustCompile(`\b[0-9]{6}\b`)

type world struct {
	*testing.T
	keys  key.Ring
	smtp  *harness.SMTPServer
	redis *harness.RedisServer
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	ring, err := key.Parse("a1:" + strings.Repeat("cd", 32))
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, keys: ring, smtp: harness.SMTP(t), redis: harness.Redis(t)}
}

// replica is a process of its own: its own limits, the same Redis.
func (w *world) replica() *account.SignIn {
	w.Helper()
	sender, err := mail.New(w.smtp.URL)
	if err != nil {
		w.Fatal(err)
	}
	s, err := account.NewSignIn(w.keys, "", queue.New(w.redis.Client), sender, nil)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

var here = netip.MustParseAddr("203.0.113.7")

// ask asks for a code and reads it from the newest mail.
func (w *world) ask(s *account.SignIn, address string) string {
	w.Helper()
	before := len(w.smtp.Mails(address))
	if err := s.Ask(w.Context(), address, here, text.English); err != nil {
		w.Fatal(err)
	}
	mails := w.smtp.Mails(address)
	if len(mails) != before+1 {
		w.Fatalf("%d mails", len(mails))
	}
	return sixDigits.FindString(mails[len(mails)-1].Text)
}

func (w *world) refused(s *account.SignIn, address, code string) {
	w.Helper()
	if _, _, err := s.Redeem(w.Context(), address, code, here); !problem.Is(err, problem.BadToken) {
		w.Errorf("code %s of %s: %v", code, address, err)
	}
}

// wrong is a code that is not the given one.
func wrong(code string, n int) string {
	b := []byte(code)
	b[5] = '0' + (b[5]-'0'+byte(n))%10
	return string(b)
}

func TestCodeWorksOnce(t *testing.T) {
	w := setup(t)
	one, other := w.replica(), w.replica()
	code := w.ask(one, "ana@example.org")
	w.refused(other, "bob@example.org", code)
	token, expires, err := other.Redeem(t.Context(), " Ana@Example.org ", code, here)
	if err != nil {
		t.Fatal(err)
	}
	v, err := account.NewVerifier(t.Context(), account.Options{Keys: w.keys})
	if err != nil {
		t.Fatal(err)
	}
	a, err := v.Verify("Bearer " + token)
	if err != nil || a.ID != account.IDOfAddress("ana@example.org") || a.Role != account.Customer || !a.Expires.Equal(expires) {
		t.Errorf("%+v, %v", a, err)
	}
	w.refused(one, "ana@example.org", code)
}

func TestParallelUseOfOneCode(t *testing.T) {
	w := setup(t)
	s := w.replica()
	code := w.ask(s, "ana@example.org")
	var mu sync.Mutex
	var wait sync.WaitGroup
	tokens := 0
	for range 5 {
		wait.Go(func() {
			if _, _, err := s.Redeem(t.Context(), "ana@example.org", code, here); err == nil {
				mu.Lock()
				defer mu.Unlock()
				tokens++
			}
		})
	}
	wait.Wait()
	if tokens != 1 {
		t.Errorf("%d tokens of one code", tokens)
	}
}

func TestFiveTries(t *testing.T) {
	w := setup(t)
	s := w.replica()
	code := w.ask(s, "ana@example.org")
	for n := range 5 {
		w.refused(s, "ana@example.org", wrong(code, n+1))
	}
	w.refused(s, "ana@example.org", code)
	// Four wrong ones leave the fifth try.
	code = w.ask(s, "ana@example.org")
	for n := range 4 {
		w.refused(s, "ana@example.org", wrong(code, n+1))
	}
	if _, _, err := s.Redeem(t.Context(), "ana@example.org", code, here); err != nil {
		t.Error(err)
	}
}

func TestNewCodeReplacesOld(t *testing.T) {
	w := setup(t)
	s := w.replica()
	old := w.ask(s, "ana@example.org")
	code := w.ask(s, "ana@example.org")
	if old != code {
		w.refused(s, "ana@example.org", old)
	}
	if _, _, err := s.Redeem(t.Context(), "ana@example.org", code, here); err != nil {
		t.Error(err)
	}
}

func TestCodeEnds(t *testing.T) {
	w := setup(t)
	s := w.replica()
	w.ask(s, "ana@example.org")
	keys, err := w.redis.Client.Keys(t.Context(), "*sign-in:*:code").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", keys, err)
	}
	if left := w.redis.Client.PTTL(t.Context(), keys[0]).Val(); left > 10*time.Minute || left < 9*time.Minute {
		t.Errorf("a code lasts %s", left)
	}
}

// Neither the address nor the code can be read in Redis.
func TestNothingToReadInRedis(t *testing.T) {
	w := setup(t)
	code := w.ask(w.replica(), "ana@example.org")
	keys, _ := w.redis.Client.Keys(t.Context(), "*").Result()
	for _, k := range keys {
		all := k
		if w.redis.Client.Type(t.Context(), k).Val() == "hash" {
			for f, v := range w.redis.Client.HGetAll(t.Context(), k).Val() {
				all += " " + f + " " + v
			}
		}
		// A hash may hold the six digits by chance in its 64, as a word it does not.
		if strings.Contains(all, "ana") || strings.Contains(all, "example") || regexp.MustCompile(`\b`+code+`\b`).MatchString(all) {
			t.Errorf("%s", all)
		}
	}
}

// An address gets five mails, then none for a while, whichever replica is asked;
// another address does not suffer.
func TestLimitOfAddress(t *testing.T) {
	w := setup(t)
	replicas := []*account.SignIn{w.replica(), w.replica()}
	for i := range 5 {
		w.ask(replicas[i%2], "ana@example.org")
	}
	for _, s := range replicas {
		err := s.Ask(t.Context(), "ANA@example.org", netip.Addr{}, text.English)
		if !problem.Is(err, problem.TooManyRequests) || problem.From(err).RetryAfter <= 0 {
			t.Errorf("%v", err)
		}
	}
	if n := len(w.smtp.Mails("ana@example.org")); n != 5 {
		t.Errorf("%d mails", n)
	}
	w.ask(replicas[0], "bob@example.org")
}

// Two hundred people behind one address may all sign in (field case 56); a client
// that tries without end may not.
func TestLimitOfClient(t *testing.T) {
	w := setup(t)
	s := w.replica()
	refusedAt := 0
	for i := range 400 {
		_, _, err := s.Redeem(t.Context(), "nobody@example.org", "123456", here)
		if problem.Is(err, problem.TooManyRequests) {
			refusedAt = i
			break
		}
	}
	if refusedAt < 200 || refusedAt > 350 {
		t.Errorf("refused after %d", refusedAt)
	}
}

// The answer does not tell whether an address exists.
func TestSameAnswer(t *testing.T) {
	w := setup(t)
	s := w.replica()
	w.smtp.Refuse(func(to string) error {
		if to == "nobody@example.org" {
			return harness.ForGood()
		}
		return nil
	})
	for _, to := range []string{"ana@example.org", "nobody@example.org"} {
		if err := s.Ask(t.Context(), to, here, text.English); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestThingsAway(t *testing.T) {
	w := setup(t)
	s := w.replica()
	w.smtp.Refuse(func(string) error { return harness.Temporarily() })
	if err := s.Ask(t.Context(), "ana@example.org", here, text.English); !problem.Is(err, problem.Unavailable) {
		t.Errorf("mail away: %v", err)
	}
	w.smtp.Refuse(nil)
	w.redis.Kill()
	if err := s.Ask(t.Context(), "ana@example.org", here, text.English); !problem.Is(err, problem.Unavailable) {
		t.Errorf("Redis away: %v", err)
	}
	if _, _, err := s.Redeem(t.Context(), "ana@example.org", "123456", here); !problem.Is(err, problem.Unavailable) {
		t.Errorf("Redis away: %v", err)
	}
	// The replica's own limits hold (field case 58).
	for range 10 {
		_ = s.Ask(t.Context(), "ana@example.org", here, text.English)
	}
	if err := s.Ask(t.Context(), "ana@example.org", here, text.English); !problem.Is(err, problem.TooManyRequests) {
		t.Errorf("a flood while Redis is away: %v", err)
	}
}

// The function as it is called.
func TestFunction(t *testing.T) {
	w := setup(t)
	secrets := harness.Secrets(t, nil, w.redis, nil)
	if err := os.WriteFile(filepath.Join(secrets, "smtp-url"), []byte(w.smtp.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fn.SetDefault(fn.NewApp(fn.Config{Secrets: secrets, Test: true}))
	call := func(body string) (int, map[string]any) {
		res := contract.Call(t, "sign-in", function.Handle, handler.Request{Method: "POST", Body: []byte(body), Header: map[string][]string{"Accept-Language": {"zh"}}})
		var v map[string]any
		if err := json.Unmarshal(res.Body, &v); err != nil {
			t.Fatalf("%s: %v", res.Body, err)
		}
		return res.StatusCode, v
	}
	status, v := call(`{"email":"ana@example.org"}`)
	if status != 202 || v["sent"] != true || len(v) != 1 {
		t.Errorf("%d %v", status, v)
	}
	m := w.smtp.Mails("ana@example.org")
	if len(m) != 1 || m[0].Subject != "您的登录验证码" {
		t.Fatalf("%+v", m)
	}
	status, v = call(`{"email":"ana@example.org","code":"` + sixDigits.FindString(m[0].Text) + `"}`)
	expires, err := time.Parse(time.RFC3339, v["expires_at"].(string))
	if status != 200 || v["account_token"] == "" || len(v) != 2 || err != nil || time.Until(expires) < time.Hour {
		t.Errorf("%d %v", status, v)
	}
	for body, want := range map[string]string{
		`{"email":"ana"}`: "invalid",
		`{}`:              "invalid",
		`{"email":"ana@example.org","code":"12345"}`:          "invalid",
		`{"email":"ana@example.org","code":""}`:               "invalid",
		`{"email":"ana@example.org","code":"１２３４５６"}`:         "invalid",
		`{"email":"ana@example.org","code":"123456"}`:         "bad-token",
		`{"email":"ana@example.org","phone":"1"}`:             "bad-request",
		`{"email":["ana@example.org"]}`:                       "bad-request",
		`{"email":"ana@example.org\r\nBcc: eve@example.org"}`: "invalid",
		`{"email":"ana@example.org, eve@example.org"}`:        "invalid",
		`not JSON`: "bad-request",
	} {
		if _, v := call(body); v["code"] != want {
			t.Errorf("%s: %v", body, v)
		}
	}
}
