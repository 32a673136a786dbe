package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"handler/function/cmd/holdfast/gtfs"
	"handler/function/cmd/holdfast/layout"
	"handler/function/shared/catalog"
)

// importCmd makes sales of other people's files.
type importCmd struct {
	GTFS importGTFSCmd `cmd:"" name:"gtfs" help:"Put one run of a train of a GTFS timetable on sale."`
	Hall importHallCmd `cmd:"" help:"Put a screening in a hall on sale."`
}

// importTo is where an import goes.
type importTo struct {
	URL     string        `default:"http://127.0.0.1:8080" help:"The gateway of the platform." env:"HOLDFAST_URL"`
	Token   string        `help:"An organiser's account token; asked of the local platform when not given." env:"HOLDFAST_TOKEN"`
	Account string        `default:"organiser" help:"The account to ask a token for."`
	Org     string        `default:"demo" help:"The organisation to ask a token for."`
	Key     string        `help:"Idempotency-Key; made from the document when not given, so that importing twice makes one sale."`
	Open    bool          `help:"Open the sale; it is a draft otherwise."`
	Print   bool          `help:"Print what would be sent and send nothing."`
	Timeout time.Duration `hidden:"" default:"60s"`
}

type importGTFSCmd struct {
	Feed   string `arg:"" help:"A GTFS zip file or folder." type:"path"`
	Trip   string `required:"" help:"trip_id."`
	Date   string `required:"" help:"Service date, as 2026-12-24; next is the first run from tomorrow on."`
	Layout string `required:"" help:"The layout file (docs/layout.md)." type:"existingfile"`
	importTo
}

// Run reads, converts, posts. Warnings are no errors.
func (c *importGTFSCmd) Run(ctx context.Context, out *output) error {
	feed, err := gtfs.Open(c.Feed, c.Trip)
	if err != nil {
		return err
	}
	l, err := layout.Read(c.Layout)
	if err != nil {
		return err
	}
	doc, warnings, err := trainDocument(feed, c.Trip, c.Date, l, time.Now())
	for _, w := range warnings {
		out.log("warning: %s", w)
	}
	if err != nil {
		return err
	}
	return c.send(ctx, out, doc)
}

// trainDocument is the sale of one run; date may be "next".
func trainDocument(feed *gtfs.Feed, trip, date string, l layout.Layout, now time.Time) (catalog.Document, []string, error) {
	if date == "next" {
		tomorrow := now.AddDate(0, 0, 1).Format(time.DateOnly)
		if date = feed.FirstDate(trip, tomorrow); date == "" {
			date = tomorrow // the error says when it runs
		}
	}
	doc, warnings, err := feed.Sale(trip, date, now.Format(time.DateOnly))
	if err != nil {
		return doc, warnings, err
	}
	if err := l.Apply(&doc); err != nil {
		return doc, warnings, fmt.Errorf("layout: %w", err)
	}
	return doc, warnings, nil
}

type importHallCmd struct {
	File   string `arg:"" help:"The hall file (docs/layout.md)." type:"existingfile"`
	Starts string `help:"Begin of the screening in place of the file's, as 2026-12-24T20:00:00-05:00."`
	importTo
}

// Run reads, converts, posts.
func (c *importHallCmd) Run(ctx context.Context, out *output) error {
	h, err := layout.ReadHall(c.File)
	if err != nil {
		return err
	}
	if c.Starts != "" {
		at, err := time.Parse(time.RFC3339, c.Starts)
		if err != nil {
			return fmt.Errorf("--starts: must be a time like 2026-12-24T20:00:00-05:00: %q", c.Starts)
		}
		if err := h.Begin(at); err != nil {
			return err
		}
	}
	doc, err := h.Document()
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	return c.send(ctx, out, doc)
}

// imported is the sale made.
type imported struct {
	Sale  string        `json:"sale"`
	Room  *string       `json:"room"`
	State catalog.State `json:"state"`
}

// send checks the document as the platform will and posts it.
func (c importTo) send(ctx context.Context, out *output, doc catalog.Document) error {
	if c.Open {
		doc.State = catalog.Open
	}
	checked := doc
	checked.Normalise(time.Now())
	if err := checked.Validate(); err != nil {
		return err
	}
	if c.Print {
		b, err := json.MarshalIndent(map[string]any{"sale": doc}, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out.out, "%s\n", b)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	p := organiser{url: c.URL, token: c.Token}
	if p.token == "" {
		var err error
		if p.token, err = devToken(ctx, c.URL, c.Account, c.Org); err != nil {
			return err
		}
	}
	made, replay, err := p.create(ctx, c.Key, doc)
	if err != nil {
		return err
	}
	if replay {
		out.log("this was imported before: it is sale %s", made.Sale)
	}
	return out.result(made, func(w io.Writer) {
		fmt.Fprintf(w, "sale %s (%s): %s\n", made.Sale, made.State, doc.Title)
	})
}

// devToken asks the local platform for an organiser's token.
func devToken(ctx context.Context, base, account, org string) (string, error) {
	q := url.Values{"account": {account}, "role": {"organiser"}, "org": {org}}
	var answer struct {
		Token string `json:"account_token"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/dev/token?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	if _, err := call(req, &answer); err != nil {
		return "", fmt.Errorf("a token from the local platform (or give --token): %w", err)
	}
	return answer.Token, nil
}

// organiser posts to a platform's catalog.
type organiser struct{ url, token string }

// maxImport is the largest body of an import (api/openapi.yaml).
const maxImport = 1 << 20

// create posts a document; replay says that it was made before by this key. An
// empty key is made from the document.
func (o organiser) create(ctx context.Context, key string, doc catalog.Document) (made imported, replay bool, err error) {
	body, err := json.Marshal(map[string]any{"sale": doc})
	if err != nil {
		return made, false, err
	}
	if len(body) > maxImport {
		return made, false, fmt.Errorf("the sale takes %d bytes as JSON, the platform takes at most %d", len(body), maxImport)
	}
	if key == "" {
		sum := sha256.Sum256(body)
		key = "import-" + hex.EncodeToString(sum[:20])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(o.url, "/")+"/function/catalog", bytes.NewReader(body))
	if err != nil {
		return made, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.token)
	req.Header.Set("Idempotency-Key", key)
	header, err := call(req, &made)
	return made, header.Get("Idempotent-Replay") == "true", err
}

// call sends a request and reads its JSON answer; a problem is an error that
// says what it says, field by field.
func call(req *http.Request, into any) (http.Header, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return res.Header, err
	}
	if res.StatusCode < 300 {
		return res.Header, json.Unmarshal(body, into)
	}
	var p struct {
		Detail string
		Errors []struct{ Field, Detail string }
	}
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return res.Header, fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(body[:min(len(body), 300)]))
	}
	errs := []error{fmt.Errorf("%s: %s", res.Status, p.Detail)}
	for _, e := range p.Errors {
		errs = append(errs, fmt.Errorf("%s: %s", e.Field, e.Detail))
	}
	return res.Header, errors.Join(errs...)
}
