package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest"
)

// TestGroupsShareCommits has many callers wait behind one: they are committed together, and each
// keeps its own outcome.
func TestGroupsShareCommits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ran, times := map[string]int{}, map[time.Time]bool{}
	var ticks atomic.Int64
	clock := func() time.Time { return time.Unix(ticks.Add(1), 0) }
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "millrace.db"), Now: clock,
		Observe: func(name string, _ time.Duration, _ error) {
			mu.Lock()
			defer mu.Unlock()
			ran[name]++
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	const callers = 200
	unwanted := errors.New("unwanted")
	locked, free := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Update(context.Background(), func(store.Tx) error {
			close(locked)
			<-free
			return unwanted // it is not in the group of those behind it
		}); err != unwanted {
			t.Error(err)
		}
	})
	<-locked
	for i := range callers {
		all.Go(func() {
			err := s.Update(context.Background(), func(tx store.Tx) error {
				mu.Lock()
				times[tx.Now()] = true
				mu.Unlock()
				one := &job.Job{ID: job.ID{Key: fmt.Sprint(i)}}
				err := tx.Apply(store.Changes{Insert: []*job.Job{one}})
				if err == nil && i%2 == 1 {
					err = unwanted
				}
				return err
			})
			if (err == nil) != (i%2 == 0) {
				t.Error(err)
			}
		})
	}
	for len(s.requests) < callers {
		runtime.Gosched()
	}
	close(free)
	all.Wait()

	mu.Lock()
	t.Logf("%d updates in %d commits", callers, ran["COMMIT"])
	if ran["COMMIT"] > callers/4 || ran["insert_jobs"] != callers {
		t.Errorf("%v", ran)
	}
	if len(times) != callers {
		t.Errorf("%d updates began at %d times: each has its own", callers, len(times))
	}
	mu.Unlock()
	mustHave(t, s, callers/2)
}

func mustHave(t *testing.T, s *Store, n int) {
	t.Helper()
	if err := s.View(context.Background(), func(r store.Reader) error {
		jobs, err := storetest.Listed(r, store.Filter{})
		if len(jobs) != n {
			t.Errorf("%d jobs, want %d", len(jobs), n)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
