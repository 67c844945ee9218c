package fetchbox_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/testkit"
)

// proxyWorld is a world with proxies of both kinds: eu has two of them and falls back on global,
// and emergency stands alone.
type proxyWorld struct {
	*fetchWorld
	first, second, global, emergency *testkit.Proxy
	url                              string // of the origin
	hits                             atomic.Int64
}

func newProxyWorld(t *testing.T) *proxyWorld {
	t.Helper()
	p := &proxyWorld{first: testkit.HTTPProxy(t, ""), second: testkit.SOCKSProxy(t, "user:s3cret"),
		global: testkit.HTTPProxy(t, "user:s3cret"), emergency: testkit.SOCKSProxy(t, "")}
	p.url = origin(t, func(rw http.ResponseWriter, r *http.Request) {
		p.hits.Add(1)
		rw.Header().Set("Connection", "close") // each try asks a proxy anew
		if r.URL.Path == "/gone" {
			rw.WriteHeader(http.StatusGone)
		}
		_, _ = io.WriteString(rw, "picture")
	}).URL
	c := assertNear()
	c.Pools = map[string]*fetchbox.Pool{
		"proxies/eu": {Primary: secrets(p.first.URL, p.second.URL),
			Fallbacks: []string{"proxies/global"}},
		// a circle ends where it began
		"proxies/global":    {Primary: secrets(p.global.URL), Fallbacks: []string{"proxies/eu"}},
		"proxies/emergency": {Primary: secrets(p.emergency.URL)},
		"proxies/none":      {},
	}
	c.Types["default"] = &fetchbox.Type{Proxy: handler.Proxy{Primary: "proxies/eu",
		Fallbacks: []string{"proxies/emergency"}}}
	p.fetchWorld = newFetchWorld(t, c)
	return p
}

// used says which proxies were asked since it was asked last, first to last.
func (p *proxyWorld) used(before *[4]int) (names string) {
	for i, proxy := range []*testkit.Proxy{p.first, p.second, p.global, p.emergency} {
		if n := len(proxy.Targets()); n > before[i] {
			names += " " + []string{"first", "second", "global", "emergency"}[i]
			before[i] = n
		}
	}
	return strings.TrimSpace(names)
}

func TestProxyOrder(t *testing.T) {
	t.Parallel()
	p := newProxyWorld(t)
	ctx := context.Background()
	var seen [4]int
	try := func(t *testing.T, failures int, want string) {
		t.Helper()
		wantSuccess(t, p.fetch(ctx, taskOf(p.url, nil), failures))
		assertEqual(t, "proxies used", p.used(&seen), want)
	}
	t.Run("FB-070 the primary pool first", func(t *testing.T) {
		try(t, 0, "first")
		try(t, 0, "first")
	})
	t.Run("FB-083 each try begins with the next proxy", func(t *testing.T) {
		for failures, want := range []string{"first", "second", "global", "emergency", "first"} {
			try(t, failures, want)
		}
	})
	t.Run("FB-070 one that fails is passed over in the same try, and left to rest",
		func(t *testing.T) {
			p.first.SetBroken(true)
			try(t, 0, "second")
			assertEqual(t, "failures of the pool",
				p.counter(t, "proxy_failures_total", "pool", "proxies/eu"), 1)
			try(t, 0, "second")
			// it was not asked again
			assertEqual(t, "failures of the pool",
				p.counter(t, "proxy_failures_total", "pool", "proxies/eu"), 1)
			status, detail := p.fetchbox.ProxyHealth(ctx)
			if status != "degraded" ||
				(detail != "proxies/eu: 1 of 2 proxies work; proxies/global: 0 of 1 proxies work" &&
					detail != "proxies/eu: 1 of 2 proxies work") {
				t.Errorf("got %s, %s", status, detail)
			}
		})
	t.Run("FB-070 after the pool its fallbacks in order", func(t *testing.T) {
		p.second.SetBroken(true)
		try(t, 0, "global")
		p.global.SetBroken(true)
		p.clock.Advance(time.Minute) // all have had their rest
		p.first.SetBroken(true)
		try(t, 0, "emergency")
	})
	t.Run("FB-065 health asks them", func(t *testing.T) {
		if status, detail := p.fetchbox.ProxyHealth(ctx); status != "down" ||
			!strings.Contains(detail, "proxies/eu: 0 of 2 proxies work") ||
			strings.Contains(detail, "s3cret") {
			t.Errorf("got %s, %s", status, detail)
		}
	})
	t.Run("FB-083 none works", func(t *testing.T) {
		p.emergency.SetBroken(true)
		before := p.hits.Load()
		wantFailure(t, p.fetch(ctx, taskOf(p.url, nil), 0), "DOWNLOAD_PROXY", true)
		assertEqual(t, "requests without a proxy", p.hits.Load(), before)
	})
	t.Run("FB-070 back after their rest", func(t *testing.T) {
		for _, proxy := range []*testkit.Proxy{p.first, p.second, p.global, p.emergency} {
			proxy.SetBroken(false)
		}
		p.clock.Advance(time.Minute)
		try(t, 0, "first")
		if status, detail := p.fetchbox.ProxyHealth(ctx); status != "ok" || detail != "" {
			t.Errorf("got %s, %s", status, detail)
		}
	})
}

func TestProxiesOfTasks(t *testing.T) {
	t.Parallel()
	p := newProxyWorld(t)
	ctx := context.Background()
	var seen [4]int
	with := func(primary string, fallbacks ...string) *handler.Task {
		return taskOf(p.url, func(task *handler.Task) {
			task.Proxy = &handler.Proxy{Primary: primary, Fallbacks: fallbacks}
		})
	}
	t.Run("FB-078 a task's own pools", func(t *testing.T) {
		wantSuccess(t, p.fetch(ctx, with("proxies/emergency"), 0))
		assertEqual(t, "proxies used", p.used(&seen), "emergency")
		wantSuccess(t, p.fetch(ctx, with("", "proxies/global"), 0))
		assertEqual(t, "proxies used", p.used(&seen), "global")
		wantSuccess(t, p.fetch(ctx, with(""), 0))
		assertEqual(t, "proxies used", p.used(&seen), "")
	})
	t.Run("pools that are not there", func(t *testing.T) {
		wantFailure(t, p.fetch(ctx, with("proxies/nowhere"), 0), "DOWNLOAD_UNKNOWN_PROXY_POOL",
			false)
		wantFailure(t, p.fetch(ctx, with("proxies/none"), 0), "DOWNLOAD_UNKNOWN_PROXY_POOL", false)
	})
	t.Run("FB-083 what the origin says is not the proxy's failure", func(t *testing.T) {
		task := with("proxies/eu")
		task.URL += "/gone"
		wantFailure(t, p.fetch(ctx, task, 0), "HTTP_410", false)
		task.URL = "http://127.0.0.1:1/"
		wantFailure(t, p.fetch(ctx, task, 1), "DOWNLOAD_CONNECTION", true)
		if status, _ := p.fetchbox.ProxyHealth(ctx); status != "ok" {
			t.Errorf("the proxies are %s", status)
		}
	})
	t.Run("G-FB-30 the guard stands behind proxies", func(t *testing.T) {
		for _, pool := range []string{"proxies/eu", "proxies/emergency"} {
			task := with(pool)
			task.URL = "http://169.254.169.254/latest"
			wantFailure(t, p.fetch(ctx, task, 0), "DOWNLOAD_ADDRESS_REFUSED", false)
		}
		p.used(&seen)
	})
}

// G-FB-26: wrong references stop the start.
func TestProxySettings(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	for name, change := range map[string]func(*fetchbox.Config){
		"a fallback that is not there": func(c *fetchbox.Config) {
			c.Pools = map[string]*fetchbox.Pool{"a": {Fallbacks: []string{"b"}}}
		},
		"a URL that is none": func(c *fetchbox.Config) {
			c.Pools = map[string]*fetchbox.Pool{"a": {Primary: secrets("ftp://u:s3cret@p")}}
		},
		"a type's pool that is not there": func(c *fetchbox.Config) {
			c.Types = map[string]*fetchbox.Type{"t": {Proxy: handler.Proxy{Primary: "a"}}}
		},
	} {
		t.Run("G-FB-26 "+name, func(t *testing.T) {
			c := assertNear()
			c.Registry, c.Now, c.Elapsed, c.Random, c.Node, c.Log = prometheus.NewRegistry(),
				w.clock.Now, w.clock.Monotonic, testkit.RandomBytes, "test", w.fetchbox.Log
			c.Engine, c.Objects, c.Streams = w.engine, w.objects, w.streams
			change(&c)
			if _, err := fetchbox.New(c); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v", err)
			}
		})
	}
}
