package platform

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// MaxBody is the largest request body the gateway passes on, in bytes: imports
// and webhooks are at most 1 MiB (api/openapi.yaml), which is also what an ingress in
// front of OpenFaaS lets through by default.
const MaxBody = 1 << 20

// backend answers the requests of one function.
type backend interface {
	// serve answers the request, whose headers are already the function's.
	serve(w http.ResponseWriter, r *http.Request)
}

// gateway is the part of OpenFaaS that callers see, with its habits (DESIGN 3).
type gateway struct {
	functions map[string]backend
}

// hopHeaders end at a proxy (RFC 9110, 7.6.1).
var hopHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ServeHTTP serves /function/NAME and below. What stands after the name does
// not reach a handler, nor does the host.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	name := r.PathValue("name")
	f, ok := g.functions[name]
	if !ok {
		http.Error(w, "Error finding function "+strconv.Quote(name)+".", http.StatusNotFound)
		return
	}
	if r.ContentLength > MaxBody {
		tooLarge(w)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	for _, h := range hopHeaders {
		r.Header.Del(h)
	}
	start := strconv.FormatInt(time.Now().UTC().UnixNano(), 10)
	if r.Header.Get("X-Call-Id") == "" {
		id := callID()
		r.Header.Set("X-Call-Id", id)
		w.Header().Set("X-Call-Id", id)
	}
	r.Header.Set("X-Start-Time", start)
	w.Header().Set("X-Start-Time", start)
	// Kept when the client sent one: so does the real gateway, and so nothing in
	// it may be believed unless a trusted proxy stands in front.
	if r.Header.Get("X-Forwarded-For") == "" {
		r.Header.Set("X-Forwarded-For", r.RemoteAddr)
	}
	if r.Host != "" && r.Header.Get("X-Forwarded-Host") == "" {
		r.Header.Set("X-Forwarded-Host", r.Host)
	}
	r.Host, r.RequestURI = "", ""
	f.serve(w, r)
}

func tooLarge(w http.ResponseWriter) {
	http.Error(w, fmt.Sprintf("The body is larger than %d bytes.", MaxBody), http.StatusRequestEntityTooLarge)
}

// callID is a random version 4 UUID.
func callID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// inside is a function that runs in this process.
type inside struct{ http.Handler }

func (f inside) serve(w http.ResponseWriter, r *http.Request) { f.ServeHTTP(w, r) }

// outside is a function in processes of its own.
type outside struct {
	name     string
	replicas []*replica
	next     func() int
	client   http.RoundTripper
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// serve passes the request to the next replica that is up. A broken connection
// is a 502 and no replica a 503; nothing is tried again but what Go's transport,
// like the real proxies, sends once more: requests without a body on a
// connection that broke before an answer began. So every write of ours is a
// POST with a body (DESIGN 3).
func (f *outside) serve(w http.ResponseWriter, r *http.Request) {
	addr := ""
	for i, n := 0, f.next(); i < len(f.replicas) && addr == ""; i++ {
		addr = f.replicas[(n+i)%len(f.replicas)].address()
	}
	if addr == "" {
		w.Header().Set("X-OpenFaaS-Internal", "proxy")
		http.Error(w, "No endpoints available for: "+f.name+".", http.StatusServiceUnavailable)
		return
	}
	// The request itself goes on: only its target is another, and its body has
	// no second copy that could be sent again.
	out := r.WithContext(r.Context())
	u := *r.URL
	u.Scheme, u.Host, u.Path, u.RawPath = "http", addr, "/", ""
	out.URL, out.Close = &u, false
	if r.ContentLength == 0 {
		out.Body = nil
	}
	res, err := f.client.RoundTrip(out)
	if err != nil {
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			tooLarge(w)
		case r.Context().Err() != nil: // the caller went away
		default:
			w.Header().Set("X-OpenFaaS-Internal", "proxy")
			http.Error(w, "Can't reach service for: "+f.name+".", http.StatusBadGateway)
		}
		return
	}
	defer res.Body.Close()
	h := w.Header()
	for _, name := range hopHeaders {
		res.Header.Del(name)
	}
	for name, values := range res.Header {
		h[name] = values
	}
	w.WriteHeader(res.StatusCode)
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	_, _ = io.CopyBuffer(w, res.Body, *b)
}
