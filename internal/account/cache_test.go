package account

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestKeyCache lets things happen while a key is being read.
func TestKeyCache(t *testing.T) {
	t.Parallel()
	t.Run("FR-050 what is dropped while it is read is not kept", func(t *testing.T) {
		t.Parallel()
		c := newKeyCache(func() time.Duration { return 0 })
		view, err := c.get(t.Context(), exampleID,
			func(context.Context, uuid.UUID) (*keyView, error) {
				c.invalidate(exampleID.String())
				return &keyView{key: Key{ID: "old"}}, nil
			})
		if err != nil || view == nil {
			t.Fatal(view, err)
		}
		view, _ = c.get(t.Context(), exampleID, func(context.Context, uuid.UUID) (*keyView, error) {
			return &keyView{key: Key{ID: "new"}}, nil
		})
		if view.key.ID != "new" {
			t.Error("the key as it was before the change was kept")
		}
	})
	t.Run("those who wait for a reader that fails read for themselves", func(t *testing.T) {
		t.Parallel()
		c := newKeyCache(func() time.Duration { return 0 })
		reading, joined := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.get(t.Context(), exampleID,
				func(context.Context, uuid.UUID) (*keyView, error) {
					close(reading)
					<-joined
					return nil, errors.New("the request was canceled")
				})
			if err == nil {
				t.Error("the error got lost")
			}
		})
		<-reading
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.get(ended, exampleID, nil); err == nil {
			t.Error("who went away got an answer")
		}
		wg.Go(func() {
			v, err := c.get(t.Context(), exampleID,
				func(context.Context, uuid.UUID) (*keyView, error) {
					return &keyView{}, nil
				})
			if v == nil || err != nil {
				t.Error(v, err)
			}
		})
		close(joined)
		wg.Wait()
	})
	t.Run("after a panic no caller waits", func(t *testing.T) {
		t.Parallel()
		c := newKeyCache(func() time.Duration { return 0 })
		func() {
			defer func() { _ = recover() }()
			_, _ = c.get(t.Context(), exampleID,
				func(context.Context, uuid.UUID) (*keyView, error) {
					panic("x")
				})
		}()
		if v, err := c.get(t.Context(), exampleID,
			func(context.Context, uuid.UUID) (*keyView, error) {
				return &keyView{}, nil
			}); v == nil || err != nil {
			t.Error(v, err)
		}
	})
	t.Run("two generations at most", func(t *testing.T) {
		t.Parallel()
		now := time.Duration(0)
		c := newKeyCache(func() time.Duration { return now })
		read := func(context.Context, uuid.UUID) (*keyView, error) {
			return &keyView{readAt: now}, nil
		}
		for i := range 3 * maxCachedKeys {
			_, _ = c.get(t.Context(), uuid.UUID{byte(i), byte(i >> 8), byte(i >> 16)}, read)
		}
		if cached := len(c.young) + len(c.old); cached > 2*maxCachedKeys {
			t.Errorf("%d keys are cached", cached)
		}
		for range 3 {
			now += maxKeyAge
			_, _ = c.get(t.Context(), exampleID, read)
		}
		if cached := len(c.young) + len(c.old); cached > 2 {
			t.Errorf("%d keys are cached that were not used lately", cached)
		}
	})
	t.Run("callback secrets", func(t *testing.T) {
		t.Parallel()
		c := &callbackCache{}
		for i := range 3 * maxCachedCallbacks {
			c.put(uuid.UUID{byte(i), byte(i >> 8)}.String(), "s")
			c.put("often", "asked for")
		}
		if cached := len(c.young) + len(c.old); cached > 2*maxCachedCallbacks+2 {
			t.Errorf("%d secrets are cached", cached)
		}
		if s, ok := c.get("often"); !ok || s != "asked for" {
			t.Error("what is asked for often was forgotten")
		}
	})
}
