package fetchbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
)

// maxRedirects is how many are followed; one more fails (G-FB-38).
const maxRedirects = 10

// restTime is how long a proxy that failed is passed over while others work.
const restTime = 30 * time.Second

// ways are how downloads get out: directly, or through the proxies of pools.
type ways struct {
	direct  *egress.Client
	pools   map[string]Pool
	proxies map[string]*proxy // by URL
	elapsed func() time.Duration
	failed  func(pool string) // is told of each failure of a proxy
}

// proxy is one of them, and how it is.
type proxy struct {
	client *egress.Client

	mu      sync.Mutex
	resting bool
	until   time.Duration // it is passed over
}

// way is one way for a download. proxy is nil on the direct one.
type way struct {
	client *egress.Client
	proxy  *proxy
	pool   string
}

func newWays(c *Config, failed func(pool string)) (*ways, error) {
	guarded := c.Egress
	guarded.MaxRedirects, guarded.ConnectTimeout = maxRedirects, c.ConnectTimeout
	direct, err := egress.New(guarded)
	if err != nil {
		return nil, fmt.Errorf("fetchbox: %w", err)
	}
	w := &ways{direct: direct, pools: c.Pools, proxies: map[string]*proxy{}, elapsed: c.Elapsed, failed: failed}
	for name, pool := range c.Pools {
		for _, raw := range pool.Primary {
			if guarded.Proxy, err = egress.ParseProxy(raw); err != nil {
				return nil, fmt.Errorf("fetchbox: pool %s: %w", name, err)
			}
			client, err := egress.New(guarded)
			if err != nil {
				return nil, fmt.Errorf("fetchbox: pool %s: %w", name, err)
			}
			w.proxies[raw] = &proxy{client: client}
		}
		for _, other := range pool.Fallbacks {
			if _, known := c.Pools[other]; !known {
				return nil, fmt.Errorf("fetchbox: pool %s: there is no pool %s to fall back on", name, other)
			}
		}
	}
	for name, t := range c.Types {
		if _, err := w.of(t.Proxy); err != nil {
			return nil, fmt.Errorf("fetchbox: job type %s: %w", name, err)
		}
	}
	return w, nil
}

// close ends connections that nothing uses.
func (w *ways) close() {
	w.direct.Close()
	for _, p := range w.proxies {
		p.client.Close()
	}
}

// of lists the ways of a task in the order of its pools (FB-070): the primary one, what that falls back on, the others.
func (w *ways) of(p *handler.Proxy) ([]way, error) {
	if p == nil || p.Primary == "" && len(p.Fallbacks) == 0 {
		return []way{{client: w.direct}}, nil
	}
	var all []way
	seen := map[string]bool{} // pools and proxies
	var add func(pool string) error
	add = func(name string) error {
		pool, known := w.pools[name]
		if !known {
			return fmt.Errorf("there is no proxy pool %q", name)
		}
		if seen["pool "+name] {
			return nil
		}
		seen["pool "+name] = true
		for _, raw := range pool.Primary {
			if !seen[raw] {
				seen[raw] = true
				all = append(all, way{client: w.proxies[raw].client, proxy: w.proxies[raw], pool: name})
			}
		}
		for _, other := range pool.Fallbacks {
			if err := add(other); err != nil {
				return err
			}
		}
		return nil
	}
	names := p.Fallbacks
	if p.Primary != "" {
		names = append([]string{p.Primary}, names...)
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the task's proxy pools are empty")
	}
	return all, nil
}

// turn orders ways for a try: each try begins one further than the one before it (FB-083), and those that failed lately
// come last.
func (w *ways) turn(all []way, try int) []way {
	first := try % len(all)
	turned := append(slices.Clone(all[first:]), all[:first]...)
	slices.SortStableFunc(turned, func(a, b way) int { return w.rests(a.proxy) - w.rests(b.proxy) })
	return turned
}

// rests is 1 for a proxy that failed lately.
func (w *ways) rests(p *proxy) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resting && w.elapsed() < p.until {
		return 1
	}
	return 0
}

// do makes a request by the first way that works: a proxy that fails itself costs no try. What lies behind it is another
// matter, that is the try's.
func (w *ways) do(req *http.Request, turned []way) (resp *http.Response, err error) {
	for _, way := range turned {
		resp, err = way.client.Do(req)
		var broken *egress.ProxyError
		switch {
		case req.Context().Err() != nil:
			return resp, err
		case errors.As(err, &broken):
			way.proxy.rest(true, w.elapsed()+restTime)
			w.failed(way.pool)
			continue
		case way.proxy != nil && err == nil:
			way.proxy.rest(false, 0)
		}
		return resp, err
	}
	return nil, err
}

func (p *proxy) rest(resting bool, until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting, p.until = resting, until
}

// health asks every proxy and says how the pools are: down where none of a pool answers, degraded where some do not.
func (w *ways) health(ctx context.Context) (status, detail string) {
	answers := map[string]bool{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for raw, p := range w.proxies {
		asked.Go(func() {
			ok := w.rests(p) == 0 && p.client.Ping(ctx) == nil
			mu.Lock()
			defer mu.Unlock()
			answers[raw] = ok
		})
	}
	asked.Wait()
	status = healthOK
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(w.pools)) {
		urls := w.pools[name].Primary
		good := 0
		for _, raw := range urls {
			if answers[raw] {
				good++
			}
		}
		switch {
		case good == len(urls):
			continue
		case good == 0:
			status = healthDown
		case status == healthOK:
			status = healthDegraded
		}
		wrong = append(wrong, fmt.Sprintf("%s: %d of %d proxies work", name, good, len(urls)))
	}
	return status, strings.Join(wrong, "; ")
}

// proxyHealth is the health of the pools.
func (f *FetchBox) proxyHealth(ctx context.Context) (status, detail string) {
	return f.ways.health(ctx)
}
