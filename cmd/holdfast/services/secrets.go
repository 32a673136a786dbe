package services

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Keys are the secrets that are random and kept: a key file of one line,
// `kid:hex` with 32 bytes (of ticket-key: the seed of an Ed25519 key).
var Keys = []string{"account-key", "room-key", "id-key", "draw-secret", "ticket-key", "sandbox-key"}

// Addresses are the secrets that say where a service is.
type Addresses struct {
	Postgres string // of the application's role
	Redis    string
	NATS     string
	SMTP     string // smtp://127.0.0.1:PORT
	SMS      string // http://127.0.0.1:PORT/...
}

// WriteSecrets writes the folder of secret files that functions read: keys that
// are there stay as they are, addresses are written anew.
func WriteSecrets(dir string, a Addresses) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range Keys {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			continue
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		raw := make([]byte, 32)
		if _, err := rand.Read(raw); err != nil {
			return err
		}
		if err := writeSecret(file, "k1:"+hex.EncodeToString(raw)); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{
		"postgres-url": a.Postgres, "redis-url": a.Redis, "nats-url": a.NATS,
		"smtp-url": a.SMTP, "sms-url": a.SMS,
	} {
		if err := writeSecret(filepath.Join(dir, name), value); err != nil {
			return err
		}
	}
	return nil
}

func writeSecret(file, value string) error {
	if err := os.WriteFile(file+".new", []byte(value+"\n"), 0o600); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return os.Rename(file+".new", file)
}
