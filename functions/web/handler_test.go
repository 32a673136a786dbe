package function

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	handler "github.com/openfaas/templates-sdk/go-http"

	"handler/function/shared/text"
)

func ask(t *testing.T, query string, header http.Header) handler.Response {
	t.Helper()
	if header == nil {
		header = http.Header{}
	}
	res, err := Handle(handler.Request{Method: http.MethodGet, QueryString: query, Header: header})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestEveryPageHasItsHeaders(t *testing.T) {
	for name := range titles {
		want := http.StatusOK
		if name == "missing" {
			want = http.StatusNotFound
		}
		res := ask(t, "page="+name, nil)
		if res.StatusCode != want || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %s", name, res.StatusCode, res.Header.Get("Content-Type"))
		}
		csp := res.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "script-src 'self'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: Content-Security-Policy %q", name, csp)
		}
		for _, h := range []string{"X-Content-Type-Options", "Referrer-Policy", "ETag", "Cache-Control", "X-Trace-Id"} {
			if res.Header.Get(h) == "" {
				t.Errorf("%s: no %s", name, h)
			}
		}
		if regexp.MustCompile(`(?i)<script(?:[^>]*)>[^<]|<style|\son[a-z]+=|\sstyle=`).Match(res.Body) {
			t.Errorf("%s has a script or style in the page, which its policy forbids", name)
		}
	}
	if got := ask(t, "", nil); !bytes.Contains(got.Body, []byte(`id="search"`)) {
		t.Error("without a page the first page is not shown")
	}
	if got := ask(t, "page=nothing", nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown page: %d", got.StatusCode)
	}
}

func TestUnknownParameterIsNamed(t *testing.T) {
	for query, name := range map[string]string{"page=home&colour=red": "colour", "asset=app.css&colour=red": "colour", "page=home&lang=xx": "lang"} {
		res := ask(t, query, nil)
		if res.StatusCode != http.StatusBadRequest || !bytes.Contains(res.Body, []byte(name)) {
			t.Errorf("%s: %d %s", query, res.StatusCode, res.Body)
		}
	}
}

func TestLanguage(t *testing.T) {
	cases := []struct {
		name, query string
		header      http.Header
		want        string
	}{
		{"none", "page=home", nil, "en"},
		{"browser", "page=home", http.Header{"Accept-Language": {"zh-CN,zh;q=0.9,en;q=0.5"}}, "zh"},
		{"chosen before", "page=home", http.Header{"Accept-Language": {"zh-CN"}, "Cookie": {"hf_lang=en"}}, "en"},
		{"address", "page=home&lang=zh", http.Header{"Cookie": {"hf_lang=en"}}, "zh"},
		{"unknown before", "page=home", http.Header{"Cookie": {"hf_lang=xx"}}, "en"},
	}
	for _, c := range cases {
		if res := ask(t, c.query, c.header); !bytes.Contains(res.Body, []byte(`<html lang="`+c.want+`"`)) {
			t.Errorf("%s: not in %s", c.name, c.want)
		}
	}
}

func TestAssets(t *testing.T) {
	s, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`web\?asset=([a-z-]+\.[a-z]+)&(?:amp;)?v=([0-9a-f]+)`)
	asked := map[string]bool{}
	for name := range titles {
		for _, tag := range tags {
			for _, m := range reference.FindAllSubmatch(ask(t, "page="+name+"&lang="+string(tag), nil).Body, -1) {
				if string(m[2]) != s.version {
					t.Errorf("%s names %s in version %s", name, m[1], m[2])
				}
				asked[string(m[1])] = true
			}
		}
	}
	for name := range s.assets {
		res := ask(t, "asset="+name+"&v="+s.version, nil)
		if res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != cacheAsset {
			t.Errorf("%s: %d, Cache-Control %q", name, res.StatusCode, res.Header.Get("Cache-Control"))
		}
		if strings.HasSuffix(name, ".js") {
			if m := regexp.MustCompile(`from "\./[a-z-]+\.js"`).Find(res.Body); m != nil {
				t.Errorf("%s: an import without a version: %s", name, m)
			}
			for _, m := range reference.FindAllSubmatch(res.Body, -1) {
				asked[string(m[1])] = true
			}
		}
		again := ask(t, "asset="+name+"&v="+s.version, http.Header{"If-None-Match": {res.Header.Get("ETag")}})
		if again.StatusCode != http.StatusNotModified || len(again.Body) != 0 {
			t.Errorf("%s asked again: %d with %d bytes", name, again.StatusCode, len(again.Body))
		}
	}
	for name := range asked {
		if _, ok := s.assets[name]; !ok {
			t.Errorf("%s is named but not there", name)
		}
	}
	for name := range s.assets {
		if !asked[name] {
			t.Errorf("%s is there but never named", name)
		}
	}
	if res := ask(t, "asset=app.css&v=000000", nil); res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != cacheOther {
		t.Errorf("another version's address: %d, Cache-Control %q", res.StatusCode, res.Header.Get("Cache-Control"))
	}
	if res := ask(t, "asset=../../etc/passwd", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("no such asset: %d", res.StatusCode)
	}
}

// A page with all it loads stays small.
func TestTransferIsSmall(t *testing.T) {
	const most = 60 << 10 // bytes as sent, for all pages' files together
	s, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for name := range s.assets {
		res := ask(t, "asset="+name+"&v="+s.version, http.Header{"Accept-Encoding": {"gzip"}})
		total += len(res.Body)
		if res.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(res.Body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil || !bytes.Equal(plain, s.assets[name].body) {
				t.Errorf("%s: compressed is another text (%v)", name, err)
			}
		}
	}
	if total > most {
		t.Errorf("all assets are %d bytes as sent, more than %d", total, most)
	}
}

var (
	inPage = regexp.MustCompile(`\{\{t "([^"]+)"`)
	// A key in a script: t("a.b"), has(`a.${x}`), and names handed to a function that asks t for them.
	inScript = regexp.MustCompile("[\"`]([a-z]+\\.[a-z_.]*(?:\\$\\{)?)")
)

// Both languages have the same texts, every text that is asked for exists, and
// none is left that nobody asks for.
func TestTexts(t *testing.T) {
	all := map[text.Lang]map[string]string{}
	for _, tag := range tags {
		b, err := fs.ReadFile(files, "static/text/"+string(tag)+".json")
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]string
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		all[tag] = m
	}
	en, zh := all[text.English], all[text.Chinese]
	holes := regexp.MustCompile(`\{\w+\}`)
	for key, value := range en {
		// "key.one" is English's singular; Chinese has none.
		if _, ok := zh[key]; !ok && !strings.HasSuffix(key, ".one") {
			t.Errorf("%s is not in Chinese", key)
		}
		for _, hole := range holes.FindAllString(value, -1) {
			if other, ok := zh[key]; ok && !strings.Contains(other, hole) {
				t.Errorf("%s: the Chinese text lacks %s", key, hole)
			}
		}
	}
	for key, value := range zh {
		if en[key] == "" || value == "" {
			t.Errorf("%s is not in English, or empty", key)
		}
	}

	used := map[string]bool{}
	prefixes := map[string]bool{}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "static/vendor") {
			return err
		}
		b, err := fs.ReadFile(files, name)
		switch filepath.Ext(name) {
		case ".html":
			for _, m := range inPage.FindAllSubmatch(b, -1) {
				used[string(m[1])] = true
			}
		case ".js":
			for _, m := range inScript.FindAllSubmatch(b, -1) {
				key := string(m[1])
				if prefix, ok := strings.CutSuffix(key, "${"); ok {
					prefixes[prefix] = true
				} else {
					used[key] = true
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]bool{}
	for key := range en {
		group, _, _ := strings.Cut(key, ".")
		groups[group] = true
	}
	for key := range used {
		group, _, _ := strings.Cut(key, ".")
		if _, ok := en[key]; !ok && groups[group] {
			t.Errorf("%s is asked for and does not exist", key)
		}
	}
	for prefix := range prefixes {
		group, _, _ := strings.Cut(prefix, ".")
		if groups[group] && !slices.ContainsFunc(slices.Collect(maps.Keys(en)), func(key string) bool { return strings.HasPrefix(key, prefix) }) {
			t.Errorf("no text begins with %s", prefix)
		}
	}
	for key := range en {
		asked := used[strings.TrimSuffix(key, ".one")]
		for prefix := range prefixes {
			asked = asked || strings.HasPrefix(key, prefix)
		}
		for _, title := range titles {
			asked = asked || title == key
		}
		if !asked {
			t.Errorf("%s is never asked for", key)
		}
	}
}

// The scripts are well-formed, and the waiting room's arithmetic is right, where
// there is a Node to say so; the browser test runs them everywhere else.
func TestScripts(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		return
	}
	scripts, err := filepath.Glob("static/script/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	dir := t.TempDir()
	for _, name := range scripts {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, strings.TrimSuffix(filepath.Base(name), ".js")+".mjs")
		if err := os.WriteFile(copied, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(node, "--check", copied).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
	b, err := os.ReadFile("testdata/line.test.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "line.test.mjs"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(node, filepath.Join(dir, "line.test.mjs")).CombinedOutput(); err != nil {
		t.Errorf("line: %s", out)
	}
}
