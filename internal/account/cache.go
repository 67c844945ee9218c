package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// freshFor is how long what was read of a key is believed: the time in which a
// revocation reaches every node.
const freshFor = time.Second

// cachedKeys bounds the keys held in a generation.
const cachedKeys = 1 << 16

// keyCache holds keys that were read within the last second. There are two
// generations: when the young one is a second old or full it becomes the old
// one, and what was in that is gone. Keys that do not exist are not held, so that
// guessing fills nothing and pushes nobody out.
type keyCache struct {
	elapsed func() time.Duration

	mu     sync.RWMutex
	turned time.Duration // when young began
	young  map[uuid.UUID]*keyView
	old    map[uuid.UUID]*keyView
	reads  map[uuid.UUID]*keyRead
}

// keyRead is a look into the store that is under way; as many wait for it as ask.
type keyRead struct {
	began time.Duration
	done  chan struct{}
	ended bool // and did not panic
	view  *keyView
	err   error
}

func newKeyCache(elapsed func() time.Duration) *keyCache {
	return &keyCache{elapsed: elapsed, young: map[uuid.UUID]*keyView{}, reads: map[uuid.UUID]*keyRead{}}
}

// get returns a key as it was at most freshFor ago, and as it was after every
// drop of it that has returned. nil if there is none.
func (c *keyCache) get(ctx context.Context, id uuid.UUID, read func(context.Context, uuid.UUID) (*keyView, error)) (*keyView, error) {
	if v := c.held(id); v != nil {
		return v, nil
	}
	c.mu.Lock()
	r, joined := c.reads[id]
	if !joined {
		r = &keyRead{began: c.elapsed(), done: make(chan struct{})}
		c.reads[id] = r
	}
	c.mu.Unlock()
	if !joined {
		defer c.leave(id, r)
		r.view, r.err = read(ctx, id)
		r.ended = true
		return r.view, r.err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, gaveUp(ctx)
	}
	if r.ended && r.err == nil && c.elapsed()-r.began < freshFor {
		return r.view, nil
	}
	return read(ctx, id) // that one was slow, or its caller went away
}

// leave ends a read and keeps what it brought, unless it was dropped since.
func (c *keyCache) leave(id uuid.UUID, r *keyRead) {
	c.mu.Lock()
	if c.reads[id] == r {
		delete(c.reads, id)
		c.keep(id, r.view)
	}
	c.mu.Unlock()
	close(r.done)
}

func (c *keyCache) fresh(v *keyView) bool {
	return v != nil && c.elapsed()-v.began < freshFor
}

func (c *keyCache) held(id uuid.UUID) *keyView {
	c.mu.RLock()
	v := c.young[id]
	if v == nil {
		v = c.old[id]
	}
	c.mu.RUnlock()
	if !c.fresh(v) {
		return nil
	}
	return v
}

func (c *keyCache) keep(id uuid.UUID, v *keyView) {
	if v == nil {
		return
	}
	if now := c.elapsed(); now-c.turned >= freshFor || len(c.young) >= cachedKeys {
		c.old, c.young, c.turned = c.young, make(map[uuid.UUID]*keyView), now
	}
	c.young[id] = v
}

// drop forgets a key that has changed, also where it is just being read.
func (c *keyCache) drop(keyID string) {
	id, err := uuid.Parse(keyID)
	if err != nil {
		return // no key
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.young, id)
	delete(c.old, id)
	delete(c.reads, id)
}

// cachedCallbacks bounds the secrets in a generation of the callbackCache.
const cachedCallbacks = 4096

// callbackCache holds secrets that never change, those that were asked for last.
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
			c.keep(id, secret)
		}
	}
	return secret, ok
}

func (c *callbackCache) put(id, secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(id, secret)
}

func (c *callbackCache) keep(id, secret string) {
	if c.young == nil || len(c.young) >= cachedCallbacks {
		c.old, c.young = c.young, map[string]string{}
	}
	c.young[id] = secret
}
