package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/uuids"
)

// maxKeyAge is how long a key that was read is used without reading it again, and so the time in
// which a revocation reaches every node.
const maxKeyAge = time.Second

// maxCachedKeys bounds the keys in one generation of the keyCache.
const maxCachedKeys = 1 << 16

// keyCache holds the keys that were read within the last second, in two generations. When the young
// one is a second old or full it becomes the old one, and the keys of the former old one are
// dropped. Keys that do not exist are not cached, so guessing evicts no keys.
//
// Concurrent requests with the same uncached key share one read of the store. A key that changes is
// removed together with its read in progress: that read may have seen the key before the change, so
// only the requests that started before the change may use it.
type keyCache struct {
	elapsed func() time.Duration

	mu        sync.RWMutex
	rotatedAt time.Duration // when young began
	young     map[uuid.UUID]*keyView
	old       map[uuid.UUID]*keyView
	reads     map[uuid.UUID]*keyRead
}

// keyRead is a read of a key in progress.
type keyRead struct {
	startedAt time.Duration
	done      chan struct{}
	completed bool // false after done: the read has panicked
	view      *keyView
	err       error
}

func newKeyCache(elapsed func() time.Duration) *keyCache {
	return &keyCache{
		elapsed: elapsed,
		young:   map[uuid.UUID]*keyView{},
		reads:   map[uuid.UUID]*keyRead{},
	}
}

// get returns a key as it was at most maxKeyAge ago, or nil if it does not exist. A call that
// begins after invalidate has returned sees the key as it was after that change.
func (c *keyCache) get(ctx context.Context, id uuid.UUID,
	read func(context.Context, uuid.UUID) (*keyView, error)) (*keyView, error) {
	if v := c.lookup(id); v != nil {
		return v, nil
	}
	c.mu.Lock()
	if v := c.cached(id); v != nil { // a read has completed since the lookup
		c.mu.Unlock()
		return v, nil
	}
	r, waiting := c.reads[id]
	if !waiting {
		r = &keyRead{startedAt: c.elapsed(), done: make(chan struct{})}
		c.reads[id] = r
	}
	c.mu.Unlock()
	if !waiting {
		defer c.finishRead(id, r)
		r.view, r.err = read(ctx, id)
		r.completed = true
		return r.view, r.err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, errCanceled(ctx)
	}
	if !r.completed || r.err != nil || c.elapsed()-r.startedAt >= maxKeyAge {
		return read(ctx, id) // the shared read was too slow, or failed with its caller's context
	}
	return r.view, nil
}

// finishRead ends a read and caches the key, unless the key was invalidated meanwhile.
func (c *keyCache) finishRead(id uuid.UUID, r *keyRead) {
	c.mu.Lock()
	if c.reads[id] == r {
		delete(c.reads, id)
		c.insert(id, r.view)
	}
	c.mu.Unlock()
	close(r.done)
}

// lookup returns a cached key that is fresh, or nil.
func (c *keyCache) lookup(id uuid.UUID) *keyView {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.cached(id)
}

// cached returns a key that may be used without reading it again, or nil. The caller holds the
// lock.
func (c *keyCache) cached(id uuid.UUID) *keyView {
	v := c.young[id]
	if v == nil {
		v = c.old[id]
	}
	if (v == nil) || (c.elapsed()-v.readAt >= maxKeyAge) {
		return nil
	}
	return v
}

// insert caches a key that was read, and begins a new generation when it is time. The caller holds
// the lock.
func (c *keyCache) insert(id uuid.UUID, v *keyView) {
	if v == nil {
		return
	}
	if now := c.elapsed(); now-c.rotatedAt >= maxKeyAge || len(c.young) >= maxCachedKeys {
		c.old, c.young, c.rotatedAt = c.young, make(map[uuid.UUID]*keyView), now
	}
	c.young[id] = v
}

// invalidate drops a key that has changed, and its read in progress. An empty keyID is no key.
func (c *keyCache) invalidate(keyID string) {
	id, ok := uuids.Decode(keyID)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.young, id)
	delete(c.old, id)
	delete(c.reads, id)
}

// maxCachedCallbacks bounds the secrets in a generation of the callbackCache.
const maxCachedCallbacks = 4096

// callbackCache holds the callback secrets that were used last. They never change. It has two
// generations as the keyCache has.
type callbackCache struct {
	mu         sync.Mutex
	young, old map[string]string
}

func (c *callbackCache) get(id string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret, ok := c.young[id]
	if !ok {
		if secret, ok = c.old[id]; ok {
			c.insert(id, secret)
		}
	}
	return secret, ok
}

func (c *callbackCache) put(id, secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(id, secret)
}

func (c *callbackCache) insert(id, secret string) {
	if c.young == nil || len(c.young) >= maxCachedCallbacks {
		c.old, c.young = c.young, map[string]string{}
	}
	c.young[id] = secret
}
