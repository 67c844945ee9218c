package account

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// How a request is counted:
//
//	bucket of the caller has leased requests left ──► take one (no access to the store)
//	window is known to be used up                ──► refuse    (no access to the store)
//	otherwise                                    ──► lease more in a transaction, take one
//
// Only one request of a caller leases at a time; the others wait for it and then look again.

// Bounds of the callers that a node counts at a time. A caller whose bucket is dropped before its
// windows end may be granted less, never more.
const (
	maxClientBuckets  = 1 << 17
	maxAddressBuckets = 1 << 16
)

// The prefixes of the keys of records.
const (
	clientPrefix  = "c/"
	addressPrefix = "a/"
)

// Allow counts a request of a client with a valid key (FR-205, FR-206, G-FR-15). A refused request
// is not counted. The limits hold over all nodes; the package's documentation says how much less
// they may grant.
func (a *Accounts) Allow(ctx context.Context, by Identity) (Decision, error) {
	limits := a.clients.limits
	if by.limits != nil {
		limits = *by.limits
	}
	return a.clients.allow(ctx, by.ClientID, limits)
}

// AllowAddress counts a request without a valid key by its IP address, with a port or without
// (G-FR-16). IPv6 addresses are counted by their first 64 bits, since a network is given all
// addresses behind one such prefix.
func (a *Accounts) AllowAddress(ctx context.Context, address string) (Decision, error) {
	return a.addresses.allow(ctx, addressBucket(address), a.addresses.limits)
}

// addressBucket returns the name under which an address is counted. An address that cannot be
// parsed is counted with all others of its sort, so that it is not free of the limit.
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

// limiter counts the requests of clients, or of addresses.
type limiter struct {
	engine     *engine.Engine
	prefix     string // of its records
	limits     Limits // of callers that have none of their own
	maxBuckets int
	elapsed    func() time.Duration
	clock      storeClock

	mu      sync.RWMutex
	buckets map[string]*bucket
	evictAt int // the number of buckets at which idle ones are dropped
}

// newLimiter makes a limiter. prefix keeps the records of clients and of addresses apart.
func newLimiter(a *Accounts, prefix string, maxBuckets int, limits Limits) *limiter {
	return &limiter{
		engine:     a.Engine,
		prefix:     prefix,
		limits:     limits,
		maxBuckets: maxBuckets,
		elapsed:    a.Elapsed,
		clock:      storeClock{elapsed: a.Elapsed},
		buckets:    map[string]*bucket{},
		evictAt:    min(1024, maxBuckets),
	}
}

// allow counts a request of a caller, or refuses it. Its errors are the store's, and errCanceled
// for a caller that leaves while it waits: the request is neither allowed nor counted then, and the
// contract decides what to answer.
func (l *limiter) allow(ctx context.Context, caller string, limits Limits) (Decision, error) {
	m := l.bucket(caller)
	if v, decided := m.take(limits, l.clock.now()); decided {
		return v, nil
	}
	select {
	case m.leasing <- struct{}{}:
	case <-ctx.Done():
		return Decision{}, errCanceled(ctx)
	}
	defer func() { <-m.leasing }()
	for range maxLeaseAttempts {
		if v, decided := m.take(limits, l.clock.now()); decided {
			return v, nil // the request before this one has leased enough
		}
		v, decided, err := l.leaseMore(ctx, caller, limits, m)
		if decided || err != nil {
			return v, err
		}
		// Other requests have used up a lease of another quota meanwhile.
	}
	return Decision{}, &job.Error{Kind: job.Unavailable, Op: "account.allow",
		Msg: "too many requests of this caller at a time"}
}

// maxLeaseAttempts bounds how often a request tries to lease because others were faster.
const maxLeaseAttempts = 100

// leaseMore leases requests of those windows of which the bucket has none left, and takes one for
// this request. The caller must have m.leasing. Windows are chosen by the transaction's time, so
// the lease is right however long the commit took. It is the only access of the limiter to the
// store: one transaction for many requests.
func (l *limiter) leaseMore(ctx context.Context, caller string, limits Limits,
	m *bucket) (v Decision, decided bool, err error) {
	quotas := limits.quotas()
	var leased []lease
	var now time.Time
	before := l.elapsed()
	err = l.engine.ChangeRecords(ctx, "account.usage/"+l.prefix+caller,
		func(w engine.RecordWriter) error {
			now, leased = w.Now(), make([]lease, len(quotas))
			for i, s := range m.currentLeases(limits, now) {
				if s.remaining > 0 {
					continue
				}
				if leased[i], err = l.extendLease(w, caller, quotas[i], s); err != nil {
					return err
				}
				if leased[i].remaining == 0 {
					break // the request is refused and needs no lease of the other quotas
				}
			}
			return nil
		})
	if err != nil {
		return Decision{}, false, err
	}
	l.clock.observe(now, before, l.elapsed())
	v, decided = m.add(limits, leased, now)
	return v, decided, nil
}

// usage is the record of a window that all nodes share.
type usage struct {
	From int64 `json:"from"` // the window's beginning in Unix seconds
	Used int   `json:"used"` // requests that nodes have leased
}

// current returns the usage of a quota's window, given its stored record; nil for none. A
// transaction that waited for the lock may find that the next window has begun. A record further
// ahead was written before the store's clock was set back.
func (u *usage) current(q quota, now time.Time) usage {
	from := now.UTC().Truncate(q.length)
	if u == nil || u.From < from.Unix() || u.From > from.Add(q.length).Unix() {
		return usage{From: from.Unix()}
	}
	return *u
}

// extendLease leases a part of the rest of a quota's window. current is what the node has leased of
// it before.
func (l *limiter) extendLease(w engine.RecordWriter, caller string, q quota, current lease) (lease,
	error) {
	key := l.prefix + caller + "/" + q.name
	_, stored, err := readRecord[usage](w, usageKind, key)
	if err != nil {
		return lease{}, err
	}
	used := stored.current(q, w.Now())
	until := time.Unix(used.From, 0).UTC().Add(q.length)
	if !until.Equal(current.windowEnd) {
		current = lease{}
	}
	available := max(0, q.limit-used.Used) // the limit may have been higher
	n := q.leaseSize(available, current.leased)
	used.Used += n
	if n > 0 {
		record := job.Record{Kind: usageKind, Key: key, ExpiresAt: until}
		if err := putRecord(w, record, used); err != nil {
			return lease{}, err
		}
	}
	return lease{windowEnd: until, leased: n, remaining: n, exhausted: available <= n}, nil
}

// bucket returns a caller's bucket and makes it if there is none.
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
		m = newBucket()
		l.buckets[caller] = m
	}
	return m
}

// evict drops idle buckets and, if too many are left, some of the others, down to three quarters of
// maxBuckets.
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
