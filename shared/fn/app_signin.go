package fn

import (
	"handler/function/shared/account"
	"handler/function/shared/mail"
)

// Mail sends mail, as the secret smtp-url says. nil without that secret.
func (a *App) Mail() (*mail.Sender, error) {
	return once(a, "mail", func() (*mail.Sender, error) {
		url, err := a.OptionalSecret("smtp-url")
		if err != nil || url == "" {
			return nil, err
		}
		return mail.New(url)
	})
}

// SignIn gives account tokens for codes sent by mail.
func (a *App) SignIn() (*account.SignIn, error) {
	return once(a, "sign-in", func() (*account.SignIn, error) {
		ring, err := a.Keys("account-key")
		if err != nil {
			return nil, err
		}
		redis, err := a.Redis()
		if err != nil {
			return nil, err
		}
		url, err := a.Secret("smtp-url")
		if err != nil {
			return nil, err
		}
		sender, err := mail.New(url)
		if err != nil {
			return nil, err
		}
		return account.NewSignIn(ring, a.Config.Audience, redis, sender, nil)
	})
}
