package function

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"handler/function/shared/fn"
	"handler/function/shared/problem"
	"handler/function/shared/text"
)

//go:embed static
var files embed.FS

// parameters are what a page's address may carry: its own name and language,
// the search, the choice, and what payment gateways add to a return address.
var parameters = []string{
	"page", "lang",
	"kind", "date", "from", "to", "q", "cursor",
	"sale", "class", "quantity", "join", "standby", "booking", "order", "locator", "payment", "new", "next",
	"payment_intent", "payment_intent_client_secret", "redirect_status",
}

// titles are the pages and the text that is their title; each has a script of
// its name. "missing" is shown, with 404, for any other name.
var titles = map[string]string{
	"home": "home.title", "sale": "sale.title", "signin": "signin.title", "room": "room.title", "seats": "seats.title",
	"pay": "pay.title", "standby": "standby.title", "order": "order.title",
	"booking": "booking.title", "bookings": "bookings.title", "organiser": "organiser.title",
	"missing": "missing.title",
}

// tags are the languages of the pages.
var tags = []text.Lang{text.English, text.Chinese}

// security goes with every document: nothing is loaded from elsewhere, no
// script or style stands in a page, no other site frames one. Addresses hold
// booking ids, so none is passed on.
var security = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
}

const (
	// A file of this version never changes under its address.
	cacheAsset = "public, max-age=31536000, immutable"
	// A file asked for by the version of another replica, while a new one rolls
	// out: it may be the wrong text for that address and must not stay.
	cacheOther = "no-store"
	// Pages are the same for everybody, so that a CDN can carry a crowd.
	cachePage = "public, max-age=60"
)

// document is one answer, made once: the body as it is and compressed.
type document struct {
	status      int
	contentType string
	body, small []byte
	etag        string
	cache       string
	vary        string
}

func newDocument(status int, contentType, cache, vary string, body []byte) document {
	sum := sha256.Sum256(body)
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is a constant and right
	_, _ = z.Write(body)                                  // a buffer takes everything
	_ = z.Close()
	return document{status: status, contentType: contentType, body: body, small: b.Bytes(), etag: `"` + hex.EncodeToString(sum[:8]) + `"`, cache: cache, vary: vary}
}

// answer is the response to one caller: 304 where they have it already.
func (d document) answer(ifNoneMatch string, zip bool) fn.Response {
	res := fn.Response{Status: d.status, Header: http.Header{}}
	for name, value := range security {
		res.Header.Set(name, value)
	}
	res.Header.Set("Cache-Control", d.cache)
	res.Header.Set("Vary", d.vary)
	// Weak: the compressed body is another sequence of bytes.
	etag := "W/" + d.etag
	res.Header.Set("ETag", etag)
	if d.status == http.StatusOK && strings.Contains(ifNoneMatch, d.etag) {
		res.Status = http.StatusNotModified
		return res
	}
	res.Header.Set("Content-Type", d.contentType)
	res.Body = d.body
	if zip && len(d.small) < len(d.body) {
		res.Header.Set("Content-Encoding", "gzip")
		res.Body = d.small
	}
	res.Header.Set("Content-Length", strconv.Itoa(len(res.Body)))
	return res
}

// site is all pages and assets, ready to send.
type site struct {
	version string
	assets  map[string]document
	pages   map[string]map[text.Lang]document
}

// page is a page by name, the first one without a name.
func (s *site) page(name string, lang text.Lang) document {
	if name == "" {
		name = "home"
	}
	if _, ok := s.pages[name]; !ok {
		name = "missing"
	}
	return s.pages[name][lang]
}

// asset is a file by name; not-found for any other. Any version of the address
// gets this version's file.
func (s *site) asset(name, version string) (document, error) {
	d, ok := s.assets[name]
	if !ok {
		return document{}, problem.New(problem.NotFound, "There is no such file.")
	}
	if version != s.version {
		d.cache = cacheOther
	}
	return d, nil
}

func (s *site) address(asset string) (string, error) {
	if _, ok := s.assets[asset]; !ok {
		return "", fmt.Errorf("web: no asset %s", asset)
	}
	return "web?asset=" + asset + "&v=" + s.version, nil
}

// importLine is the address in an import statement of a module.
var importLine = regexp.MustCompile(`(from ")\./([a-z-]+\.js)(")`)

// newSite reads the files below static/ and renders every page in every
// language. The version is a hash of everything, so a file's address changes
// with any of them: modules import each other, and no page mixes two versions.
func newSite(all fs.FS) (*site, error) {
	s := &site{assets: map[string]document{}, pages: map[string]map[text.Lang]document{}}
	raw := map[string][]byte{}
	hash := sha256.New()
	err := fs.WalkDir(all, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := fs.ReadFile(all, name)
		raw[strings.TrimPrefix(name, "static/")] = b
		fmt.Fprintf(hash, "%s %d\n", name, len(b))
		hash.Write(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.version = hex.EncodeToString(hash.Sum(nil)[:6])

	texts := map[text.Lang]map[string]string{}
	for _, tag := range tags {
		name := "text/" + string(tag) + ".json"
		var m map[string]string
		if err := json.Unmarshal(raw[name], &m); err != nil {
			return nil, fmt.Errorf("web: %s: %w", name, err)
		}
		texts[tag] = m
		body := append([]byte("export default "), raw[name]...)
		s.assets[textsOf(tag)] = newDocument(http.StatusOK, "text/javascript; charset=utf-8", cacheAsset, "Accept-Encoding", body)
	}
	for name, body := range raw {
		kind := contentTypes[path.Ext(name)]
		if kind == "" || strings.HasPrefix(name, "text/") || strings.HasPrefix(name, "page/") {
			continue
		}
		body = importLine.ReplaceAll(body, []byte("${1}./web?asset=${2}&v="+s.version+"${3}"))
		s.assets[path.Base(name)] = newDocument(http.StatusOK, kind, cacheAsset, "Accept-Encoding", body)
	}
	for name := range titles {
		s.pages[name] = map[text.Lang]document{}
		for _, tag := range tags {
			d, err := s.render(name, tag, texts[tag], raw)
			if err != nil {
				return nil, fmt.Errorf("web: page %s: %w", name, err)
			}
			s.pages[name][tag] = d
		}
	}
	return s, nil
}

var contentTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

func textsOf(tag text.Lang) string { return "text-" + string(tag) + ".js" }

func (s *site) render(name string, tag text.Lang, texts map[string]string, raw map[string][]byte) (document, error) {
	t := template.New(name).Funcs(template.FuncMap{
		"asset": s.address,
		"t": func(key string) (string, error) {
			if texts[key] == "" {
				return "", errors.New("no text " + key)
			}
			return texts[key], nil
		},
	})
	if _, err := t.Parse(string(raw["page/layout.html"])); err != nil {
		return document{}, err
	}
	if _, err := t.Parse(string(raw["page/"+name+".html"])); err != nil {
		return document{}, err
	}
	other := tags[0]
	if tag == other {
		other = tags[1]
	}
	script := name + ".js"
	status := http.StatusOK
	if name == "missing" {
		script, status = "ui.js", http.StatusNotFound
	}
	var b bytes.Buffer
	err := t.Execute(&b, map[string]string{
		"Name": name, "Tag": string(tag), "Other": string(other), "Title": titles[name], "Script": script, "Texts": textsOf(tag),
	})
	if err != nil {
		return document{}, err
	}
	return newDocument(status, "text/html; charset=utf-8", cachePage, "Accept-Language, Cookie, Accept-Encoding", b.Bytes()), nil
}

// language is what the address says, else what the reader chose before, else
// what the browser prefers. A language without texts is a bad-request.
func language(r *fn.Request) (text.Lang, error) {
	if asked := r.Query.Get("lang"); asked != "" {
		if !slices.Contains(tags, text.Lang(asked)) {
			return "", problem.Malformed("lang", "must be en or zh")
		}
		return text.Lang(asked), nil
	}
	if c, err := (&http.Request{Header: r.Header}).Cookie("hf_lang"); err == nil && slices.Contains(tags, text.Lang(c.Value)) {
		return text.Lang(c.Value), nil
	}
	return r.Lang, nil
}
