package platform

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"handler/function/shared/account"
	"handler/function/shared/key"
)

// tokenLife is how long a token of /dev/token and `holdfast token` lasts.
const tokenLife = 12 * time.Hour

// Token makes an account token for a platform whose secrets are in the folder.
func Token(secrets, audience, name string, role account.Role, org string) (string, time.Time, error) {
	switch role {
	case account.Customer, account.Organiser, account.Seller, account.Gate:
	default:
		return "", time.Time{}, fmt.Errorf("role must be organiser, seller, gate or none, not %q", role)
	}
	file, err := os.ReadFile(filepath.Join(secrets, "account-key"))
	if err != nil {
		return "", time.Time{}, err
	}
	ring, err := key.Parse(string(file))
	if err != nil {
		return "", time.Time{}, err
	}
	return account.Issue(ring, audience, account.Account{ID: name, Role: role, Org: org}, time.Now(), tokenLife)
}

// devToken answers /dev/token?account=A&role=.
func (p *Running) devToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name := q.Get("account")
	if name == "" {
		http.Error(w, "/dev/token?account=NAME&role=organiser|seller|gate", http.StatusBadRequest)
		return
	}
	token, expires, err := Token(p.Secrets, p.audience, name, account.Role(q.Get("role")), q.Get("org"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"account": name, "role": q.Get("role"), "account_token": token, "expires_at": expires,
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func urlPath(s string) string { return url.PathEscape(s) }
