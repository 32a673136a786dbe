// Package key reads secret keys that can be rotated: a file with one key a
// line, `kid:hex`. The first line signs, every line verifies.
package key

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is one secret with the id (kid) that tokens name it by.
type Key struct {
	ID    string
	Bytes []byte
}

// Ring is 1 to 16 keys, the signing one first.
type Ring struct{ keys []Key }

// Parse reads a key file. Blank lines and lines starting with # are skipped.
// A kid is 1 to 32 characters of a-z, 0-9 and '-'; a key is 32 to 64 bytes.
func Parse(file string) (Ring, error) {
	var r Ring
	for i, line := range strings.Split(file, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kid, hexed, ok := strings.Cut(line, ":")
		b, err := hex.DecodeString(hexed)
		if !ok || err != nil || !validID(kid) || len(b) < 32 || len(b) > 64 {
			return Ring{}, fmt.Errorf("key: line %d must be kid:hex with a key of 32 to 64 bytes", i+1)
		}
		if _, dup := r.Find(kid); dup {
			return Ring{}, fmt.Errorf("key: line %d repeats the kid %s", i+1, kid)
		}
		r.keys = append(r.keys, Key{ID: kid, Bytes: b})
	}
	if len(r.keys) == 0 || len(r.keys) > 16 {
		return Ring{}, fmt.Errorf("key: a key file has 1 to 16 keys, this one has %d", len(r.keys))
	}
	return r, nil
}

func validID(s string) bool {
	if len(s) == 0 || len(s) > 32 {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// Sign is the key that signs.
func (r Ring) Sign() Key { return r.keys[0] }

// Find is the key with this id.
func (r Ring) Find(kid string) (Key, bool) {
	for _, k := range r.keys {
		if k.ID == kid {
			return k, true
		}
	}
	return Key{}, false
}

// All is every key, the signing one first.
func (r Ring) All() []Key { return r.keys }
