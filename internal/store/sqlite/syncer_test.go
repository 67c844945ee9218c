package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// openWithSync opens a new database whose log is synced by a function of the test.
func openWithSync(t *testing.T, sync func(*os.File) error, pragmas ...string) *Store {
	t.Helper()
	s, err := Open(t.Context(), WithPragmas(Config{Now: time.Now,
		Path: filepath.Join(t.TempDir(), "millrace.db")}, pragmas...))
	if err != nil {
		t.Fatal(err)
	}
	s.syncer.sync = sync
	t.Cleanup(func() { s.Close() })
	return s
}

func insert(s *Store, key string) error {
	return s.Update(context.Background(), func(tx store.Tx) error {
		return insertJob(tx, key)
	})
}

func insertJob(tx store.Tx, key string) error {
	return tx.Apply(store.Changes{Insert: []*job.Job{{ID: job.ID{Key: key}}}})
}

// stored returns the keys of all jobs that a view shows.
func stored(s *Store) (map[string]bool, error) {
	keys := map[string]bool{}
	err := s.View(context.Background(), func(r store.Reader) error {
		jobs, err := r.List(store.Filter{})
		for _, j := range jobs {
			keys[j.ID.Key] = true
		}
		return err
	})
	return keys, err
}

// TestNothingIsAnsweredBeforeItsSync holds a sync: the update and a view that may have seen it
// wait, while the writer commits the next group.
func TestNothingIsAnsweredBeforeItsSync(t *testing.T) {
	t.Parallel()
	var syncs, answered atomic.Int64
	held, free := make(chan struct{}), make(chan struct{})
	s := openWithSync(t, func(f *os.File) error {
		if syncs.Add(1) == 1 {
			close(held)
			<-free
		}
		return disk.SyncData(f)
	})
	var all sync.WaitGroup
	defer all.Wait()
	call := func(name string, fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			answered.Add(1)
		})
	}
	call("first", func() error { return insert(s, "first") })
	<-held
	second := make(chan struct{})
	call("second", func() error {
		return s.Update(context.Background(), func(tx store.Tx) error {
			defer close(second)
			return insertJob(tx, "second")
		})
	})
	<-second // it is executed while the first is being synced
	viewed := make(chan struct{})
	call("view", func() error {
		return s.View(context.Background(), func(r store.Reader) error {
			defer close(viewed)
			jobs, err := r.List(store.Filter{})
			if len(jobs) == 0 {
				t.Error("the view came before the commit of the first")
			}
			return err
		})
	})
	<-viewed
	call("refused", func() error {
		unwanted := errors.New("unwanted") // it has read what is not durable
		if err := s.Update(context.Background(), func(store.Tx) error {
			return unwanted
		}); err != unwanted {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	for waiting := 0; waiting < 2; {
		s.syncer.mu.Lock()
		waiting = len(s.syncer.waiting) - 1 // the first is taken, but stands there
		s.syncer.mu.Unlock()
		runtime.Gosched()
	}
	if n := answered.Load(); n != 0 {
		t.Errorf("%d were answered before the sync had ended", n)
	}
	close(free)
	all.Wait()
	if keys, err := stored(s); err != nil || len(keys) != 2 {
		t.Errorf("got %v, %v", keys, err)
	}
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d syncs, want 2", n)
	}
}

// TestOnlyChangesAreSynced: an update that changes no row costs no sync.
func TestOnlyChangesAreSynced(t *testing.T) {
	t.Parallel()
	var syncs atomic.Int64
	s := openWithSync(t, func(f *os.File) error { syncs.Add(1); return disk.SyncData(f) })
	for range 3 {
		if err := s.Update(t.Context(), func(tx store.Tx) error {
			_, err := tx.LockReady("relay", "q", 1)
			return errors.Join(err, tx.Apply(store.Changes{
				DeleteRecords: []store.RecordKey{{Kind: "none", Key: "none"}}}))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n := syncs.Load(); n != 0 {
		t.Errorf("%d syncs after updates without a change", n)
	}
	if err := insert(s, "a"); err != nil || syncs.Load() != 1 {
		t.Errorf("%d syncs after a change, %v", syncs.Load(), err)
	}
}

// TestFailedSync: after a sync that failed nothing is acknowledged and nothing is shown of what may
// be lost, until the database is reopened with a new log. The failed sync is not repeated.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	var fails, failed atomic.Bool
	s := openWithSync(t, func(f *os.File) error {
		if fails.Load() {
			if failed.Swap(true) {
				t.Error("a failed sync was repeated")
			}
			return errors.New("input/output error")
		}
		return disk.SyncData(f)
	})
	if err := insert(s, "before"); err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	if err := insert(s, "unknown"); !job.IsKind(err, job.Unavailable) {
		t.Errorf("an update whose sync failed: %v", err)
	}
	if _, err := stored(s); !job.IsKind(err, job.Unavailable) {
		t.Errorf("a view of what may be lost: %v", err)
	}
	fails.Store(false)
	if err := insert(s, "after"); err != nil { // reopens the database
		t.Fatal(err)
	}
	keys, err := stored(s)
	if err != nil || !keys["before"] || !keys["after"] {
		t.Errorf("got %v, %v", keys, err)
	}
	if info, err := os.Stat(s.config.Path + "-wal"); err != nil || info.Size() > 100_000 {
		t.Errorf("the log was not begun again: %v", err)
	}
}

// TestCrashModel drops what was not synced. Whenever an update returns, a crash keeps the log as it
// was when the last sync began and any of the pages behind that, as a disk without power does. All
// that was acknowledged must be there afterwards.
func TestCrashModel(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // of durable, and of acknowledgements in the order of their crashes
	var path string
	var durable []byte
	s := openWithSync(t, func(f *os.File) error {
		written, err := os.ReadFile(path + "-wal")
		if err != nil {
			return err
		}
		err = disk.SyncData(f)
		mu.Lock()
		defer mu.Unlock()
		durable = written
		return err
	}, "wal_autocheckpoint(0)")
	path = s.config.Path
	const callers, each = 4, 10
	var logs [][]byte // after the first, second … acknowledgement
	crash := func() error {
		mu.Lock()
		defer mu.Unlock()
		written, err := os.ReadFile(path + "-wal")
		logs = append(logs, tear(durable, written))
		return err
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				if err := errors.Join(insert(s, fmt.Sprintf("%d-%d", c, i)), crash()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	file, err := os.ReadFile(path)
	if err != nil || len(logs) != callers*each {
		t.Fatalf("%d crashes, %v", len(logs), err)
	}
	for i, log := range logs {
		crashed := filepath.Join(t.TempDir(), "millrace.db")
		if err := errors.Join(os.WriteFile(crashed, file, 0o600),
			os.WriteFile(crashed+"-wal", log, 0o600)); err != nil {
			t.Fatal(err)
		}
		mustRecover(t, crashed, i+1, fmt.Sprint("crash ", i))
	}
}

// tear returns a log that has all of synced and, of each page written since, either the new content
// or zeros.
func tear(synced, written []byte) []byte {
	torn := append([]byte{}, written...)
	for at := len(synced) &^ 4095; at < len(written); at += 4096 {
		if rand.N(2) == 0 {
			continue
		}
		page := torn[at:min(at+4096, len(torn))]
		clear(page)
		copy(page, synced[min(at, len(synced)):])
	}
	return torn[:len(synced)+rand.N(len(written)-len(synced)+1)]
}

// mustRecover opens a database after a crash: at least so many jobs are stored in it.
func mustRecover(t *testing.T, path string, jobs int, name string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer s.Close()
	keys, err := stored(s)
	if err != nil || len(keys) < jobs {
		t.Errorf("%s: %d jobs of %d that were acknowledged, %v", name, len(keys), jobs, err)
	}
}
