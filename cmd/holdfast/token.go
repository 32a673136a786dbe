package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"handler/function/cmd/holdfast/platform"
	"handler/function/shared/account"
)

// tokenCmd makes an account token with the key of a local platform. It needs
// the platform's folder, not the platform.
type tokenCmd struct {
	Account string `required:"" help:"The account's name (sub), 1 to 128 characters."`
	Role    string `help:"organiser, seller or gate; none for a customer."`
	Org     string `help:"The organisation the role is for."`
	Data    string `default:"${data}" help:"The platform's data folder." type:"path"`
	Secrets string `help:"A folder of secrets in place of the platform's." type:"path"`
}

type tokenResult struct {
	Account string `json:"account"`
	Role    string `json:"role"`
	Token   string `json:"account_token"`
	Expires string `json:"expires_at"`
}

func (c *tokenCmd) Run(out *output) error {
	secrets := c.Secrets
	if secrets == "" {
		secrets = filepath.Join(c.Data, "secrets")
	}
	token, expires, err := platform.Token(secrets, os.Getenv("HOLDFAST_ACCOUNT_AUDIENCE"), c.Account, account.Role(c.Role), c.Org)
	if err != nil {
		return err
	}
	r := tokenResult{c.Account, c.Role, token, expires.UTC().Format("2006-01-02T15:04:05Z07:00")}
	return out.result(r, func(w io.Writer) { fmt.Fprintln(w, r.Token) })
}
