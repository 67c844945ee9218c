package account

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxKeyAge is how long what was read of a key is believed: the time in which a
// revocation reaches every node.
const maxKeyAge = time.Second

// maxCachedKeys bounds the keys held in a generation.
const maxCachedKeys = 1 << 16

// keyCache holds keys that were read within the last second. There are two
// generations: when the young one is a second old or full it becomes the old
// one, and what was in that is gone. Keys that do not exist are not held, so that
// guessing fills nothing and pushes nobody out.
type keyCache struct {
	elapsed func() time.Duration

	mu        sync.RWMutex
	rotatedAt time.Duration // when young began
	young     map[uuid.UUID]*keyView
	old       map[uuid.UUID]*keyView
	reads     map[uuid.UUID]*keyRead
}

// keyRead is a look into the store that is under way; as many wait for it as ask.
type keyRead struct {
	startedAt time.Duration
	done      chan struct{}
	completed bool // and did not panic
	view      *keyView
	err       error
}

func newKeyCache(elapsed func() time.Duration) *keyCache {
	return &keyCache{elapsed: elapsed, young: map[uuid.UUID]*keyView{},
		reads: map[uuid.UUID]*keyRead{}}
}

// get returns a key as it was at most maxKeyAge ago, and as it was after every
// drop of it that has returned. nil if there is none.
func (c *keyCache) get(ctx context.Context, id uuid.UUID,
	read func(context.Context, uuid.UUID) (*keyView, error)) (*keyView, error) {
	if v := c.lookup(id); v != nil {
		return v, nil
	}
	c.mu.Lock()
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
	if r.completed && r.err == nil && c.elapsed()-r.startedAt < maxKeyAge {
		return r.view, nil
	}
	return read(ctx, id) // that one was slow, or its caller went away
}

// finishRead ends a read and keeps what it brought, unless it was dropped since.
func (c *keyCache) finishRead(id uuid.UUID, r *keyRead) {
	c.mu.Lock()
	if c.reads[id] == r {
		delete(c.reads, id)
		c.insert(id, r.view)
	}
	c.mu.Unlock()
	close(r.done)
}

func (c *keyCache) isFresh(v *keyView) bool {
	return v != nil && c.elapsed()-v.readAt < maxKeyAge
}

func (c *keyCache) lookup(id uuid.UUID) *keyView {
	c.mu.RLock()
	v := c.young[id]
	if v == nil {
		v = c.old[id]
	}
	c.mu.RUnlock()
	if !c.isFresh(v) {
		return nil
	}
	return v
}

func (c *keyCache) insert(id uuid.UUID, v *keyView) {
	if v == nil {
		return
	}
	if now := c.elapsed(); now-c.rotatedAt >= maxKeyAge || len(c.young) >= maxCachedKeys {
		c.old, c.young, c.rotatedAt = c.young, make(map[uuid.UUID]*keyView), now
	}
	c.young[id] = v
}

// invalidate forgets a key that has changed, also where it is just being read.
func (c *keyCache) invalidate(keyID string) {
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

// maxCachedCallbacks bounds the secrets in a generation of the callbackCache.
const maxCachedCallbacks = 4096

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
