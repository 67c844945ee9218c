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
	maxClientBuckets  = 1 << 17
	maxAddressBuckets = 1 << 16
)

// Allow counts a request of a client whose key is good (FR-205, FR-206, G-FR-15).
// One that is over a limit is not counted and costs no look into the store. The
// limits hold over all nodes; see the package for how much less they may grant.
func (a *Accounts) Allow(ctx context.Context, clientID string) (Decision, error) {
	return a.clients.allow(ctx, clientID)
}

// AllowAddress counts a request without a good key by where it comes from
// (G-FR-16): an IP address, with a port or without. Addresses of IPv6 count as
// one by their first 64 bits, as whoever has one has all of those.
func (a *Accounts) AllowAddress(ctx context.Context, address string) (Decision, error) {
	return a.addresses.allow(ctx, addressBucket(address))
}

// addressBucket is under what an address is counted.
func addressBucket(address string) string {
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
	engine     *engine.Engine
	prefix     string // of its records
	quotas     []quota
	maxBuckets int
	elapsed    func() time.Duration
	clock      storeClock

	mu      sync.RWMutex
	buckets map[string]*bucket
	evictAt int // how many meters there are when it is time to look for idle ones
}

func newLimiter(a *Accounts, prefix string, maxBuckets int, quotas []quota) *limiter {
	l := &limiter{engine: a.Engine, prefix: prefix, maxBuckets: maxBuckets, elapsed: a.Elapsed,
		clock:   storeClock{elapsed: a.Elapsed},
		buckets: map[string]*bucket{}, evictAt: min(1024, maxBuckets)}
	for _, q := range quotas {
		if q.limit > 0 {
			l.quotas = append(l.quotas, q)
		}
	}
	return l
}

func (l *limiter) allow(ctx context.Context, caller string) (Decision, error) {
	m := l.bucket(caller)
	if v, decided := m.take(l.quotas, l.clock.now()); decided {
		return v, nil
	}
	select {
	case m.leasing <- struct{}{}:
	case <-ctx.Done():
		return Decision{}, errCanceled(ctx)
	}
	defer func() { <-m.leasing }()
	for range maxLeaseTries {
		if v, decided := m.take(l.quotas, l.clock.now()); decided {
			return v, nil // who had the turn before has leased enough
		}
		if v, decided, err := l.leaseMore(ctx, caller, m); decided || err != nil {
			return v, err // else others have used up what did not have to be leased
		}
	}
	return Decision{}, &job.Error{Kind: job.Unavailable, Op: "account.allow",
		Msg: "too many requests of this caller at a time"}
}

// maxLeaseTries bounds how often a request finds that others were faster.
const maxLeaseTries = 100

// lease takes more of the windows for a meter whose turn the caller has, and one
// request out of that. It goes by the store's time in the transaction: what it is
// told then holds, however long the answer took.
func (l *limiter) leaseMore(ctx context.Context, caller string, m *bucket) (v Decision,
	decided bool, err error) {
	var leased []lease
	var now time.Time
	before := l.elapsed()
	err = l.engine.ChangeRecords(ctx, "account.usage/"+l.prefix+caller,
		func(w engine.RecordWriter) error {
			now, leased = w.Now(), make([]lease, len(l.quotas))
			for i, s := range m.currentLeases(l.quotas, now) {
				if s.remaining > 0 {
					continue
				}
				if leased[i], err = l.extendLease(w, caller, l.quotas[i], s); err != nil {
					return err
				}
				if leased[i].remaining == 0 {
					break // the request is refused: it needs nothing of the others
				}
			}
			return nil
		})
	if err != nil {
		return Decision{}, false, err
	}
	l.clock.observe(now, before, l.elapsed())
	v, decided = m.add(l.quotas, leased, now)
	return v, decided, nil
}

// usage is what was leased of a window, by all nodes.
type usage struct {
	From int64 `json:"from"` // Unix seconds
	Used int   `json:"used"`
}

// extendLease leases a piece of what is left of a quota's window, on top of what the
// node holds of it.
func (l *limiter) extendLease(w engine.RecordWriter, caller string, q quota, current lease) (lease,
	error) {
	key := l.prefix + caller + "/" + q.name
	_, used, err := readRecord[usage](w, usageKind, key)
	if err != nil {
		return lease{}, err
	}
	// A transaction that waited for the lock may find the next window begun. What
	// is further ahead is of before the clock was set back.
	from := w.Now().UTC().Truncate(q.length)
	if used == nil || used.From < from.Unix() || used.From > from.Add(q.length).Unix() {
		used = &usage{From: from.Unix()}
	}
	until := time.Unix(used.From, 0).UTC().Add(q.length)
	if !until.Equal(current.windowEnd) {
		current = lease{}
	}
	available := q.limit - used.Used
	n := q.leaseSize(available, current.leased)
	used.Used += n
	if n > 0 {
		err = putRecord(w, job.Record{Kind: usageKind, Key: key, ExpiresAt: until}, used)
	}
	return lease{windowEnd: until, leased: n, remaining: n, exhausted: available <= n}, err
}

// bucket returns a caller's meter.
func (l *limiter) bucket(caller string) *bucket {
	l.mu.RLock()
	m := l.buckets[caller]
	l.mu.RUnlock()
	if m != nil {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if m = l.buckets[caller]; m == nil {
		if len(l.buckets) >= l.evictAt {
			l.evict()
		}
		m = newBucket(len(l.quotas))
		l.buckets[caller] = m
	}
	return m
}

// evict forgets idle callers, and when that is not enough a quarter of the others.
func (l *limiter) evict() {
	now := l.clock.now()
	for caller, m := range l.buckets {
		if m.idle(now) {
			delete(l.buckets, caller)
		}
	}
	if len(l.buckets) >= l.maxBuckets {
		for caller := range l.buckets {
			if delete(l.buckets, caller); len(l.buckets) <= l.maxBuckets*3/4 {
				break
			}
		}
	}
	l.evictAt = min(max(1024, 2*len(l.buckets)), l.maxBuckets)
}
