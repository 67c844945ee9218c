package account

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Bounds of the callers that a node counts at a time. One that is forgotten
// earlier than its windows end may be granted less, never more.
const (
	clientMeters  = 1 << 17
	addressMeters = 1 << 16
)

// Allow counts a request of a client whose key is good (FR-205, FR-206, G-FR-15).
// One that is over a limit is not counted and costs no look into the store. The
// limits hold over all nodes; see the package for how much less they may grant.
func (a *Accounts) Allow(ctx context.Context, clientID string) (Verdict, error) {
	return a.clients.allow(ctx, clientID)
}

// AllowAddress counts a request without a good key by where it comes from
// (G-FR-16): an IP address, with a port or without. Addresses of IPv6 count as
// one by their first 64 bits, as whoever has one has all of those.
func (a *Accounts) AllowAddress(ctx context.Context, address string) (Verdict, error) {
	return a.addresses.allow(ctx, neighbourhood(address))
}

// neighbourhood is under what an address is counted.
func neighbourhood(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		withPort, err := netip.ParseAddrPort(address)
		if err != nil {
			return "unknown"
		}
		ip = withPort.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64)
		return prefix.String()
	}
	return ip.String()
}

// limiter counts callers of one sort.
type limiter struct {
	engine  *engine.Engine
	prefix  string // of its records
	quotas  []quota
	most    int
	elapsed func() time.Duration
	clock   storeClock

	mu     sync.RWMutex
	meters map[string]*meter
	tidyAt int // how many meters there are when it is time to look for idle ones
}

func newLimiter(a *Accounts, prefix string, most int, quotas []quota) *limiter {
	l := &limiter{engine: a.Engine, prefix: prefix, most: most, elapsed: a.Elapsed, clock: storeClock{elapsed: a.Elapsed},
		meters: map[string]*meter{}, tidyAt: min(1024, most)}
	for _, q := range quotas {
		if q.limit > 0 {
			l.quotas = append(l.quotas, q)
		}
	}
	return l
}

func (l *limiter) allow(ctx context.Context, caller string) (Verdict, error) {
	m := l.meter(caller)
	if v, known := m.take(l.quotas, l.clock.now()); known {
		return v, nil
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return Verdict{}, gaveUp(ctx)
	}
	defer func() { <-m.turn }()
	for range leaseTries {
		if v, known := m.take(l.quotas, l.clock.now()); known {
			return v, nil // who had the turn before has leased enough
		}
		if v, known, err := l.lease(ctx, caller, m); known || err != nil {
			return v, err // else others have used up what did not have to be leased
		}
	}
	return Verdict{}, &job.Error{Kind: job.Unavailable, Op: "account.allow", Msg: "too many requests of this caller at a time"}
}

// leaseTries bounds how often a request finds that others were faster.
const leaseTries = 100

// lease takes more of the windows for a meter whose turn the caller has, and one
// request out of that. It goes by the store's time in the transaction: what it is
// told then holds, however long the answer took.
func (l *limiter) lease(ctx context.Context, caller string, m *meter) (v Verdict, known bool, err error) {
	var leased []share
	var now time.Time
	before := l.elapsed()
	err = l.engine.ChangeRecords(ctx, "account.usage/"+l.prefix+caller, func(w engine.RecordWriter) error {
		now, leased = w.Now(), make([]share, len(l.quotas))
		for i, s := range m.held(l.quotas, now) {
			if s.left > 0 {
				continue
			}
			if leased[i], err = l.extend(w, caller, l.quotas[i], s); err != nil {
				return err
			}
			if leased[i].left == 0 {
				break // the request is refused: it needs nothing of the others
			}
		}
		return nil
	})
	if err != nil {
		return Verdict{}, false, err
	}
	l.clock.saw(now, before, l.elapsed())
	v, known = m.add(l.quotas, leased, now)
	return v, known, nil
}

// usage is what was leased of a window, by all nodes.
type usage struct {
	From int64 `json:"from"` // Unix seconds
	Used int   `json:"used"`
}

// extend leases a piece of what is left of a quota's window, on top of what the
// node holds of it.
func (l *limiter) extend(w engine.RecordWriter, caller string, q quota, held share) (share, error) {
	key := l.prefix + caller + "/" + q.name
	_, used, err := read[usage](w, usageKind, key)
	if err != nil {
		return share{}, err
	}
	// A transaction that waited for the lock may find the next window begun. What
	// is further ahead is of before the clock was set back.
	from := w.Now().UTC().Truncate(q.length)
	if used == nil || used.From < from.Unix() || used.From > from.Add(q.length).Unix() {
		used = &usage{From: from.Unix()}
	}
	until := time.Unix(used.From, 0).UTC().Add(q.length)
	if !until.Equal(held.until) {
		held = share{}
	}
	rest := q.limit - used.Used
	n := q.lease(rest, held.taken)
	used.Used += n
	if n > 0 {
		err = write(w, job.Record{Kind: usageKind, Key: key, ExpiresAt: until}, used)
	}
	return share{until: until, taken: n, left: n, last: rest <= n}, err
}

// meter returns a caller's meter.
func (l *limiter) meter(caller string) *meter {
	l.mu.RLock()
	m := l.meters[caller]
	l.mu.RUnlock()
	if m != nil {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m = l.meters[caller]; m == nil {
		if len(l.meters) >= l.tidyAt {
			l.tidy()
		}
		m = newMeter(len(l.quotas))
		l.meters[caller] = m
	}
	return m
}

// tidy forgets idle callers, and when that is not enough a quarter of the others.
func (l *limiter) tidy() {
	now := l.clock.now()
	for caller, m := range l.meters {
		if m.idle(now) {
			delete(l.meters, caller)
		}
	}
	if len(l.meters) >= l.most {
		for caller := range l.meters {
			if delete(l.meters, caller); len(l.meters) <= l.most*3/4 {
				break
			}
		}
	}
	l.tidyAt = min(max(1024, 2*len(l.meters)), l.most)
}
