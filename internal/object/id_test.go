package object_test

import (
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/object"
)

// TestID: a bucket without an id gets one from the first caller and keeps it; another bucket has
// another. A marker that was deleted is missing until somebody puts it back.
func TestID(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		if id, err := w.ID(t.Context()); id != "" || err != nil {
			t.Errorf("a new bucket has the id %q, %v", id, err)
		}
		ids := make([]string, 8)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				var err error
				if ids[i], err = w.CreateID(t.Context(), string(rune('a'+i))); err != nil {
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
		if err := w.Delete(t.Context(), "", ".millrace/id"); err != nil {
			t.Fatal(err)
		}
		if id, err := w.ID(t.Context()); id != "" || err != nil {
			t.Errorf("without its marker the bucket has the id %q, %v", id, err)
		}
		if id, err := w.CreateID(t.Context(), ids[0]); err != nil || id != ids[0] {
			t.Errorf("then %q, %v", id, err)
		}
	})
	w := mustOpenDirectory(t)
	other := mustOpen(t, object.Config{Dir: w.dir, Bucket: "other"})
	if _, err := w.CreateID(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if id, err := other.ID(t.Context()); id != "" || err != nil {
		t.Errorf("another bucket has the id %q, %v", id, err)
	}
}
