// Package browser walks through the pages in a headless Chromium, as a customer
// does, on a platform of its own.
package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// The two widths every page is looked at: a desktop and a small phone.
var sizes = []struct {
	name          string
	width, height int64
	mobile        bool
}{{"desktop", 1200, 900, false}, {"phone", 360, 740, true}}

// patience is how long one step of a page may take on a loaded machine.
const patience = 40 * time.Second

// tab is one browser with one customer in it.
type tab struct {
	testing.TB
	ctx    context.Context
	base   string // the platform's address
	folder string // where screenshots go
	shots  int

	mu     sync.Mutex
	errors []string
}

// open starts a browser. Messages of errors on its pages fail the test.
func open(t testing.TB, base, language string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.Flag("lang", language), chromedp.Flag("accept-lang", language))
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			options = append(options, chromedp.ExecPath(path))
			break
		}
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)

	b := &tab{TB: t, ctx: ctx, base: base, folder: t.TempDir()}
	if kept := os.Getenv("HOLDFAST_SCREENSHOTS"); kept != "" {
		b.folder = filepath.Join(kept, t.Name())
		if err := os.MkdirAll(b.folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetLocaleOverride, emulation.SetLocaleOverrideParams{Locale: language})
		return err
	}))
	b.colours("light")
	b.resize(0)
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// A refusal by a function is also written to the console; the page deals with it.
			if text := fmt.Sprint(m); (m.Type == "error" || m.Type == "exception") && !strings.Contains(text, "Failed to load resource") {
				b.mu.Lock()
				b.errors = append(b.errors, text)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.errors {
			t.Errorf("the page says: %s", text)
		}
	})
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx); err != nil { // the browser lives as long as b.ctx
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.fail(err)
	}
}

// fail ends the test with what is on the page.
func (b *tab) fail(err error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	where, _ := chromedp.Run(ctx, chromedp.Location())
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 1500)`))
	if shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)); err == nil {
		_ = os.WriteFile(filepath.Join(b.folder, "failed.png"), shot, 0o600)
	}
	b.Fatalf("%v\nat %s\n%s", err, where, text)
}

func (b *tab) visit(query string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + "/function/web" + query))
	b.ready()
}

// ready waits until the page's script has run.
func (b *tab) ready() { b.Helper(); b.until(`!document.querySelector("#main[aria-busy]")`) }

// until waits for a JavaScript expression to hold, over changes of page.
func (b *tab) until(expression string) {
	b.Helper()
	end := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		cancel()
		if err == nil && ok {
			return
		}
		if time.Now().After(end) {
			b.fail(fmt.Errorf("never true: %s (%v)", expression, err))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// at waits for a page by its name.
func (b *tab) at(name string) {
	b.Helper()
	b.until(fmt.Sprintf(`new URLSearchParams(location.search).get("page") === %q && document.readyState === "complete"`, name))
	b.ready()
}

func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.WaitVisible(selector))
	// To the middle: at the edge something may stick over it.
	eval[bool](b, fmt.Sprintf(`(document.querySelector(%q).scrollIntoView({block: "center", behavior: "instant"}), true)`, selector))
	b.do(chromedp.Click(selector, chromedp.NodeVisible))
}

func (b *tab) write(selector, text string) {
	b.Helper()
	b.do(chromedp.Clear(selector), chromedp.SendKeys(selector, text))
}

func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}

func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fail(err)
	}
	return v
}

func (b *tab) resize(i int) { b.Helper(); b.size(i, sizes[i].height) }

// size sets the window and waits until the page is laid out for it: a click
// before that goes to where something was.
func (b *tab) size(i int, height int64) {
	b.Helper()
	var options []chromedp.EmulateViewportOption
	if sizes[i].mobile {
		options = append(options, chromedp.EmulateMobile)
	}
	b.do(chromedp.EmulateViewport(sizes[i].width, height, options...))
	eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// checks is what a picture does not show, as a list of faults: a control without
// a name, an id twice, text too faint for its ground (WCAG AA, 4.5), not one h1.
const checks = `(() => {
		const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || (e.labels?.length && e.labels[0].innerText.trim()) || (!e.matches("input,select,textarea") && e.innerText.trim());
		const faults = [...document.querySelectorAll("input:not([type=hidden]),select,textarea,button,a[href]")]
			.filter((e) => e.checkVisibility() && !named(e)).map((e) => "no name: " + e.outerHTML.slice(0, 120));
		const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
		ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => faults.push("id twice: " + id));
		for (const e of document.querySelectorAll("button,.button,.badge,p,label,dt,dd,small,h1,h2,a")) {
			if (!e.checkVisibility() || !e.innerText.trim() || e.closest("[aria-busy=true]")) continue;
			const rgb = (c) => c.match(/[\d.]+/g).map(Number);
			let ground = e;
			while (ground && (rgb(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
			if (!ground || e.disabled) continue;
			const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
			const [x, y] = [rgb(getComputedStyle(e).color), rgb(getComputedStyle(ground).backgroundColor)].map((c) => light(c.slice(0, 3))).sort((p, q) => q - p);
			if ((x + .05) / (y + .05) < 4.5) faults.push("contrast " + ((x + .05) / (y + .05)).toFixed(1) + ": " + e.innerText.slice(0, 40));
		}
		const h1 = document.querySelectorAll("h1").length;
		if (h1 !== 1) faults.push(h1 + " h1");
		return faults;
	})()`

// look keeps pictures of the page: at both widths, and dark on the phone.
func (b *tab) look(name string) {
	b.Helper()
	b.shots++
	for i, s := range sizes {
		b.resize(i)
		b.picture(name, s.name, i)
		if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			b.Errorf("%s at %s width is %d pixels too wide", name, s.name, over)
		}
	}
	b.colours("dark")
	b.picture(name, "dark", len(sizes)-1)
	b.colours("light")
	b.resize(0)
}

func (b *tab) picture(name, look string, size int) {
	b.Helper()
	// The whole page in the window, so that what sticks to its edge covers nothing.
	if high := eval[int64](b, `document.documentElement.scrollHeight`); high > sizes[size].height {
		b.size(size, high)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.fail(err)
	}
	file := filepath.Join(b.folder, fmt.Sprintf("%02d-%s-%s.png", b.shots, name, look))
	if err := os.WriteFile(file, shot, 0o600); err != nil {
		b.Fatal(err)
	}
	for _, fault := range eval[[]string](b, checks) {
		b.Errorf("%s, %s: %s", name, look, fault)
	}
}

// colours sets what the reader prefers.
func (b *tab) colours(scheme string) {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
}

// mailTo is the text of the newest mail to an address with all of the words in it.
func (b *tab) mailTo(address string, words ...string) string {
	b.Helper()
	end := time.Now().Add(patience)
	for time.Now().Before(end) {
		raw := eval[string](b, fmt.Sprintf(`fetch("/dev/mail?to=" + encodeURIComponent(%q), {headers: {Accept: "application/json"}}).then((r) => r.text())`, address))
		var list struct {
			Messages []struct {
				Subject, Text string
			} `json:"messages"`
		}
		if err := json.Unmarshal([]byte(raw), &list); err != nil {
			b.Fatalf("/dev/mail: %v: %.200s", err, raw)
		}
		for _, m := range list.Messages {
			all := true
			for _, w := range words {
				all = all && strings.Contains(m.Subject+"\n"+m.Text, w)
			}
			if all {
				return m.Subject + "\n" + m.Text
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	b.Fatalf("no mail to %s with %v", address, words)
	return ""
}

// download fetches, with the page's account token, what a button of the page
// hands to the browser as a file.
func (b *tab) download(address, accept string) []byte {
	b.Helper()
	text := eval[string](b, fmt.Sprintf(`(async () => {
		const token = JSON.parse(localStorage.getItem("hf.account")).account_token;
		const answer = await fetch(%q, {headers: {Accept: %q, Authorization: "Bearer " + token}});
		if (!answer.ok) return "";
		const bytes = new Uint8Array(await answer.arrayBuffer());
		let text = "";
		for (const b of bytes) text += String.fromCharCode(b);
		return btoa(text);
	})()`, address, accept))
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.Fatal(err)
	}
	return data
}
