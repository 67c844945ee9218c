package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// origin is the web server that FetchBox downloads from. The first member of a path says how it
// answers, see the kinds; what it sends follows from the rest.
type origin struct {
	url    string
	server *http.Server
	canary *canary

	mu    sync.Mutex
	asked map[string]int // requests by path
}

// The kinds of resources.
const (
	kindPlain     = "plain"
	kindOnce      = "once"      // 503 to the first request
	kindCut       = "cut"       // the first answer ends in its middle
	kindMoved     = "moved"     // redirects to the plain one
	kindGone      = "gone"      // 404
	kindWrong     = "wrong"     // plain, while the manifest has another checksum
	kindForbidden = "forbidden" // redirects to an address that the server must not call
)

// kindStored has which resources are stored in the end.
var kindStored = map[string]bool{kindPlain: true, kindOnce: true, kindCut: true, kindMoved: true,
	kindGone: false, kindWrong: false, kindForbidden: false}

// newOrigin starts an origin that redirects forbidden downloads to a canary.
func newOrigin(c *canary) (*origin, error) {
	o := &origin{canary: c, asked: map[string]int{}}
	var err error
	o.server, o.url, err = serve(o)
	return o, err
}

// serve starts a server on an address of its own.
func serve(h http.Handler) (s *http.Server, url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	s = &http.Server{Handler: h, ReadHeaderTimeout: requestTimeout}
	go func() { _ = s.Serve(l) }()
	return s, "http://" + l.Addr().String(), nil
}

// contentOf is what a resource contains: a text of its own, of a length that differs.
func contentOf(job, resource string) string {
	line := job + "/" + resource + "\n"
	return strings.Repeat(line, 1+int(sha256.Sum256([]byte(line))[0]))
}

// ServeHTTP answers a download.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	kind, job, resource := parts[0], parts[1], parts[2]
	text := contentOf(job, resource)
	isFirst := o.count(r.URL.Path) == 1
	switch {
	case kind == kindGone:
		http.NotFound(w, r)
	case kind == kindMoved:
		http.Redirect(w, r, fmt.Sprintf("/%s/%s/%s", kindPlain, job, resource), http.StatusFound)
	case kind == kindForbidden:
		http.Redirect(w, r, o.canary.forbidden, http.StatusFound)
	case kind == kindOnce && isFirst:
		w.WriteHeader(http.StatusServiceUnavailable)
	case kind == kindCut && isFirst:
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write([]byte(text[:len(text)/2]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		_, _ = w.Write([]byte(text))
	}
}

// count counts a request, and returns how many there were for its path.
func (o *origin) count(path string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[path]++
	return o.asked[path]
}

// canary is a server that no request may reach. Receivers of webhooks and the origin redirect to
// it: the first by its address, as webhooks follow no redirects at all, the other by the
// unspecified address, which leads to it as well and which no request may go to.
type canary struct {
	url       string
	forbidden string
	server    *http.Server

	mu   sync.Mutex
	hits []string
}

// newCanary starts a canary.
func newCanary() (*canary, error) {
	c := &canary{}
	var err error
	c.server, c.url, err = serve(c)
	c.forbidden = strings.Replace(c.url, "127.0.0.1", "0.0.0.0", 1)
	return c, err
}

// ServeHTTP records a request, and accepts it as a receiver would.
func (c *canary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits = append(c.hits, fmt.Sprintf("%s %s%s", r.Method, r.Host, r.URL.Path))
	w.WriteHeader(http.StatusNoContent)
}

// reached returns the requests so far.
func (c *canary) reached() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.hits...)
}
