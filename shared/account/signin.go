package account

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/mail"
	"handler/function/shared/problem"
	"handler/function/shared/queue"
	"handler/function/shared/text"
)

// Limits of signing in (api/openapi.yaml, sign-in).
const (
	codeDigits = 6
	codeLife   = 10 * time.Minute
	codeTries  = 5

	// An address gets five mails at once and then one each 12 minutes: with five
	// tries each that is 25 guesses of a million an hour.
	addressRate, addressBurst = 1.0 / 720, 5
	// A client address is wide, as many people share one (field case 56).
	clientRate, clientBurst = 1.0, 300
	// Clients that no trusted proxy vouches for share one limit.
	unknownRate, unknownBurst = 50.0, 1000

	// signInLife is how long a token from a code lasts.
	signInLife = 7 * 24 * time.Hour
)

//go:embed signin_try.lua
var tryLua string

//go:embed signin_use.lua
var useLua string

var (
	tryScript = redis.NewScript(tryLua)
	useScript = redis.NewScript(useLua)
)

// Mailer sends one mail: *mail.Sender.
type Mailer interface {
	Send(ctx context.Context, m mail.Message) error
}

// SignIn gives account tokens to people who can read the mail of an address. It
// knows no addresses: every valid one gets the same answer.
type SignIn struct {
	keys     key.Ring
	audience string
	redis    *queue.Client
	buckets  *queue.Buckets
	mail     Mailer
	clock    clock.Clock
}

// NewSignIn makes a SignIn; keys are the ring account-key, c may be nil.
func NewSignIn(keys key.Ring, audience string, r *queue.Client, m Mailer, c clock.Clock) (*SignIn, error) {
	if len(keys.All()) == 0 || r == nil || m == nil {
		return nil, errors.New("account: signing in needs account-key, Redis and mail")
	}
	if c == nil {
		c = clock.System
	}
	return &SignIn{keys: keys, audience: audience, redis: r, buckets: queue.NewBuckets(r, c), mail: m, clock: c}, nil
}

// Ask mails a code to an address, in place of one asked for before. client is the
// caller's address, zero where unknown. Errors: invalid for no address,
// too-many-requests, unavailable while Redis or the mail server is away. An
// address that takes no mail is no error: the answer would tell who exists.
func (s *SignIn) Ask(ctx context.Context, email string, client netip.Addr, lang text.Lang) error {
	address, err := normalise(email)
	if err != nil {
		return err
	}
	if err := s.limit(ctx, client); err != nil {
		return err
	}
	hash := s.hash("address", address)
	if ok, after := s.buckets.Take(ctx, "sign-in-address:"+hash, addressRate, addressBurst); !ok {
		return tooMany(after)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return fmt.Errorf("account: code: %w", err)
	}
	code := fmt.Sprintf("%0*d", codeDigits, n)
	name := codeKey(hash)
	err = s.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Del(ctx, name)
			p.HSet(ctx, name, "code", s.hash("code", address, code), "tries", 0)
			p.PExpire(ctx, name, codeLife)
			return nil
		})
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	err = s.mail.Send(ctx, mail.Message{
		To:       address,
		Subject:  text.Sprintf(lang, "Your sign-in code"),
		Text:     text.Sprintf(lang, "Your code is %s. It is good for %d minutes. If you did not ask for it, you need do nothing.", code, int(codeLife.Minutes())) + "\n",
		ID:       "sign-in." + rand.Text() + "@holdfast",
		Language: string(lang),
	})
	if errors.Is(err, mail.ErrRefused) {
		slog.InfoContext(ctx, "sign-in: a mail was refused")
		return nil
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// Redeem turns a code into an account token. A code works once. Errors: invalid,
// bad-token for a wrong, used or ended code or after five tries,
// too-many-requests, unavailable.
func (s *SignIn) Redeem(ctx context.Context, email, code string, client netip.Addr) (string, time.Time, error) {
	address, err := normalise(email)
	if err != nil {
		return "", time.Time{}, err
	}
	if len(code) != codeDigits || strings.Trim(code, "0123456789") != "" {
		return "", time.Time{}, problem.Invalid("code", "must be six digits")
	}
	if err := s.limit(ctx, client); err != nil {
		return "", time.Time{}, err
	}
	name, given := codeKey(s.hash("address", address)), s.hash("code", address, code)
	var kept string
	err = s.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		var err error
		kept, err = tryScript.Run(ctx, rdb, []string{name}, codeTries).Text()
		return err
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", time.Time{}, unavailable(err)
	}
	// Compared even when there is none, and in constant time: both are hashes of
	// one length.
	if !hmac.Equal([]byte(kept), []byte(given)) {
		return "", time.Time{}, wrongCode()
	}
	var used int64
	err = s.redis.Do(ctx, func(ctx context.Context, rdb redis.UniversalClient) error {
		var err error
		used, err = useScript.Run(ctx, rdb, []string{name}, given).Int64()
		return err
	})
	if err != nil {
		return "", time.Time{}, unavailable(err)
	}
	if used != 1 { // another call with the same code was first
		return "", time.Time{}, wrongCode()
	}
	return Issue(s.keys, s.audience, Account{ID: IDOfAddress(address)}, s.clock.Now(), signInLife)
}

// IDOfAddress is the account of a mail address: a hash, so that accounts in logs,
// tables and lists name nobody.
func IDOfAddress(address string) string {
	sum := sha256.Sum256([]byte("holdfast account\x00" + strings.ToLower(address)))
	return "mail-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

func normalise(email string) (string, error) {
	address, ok := mail.Address(email)
	if !ok {
		return "", problem.Invalid("email", "must be a mail address")
	}
	return strings.ToLower(address), nil
}

func (s *SignIn) limit(ctx context.Context, client netip.Addr) error {
	name, rate, burst := "sign-in-client:unknown", unknownRate, unknownBurst
	if client.IsValid() {
		if client.Is6() { // one household has a whole /64
			if p, err := client.Prefix(64); err == nil {
				client = p.Addr()
			}
		}
		name, rate, burst = "sign-in-client:"+client.String(), clientRate, clientBurst
	}
	if ok, after := s.buckets.Take(ctx, name, rate, burst); !ok {
		return tooMany(after)
	}
	return nil
}

// hash keeps addresses and codes out of Redis: without the key nobody can try
// the million codes.
func (s *SignIn) hash(parts ...string) string {
	h := hmac.New(sha256.New, s.keys.Sign().Bytes)
	h.Write([]byte("holdfast sign-in"))
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func codeKey(hash string) string { return queue.Key("sign-in:"+hash, "code") }

func wrongCode() error {
	return problem.New(problem.BadToken, "The code is not right or has ended. Ask for a new one")
}

func tooMany(after time.Duration) error {
	return problem.New(problem.TooManyRequests, "Too many tries. Please wait before you ask again").After(after)
}

func unavailable(err error) error {
	return problem.New(problem.Unavailable, "We cannot send mail at the moment. Please try again soon").After(5 * time.Second).Because(err)
}
