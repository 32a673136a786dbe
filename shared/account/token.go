package account

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/maypok86/otter/v2"

	"handler/function/shared/clock"
	"handler/function/shared/key"
	"handler/function/shared/problem"
)

const (
	// DefaultAudience is the `aud` of account tokens when none is configured.
	DefaultAudience = "holdfast"

	// tokenType is the `typ` header of the account tokens we make. Place and
	// admit tokens have types of their own, so none passes for another.
	tokenType = "account+jwt"

	// maxTokenBytes bounds the work a forged header can cause. Tokens of ours
	// have about 250 bytes, those of providers rarely more than 2,000.
	maxTokenBytes = 8 << 10

	// cachedTokens bounds the memory for verified tokens: about 300 bytes each.
	cachedTokens = 50_000

	// cachedFor bounds how long a token outlives the withdrawal of its key.
	cachedFor = 5 * time.Minute

	// leeway is the clock difference allowed to an identity provider for `nbf`
	// and `iat`; `exp` has none.
	leeway = 30 * time.Second

	// jwksTimeout bounds one fetch of the provider's keys.
	jwksTimeout = 5 * time.Second
)

// providerMethods are the algorithms accepted from an identity provider.
// HMAC is not among them: a public key must never verify as a secret.
var providerMethods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// providerTypes are the `typ` headers accepted from an identity provider: RFC
// 9068's, and the plain one most still send.
var providerTypes = []string{"at+jwt", "application/at+jwt", "jwt"}

type claims struct {
	jwt.RegisteredClaims
	Role string `json:"role,omitempty"`
	Org  string `json:"org,omitempty"`
}

// Options configure a Verifier. At least one of Keys and JWKS must be given.
type Options struct {
	// Keys verify tokens we made ourselves (HS256, by `kid`).
	Keys key.Ring
	// JWKS is the address of an identity provider's key set; empty for none.
	JWKS string
	// Audience is the required `aud`; DefaultAudience if empty.
	Audience string
	// Clock is clock.System if nil.
	Clock clock.Clock
}

// Verifier verifies account tokens. It is safe for concurrent use and remembers
// what it verified, so that a poll costs a hash and not a signature.
type Verifier struct {
	keys     key.Ring
	provider keyfunc.Keyfunc
	clock    clock.Clock
	ours     *jwt.Parser
	theirs   *jwt.Parser
	seen     *otter.Cache[[sha256.Size]byte, Account]
}

// NewVerifier makes a Verifier. With a JWKS it fetches the keys in the
// background and again when they change or an unknown `kid` comes; ctx ends that.
// An unreachable provider is not an error here: its tokens are refused until its
// keys have come.
func NewVerifier(ctx context.Context, o Options) (*Verifier, error) {
	if len(o.Keys.All()) == 0 && o.JWKS == "" {
		return nil, errors.New("account: neither the secret account-key nor HOLDFAST_ACCOUNT_JWKS is set")
	}
	if o.Audience == "" {
		o.Audience = DefaultAudience
	}
	if o.Clock == nil {
		o.Clock = clock.System
	}
	common := []jwt.ParserOption{
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(o.Clock.Now),
	}
	v := &Verifier{
		keys:   o.Keys,
		clock:  o.Clock,
		ours:   jwt.NewParser(append(slices.Clone(common), jwt.WithValidMethods([]string{"HS256"}))...),
		theirs: jwt.NewParser(append(slices.Clone(common), jwt.WithValidMethods(providerMethods), jwt.WithLeeway(leeway))...),
	}
	if o.JWKS != "" {
		provider, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{o.JWKS}, keyfunc.Override{
			Client:      &http.Client{Timeout: jwksTimeout},
			HTTPTimeout: jwksTimeout,
		})
		if err != nil {
			return nil, fmt.Errorf("account: key set %s: %w", o.JWKS, err)
		}
		v.provider = provider
	}
	seen, err := otter.New(&otter.Options[[sha256.Size]byte, Account]{
		MaximumSize:      cachedTokens,
		ExpiryCalculator: otter.ExpiryWriting[[sha256.Size]byte, Account](cachedFor),
	})
	if err != nil {
		return nil, fmt.Errorf("account: cache: %w", err)
	}
	v.seen = seen
	return v, nil
}

// Verify reads the value of an Authorization header and returns the account it
// names. Without a bearer token it returns `unauthenticated`; with a forged,
// ended or other kind of token `bad-token`.
func (v *Verifier) Verify(bearer string) (Account, error) {
	token, ok := bearerToken(bearer)
	if !ok {
		return Account{}, problem.New(problem.Unauthenticated, "Please sign in")
	}
	if len(token) > maxTokenBytes {
		return Account{}, badToken()
	}
	digest := sha256.Sum256([]byte(token))
	if a, ok := v.seen.GetIfPresent(digest); ok {
		if v.clock.Now().Before(a.Expires) {
			return a, nil
		}
		v.seen.Invalidate(digest)
		return Account{}, badToken()
	}
	a, err := v.parse(token)
	if err != nil {
		return Account{}, badToken()
	}
	v.seen.Set(digest, a)
	return a, nil
}

// parse checks signature, type, audience, times and name. The algorithm chooses
// the kind of key, and each parser accepts its own algorithms alone.
func (v *Verifier) parse(token string) (Account, error) {
	var c claims
	alg, err := algorithm(token)
	if err != nil {
		return Account{}, err
	}
	parser, keys, types := v.ours, v.ownKey, []string{tokenType}
	if alg != "HS256" {
		parser, keys, types = v.theirs, v.providerKey, providerTypes
	}
	parsed, err := parser.ParseWithClaims(token, &c, keys)
	if err != nil {
		return Account{}, err
	}
	typ, _ := parsed.Header["typ"].(string)
	if !slices.Contains(types, strings.ToLower(typ)) {
		return Account{}, fmt.Errorf("account: typ %q", typ)
	}
	// The parser's leeway is for clocks that run ahead; an end is an end.
	if !v.clock.Now().Before(c.ExpiresAt.Time) {
		return Account{}, jwt.ErrTokenExpired
	}
	if !ValidID(c.Subject) {
		return Account{}, errors.New("account: sub")
	}
	a := Account{ID: c.Subject, Expires: c.ExpiresAt.Time}
	if r := Role(c.Role); r == Organiser || r == Seller || r == Gate {
		a.Role, a.Org = r, c.Org
	}
	return a, nil
}

// algorithm is what the header says, unverified: it only chooses the parser.
func algorithm(token string) (string, error) {
	head, _, _ := strings.Cut(token, ".")
	plain, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return "", err
	}
	var h struct {
		Alg string `json:"alg"`
	}
	err = json.Unmarshal(plain, &h)
	return h.Alg, err
}

func (v *Verifier) ownKey(t *jwt.Token) (any, error) {
	kid, _ := t.Header["kid"].(string)
	k, ok := v.keys.Find(kid)
	if !ok {
		return nil, errors.New("account: unknown kid")
	}
	return k.Bytes, nil
}

func (v *Verifier) providerKey(t *jwt.Token) (any, error) {
	if v.provider == nil {
		return nil, errors.New("account: no identity provider is configured")
	}
	return v.provider.Keyfunc(t)
}

// Issue makes an account token signed with the ring's first key. It ends at
// now + life. The caller has made sure that the account is who it says.
func Issue(keys key.Ring, audience string, a Account, now time.Time, life time.Duration) (string, time.Time, error) {
	if !ValidID(a.ID) {
		return "", time.Time{}, problem.Invalid("account", "an account is 1 to 128 characters, without control characters")
	}
	if audience == "" {
		audience = DefaultAudience
	}
	if len(keys.All()) == 0 {
		return "", time.Time{}, errors.New("account: the secret account-key is not set")
	}
	signer := keys.Sign()
	expires := now.Add(life).Truncate(time.Second)
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject:   a.ID,
			Audience:  jwt.ClaimStrings{audience},
			IssuedAt:  jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(expires),
		},
		Role: string(a.Role),
		Org:  a.Org,
	})
	t.Header["kid"] = signer.ID
	t.Header["typ"] = tokenType
	signed, err := t.SignedString(signer.Bytes)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("account: %w", err)
	}
	return signed, expires, nil
}

func bearerToken(header string) (string, bool) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(header), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

func badToken() error {
	return problem.New(problem.BadToken, "Your sign-in has ended or is not valid. Please sign in again")
}
