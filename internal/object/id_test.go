package object_test

import (
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/object"
)

// TestID: a bucket has one id, whoever asks first, and another bucket has another.
func TestID(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		ids := make([]string, 8)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				var err error
				if ids[i], err = w.ID(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] || id == "" {
				t.Errorf("got %q", ids)
			}
		}
		if repeated, err := w.ID(t.Context()); err != nil || repeated != ids[0] {
			t.Errorf("then %q, %v", repeated, err)
		}
	})
	w := mustOpenDirectory(t)
	other := mustOpen(t, object.Config{Dir: w.dir, Bucket: "other"})
	one, err := w.ID(t.Context())
	two, err2 := other.ID(t.Context())
	if err != nil || err2 != nil || one == two {
		t.Errorf("got %q %v and %q %v", one, err, two, err2)
	}
}
