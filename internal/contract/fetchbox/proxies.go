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

// maxRedirects is how many redirects a download follows; one more fails it (G-FB-38).
const maxRedirects = 10

// cooldown is how long a proxy that failed is tried after all others.
const cooldown = 30 * time.Second

// proxyRoutes are the routes of downloads to the network: the direct one, or the proxies of pools.
// Each attempt at a task tries the proxies of its pools in order until one works; the next attempt
// starts with the next proxy. For a job type with primary = "a" and fallbacks = ["b"], and a pool a
// that falls back on c:
//
//	pools      a: p1 p2        c: p3        b: p4
//	routesFor  p1 p2 p3 p4
//	rotate     p2 p3 p4 p1     after one failed attempt
//	           p3 p4 p1 p2     the same while p2 is in its cooldown
//	do         p3 fails and begins its cooldown; p4 answers
//
// The health of a proxy is in memory and per node: after a restart each proxy is tried again.
type proxyRoutes struct {
	direct         *egress.Client
	pools          map[string]*Pool
	proxies        map[string]*proxy // by URL
	elapsed        func() time.Duration
	onProxyFailure func(pool string) // called for each failure of a proxy
}

// proxy is one proxy and its recent health.
type proxy struct {
	client *egress.Client

	mu            sync.Mutex
	coolingDown   bool
	cooldownUntil time.Duration // by the monotonic clock
}

// route is one way to the network. The direct route has no proxy.
type route struct {
	client *egress.Client
	proxy  *proxy
	pool   string
}

// newProxyRoutes makes a client for every proxy, each with the guard of direct downloads. A proxy
// that several pools name is one proxy with one cooldown. It fails for a URL that is no proxy's and
// for pools that are named and not defined (G-FB-26). No connection is made.
func newProxyRoutes(c *Config, onFailure func(pool string)) (*proxyRoutes, error) {
	guarded := c.Egress
	guarded.MaxRedirects, guarded.ConnectTimeout = maxRedirects, c.ConnectTimeout
	direct, err := egress.New(guarded)
	if err != nil {
		return nil, fmt.Errorf("fetchbox: %w", err)
	}
	w := &proxyRoutes{
		direct:         direct,
		pools:          c.Pools,
		proxies:        map[string]*proxy{},
		elapsed:        c.Elapsed,
		onProxyFailure: onFailure,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		pool := c.Pools[name]
		for _, secret := range pool.Primary {
			raw := secret.Reveal()
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
			if _, found := c.Pools[other]; !found {
				return nil, fmt.Errorf("fetchbox: pool %s: there is no pool %s to fall back on",
					name, other)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if _, err := w.routesFor(c.Types[name].proxy()); err != nil {
			return nil, fmt.Errorf("fetchbox: job type %s: %w", name, err)
		}
	}
	return w, nil
}

// close closes idle connections.
func (w *proxyRoutes) close() {
	w.direct.Close()
	for _, p := range w.proxies {
		p.client.Close()
	}
}

// routesFor lists the routes of a task in the order of its pools (FB-070): the primary pool, the
// pools it falls back on, then the task's own fallbacks. A proxy or pool that is named more than
// once counts once. Its error names a pool that is not defined: a direct producer may have named
// it, or the settings have changed since the task was stored.
func (w *proxyRoutes) routesFor(p *handler.Proxy) ([]route, error) {
	if p == nil || (p.Primary == "" && len(p.Fallbacks) == 0) {
		return []route{{client: w.direct}}, nil
	}
	var all []route
	visited := map[string]bool{} // pools and proxies
	var add func(pool string) error
	add = func(name string) error {
		pool, found := w.pools[name]
		if !found {
			return fmt.Errorf("there is no proxy pool %q", name)
		}
		if visited["pool "+name] {
			return nil
		}
		visited["pool "+name] = true
		for _, secret := range pool.Primary {
			raw := secret.Reveal()
			if !visited[raw] {
				visited[raw] = true
				all = append(all, route{client: w.proxies[raw].client, proxy: w.proxies[raw],
					pool: name})
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

// rotate orders routes for an attempt: each attempt starts one route later than the one before
// (FB-083), and proxies in their cooldown come last.
func (w *proxyRoutes) rotate(all []route, failedAttempts int) []route {
	first := failedAttempts % len(all)
	rotated := append(slices.Clone(all[first:]), all[:first]...)
	slices.SortStableFunc(rotated, func(a, b route) int {
		return w.cooldownRank(a.proxy) - w.cooldownRank(b.proxy)
	})
	return rotated
}

// cooldownRank is 1 for a proxy in its cooldown, otherwise 0.
func (w *proxyRoutes) cooldownRank(p *proxy) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.coolingDown && w.elapsed() < p.cooldownUntil {
		return 1
	}
	return 0
}

// do makes a request by the first route that works. A failure of a proxy itself leads to the next
// route; an error behind a working proxy is the result. If every proxy fails, it returns the error
// of the last one. When the context of the request has ended, no further route is tried and no
// proxy is blamed for it. The request has no body, so it can be sent again. The caller closes the
// body of the response.
func (w *proxyRoutes) do(req *http.Request, routes []route) (resp *http.Response, err error) {
	for _, r := range routes {
		resp, err = r.client.Do(req)
		if req.Context().Err() != nil {
			return resp, err
		}
		if _, failed := errors.AsType[*egress.ProxyError](err); failed {
			r.proxy.setCooldown(true, w.elapsed()+cooldown)
			w.onProxyFailure(r.pool)
			continue
		}
		if err != nil {
			return resp, err
		}
		if r.proxy != nil {
			r.proxy.setCooldown(false, 0)
		}
		return resp, nil
	}
	return nil, err
}

// setCooldown begins the cooldown of a proxy that has failed, or ends that of one that works.
func (p *proxy) setCooldown(coolingDown bool, until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coolingDown, p.cooldownUntil = coolingDown, until
}

// health pings every proxy. The pools are down if one of them has no working proxy, and degraded if
// only some proxies of a pool work. A ping connects to the proxy and makes no request through it. A
// proxy in its cooldown counts as one that does not work. detail names the pools that have lost
// proxies, without the URLs.
func (w *proxyRoutes) health(ctx context.Context) (status, detail string) {
	works := map[string]bool{}
	var mu sync.Mutex
	var pings sync.WaitGroup
	for raw, p := range w.proxies {
		pings.Go(func() {
			if w.cooldownRank(p) != 0 {
				return
			}
			if err := p.client.Ping(ctx); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			works[raw] = true
		})
	}
	pings.Wait()
	status = healthOK
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(w.pools)) {
		urls := w.pools[name].Primary
		working := 0
		for _, url := range urls {
			if works[url.Reveal()] {
				working++
			}
		}
		switch {
		case working == len(urls):
			continue
		case working == 0:
			status = healthDown
		case status == healthOK:
			status = healthDegraded
		}
		problems = append(problems, fmt.Sprintf("%s: %d of %d proxies work", name, working,
			len(urls)))
	}
	return status, strings.Join(problems, "; ")
}
