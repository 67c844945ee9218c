//go:build linux

package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/store/storetest"
)

func init() { children["limit"] = childLimit }

func TestIntegrityAfterCrowd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s := storetest.ClaimAll(t, func(tb testing.TB, clock func() time.Time) store.Store {
		return mustOpen(tb, sqlite.Config{Path: path, Now: clock})
	}, 50, 1000)
	check(t, path) // while it is open
	s.Close()
	check(t, path)
}

// ledger holds what callers of a store were answered.
type ledger struct {
	mu     sync.Mutex
	stored map[string]bool // what each key's update ended with
	errs   []error
}

// write has callers insert one job after another until each has met want outcomes of the given
// kind: errors when broken, else successes.
func (l *ledger) write(s *sqlite.Store, name string, broken bool, want int) error {
	const callers = 8
	body := bytes.Repeat([]byte("x"), 6000)
	var all sync.WaitGroup
	failed := make(chan error, callers)
	for i := range callers {
		all.Go(func() {
			for n, failures := 0, 0; failures < want; n++ {
				if n == 20_000 {
					failed <- fmt.Errorf("%s: does not come to that", name)
					return
				}
				j := newJob(fmt.Sprint(name, i, "-", n))
				j.Payload = body
				err := s.Update(context.Background(), func(tx store.Tx) error {
					return tx.Apply(store.Changes{Insert: []*job.Job{j}})
				})
				l.mu.Lock()
				l.stored[j.ID.Key] = err == nil
				if err != nil && !job.IsKind(err, job.Unavailable) {
					l.errs = append(l.errs, err)
				}
				l.mu.Unlock()
				if (err != nil) == broken {
					failures++
				}
				if err != nil && !broken {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// audit compares what callers were answered with what is stored.
func (l *ledger) audit(s *sqlite.Store) error {
	have := map[string]bool{}
	err := s.View(context.Background(), func(r store.Reader) error {
		jobs, err := storetest.Listed(r, store.Filter{Limit: math.MaxInt32})
		for _, j := range jobs {
			have[j.ID.Key] = true
		}
		return err
	})
	for key, want := range l.stored {
		if have[key] != want {
			err = errors.Join(err, fmt.Errorf("%s: answered %v, stored %v", key, want, have[key]))
		}
	}
	return errors.Join(err, errors.Join(l.errs...))
}

// breakAndHeal writes, breaks the disk, sees every write refused and every read served, heals it,
// and sees the same store go on.
func breakAndHeal(s *sqlite.Store, breakDisk, heal func() error) error {
	l := &ledger{stored: map[string]bool{}}
	for round := range 3 {
		for _, step := range []func() error{
			func() error { return l.write(s, fmt.Sprint("before", round), false, 3) },
			breakDisk,
			func() error { return l.write(s, fmt.Sprint("broken", round), true, 5) },
			func() error { return l.audit(s) },
			heal,
			func() error { return l.write(s, fmt.Sprint("after", round), false, 3) },
			func() error { return l.audit(s) },
		} {
			if err := step(); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
	}
	return nil
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", dir); err != nil {
		missing(t, err)
	}
	t.Cleanup(func() { run("umount", dir) })
	size := func(mib *int, by int) func() error {
		return func() error {
			*mib += by
			return run("mount", "-o", fmt.Sprintf("remount,size=%dm", *mib), dir)
		}
	}
	mib := 3
	path := filepath.Join(dir, "millrace.db")
	var refused atomic.Int64 // commits that the observer gets as unavailable
	s := mustOpen(t, sqlite.Config{Path: path,
		Observe: func(statement string, _ time.Duration, err error) {
			if statement == "COMMIT" && job.IsKind(err, job.Unavailable) {
				refused.Add(1)
			}
		}})
	if err := breakAndHeal(s, func() error { return nil }, size(&mib, 6)); err != nil {
		t.Error(err)
	}
	before := refused.Load()
	err := fillUp(s)
	if !job.IsKind(err, job.Unavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("the error of a full disk: %v", err)
	}
	if refused.Load() == before {
		t.Error("the observer was not called because a commit met a full disk")
	}
	s.Close()
	check(t, path)
}

func fillUp(s *sqlite.Store) (err error) {
	for i := 0; err == nil; i++ {
		j := newJob(fmt.Sprint("fill", i))
		j.Payload = bytes.Repeat([]byte("x"), 50_000)
		err = s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Insert: []*job.Job{j}})
		})
	}
	return err
}

// TestDiskError: the kernel refuses writes of a process beyond a file size, which is an I/O error
// to SQLite. The store must then distrust its log.
func TestDiskError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	if out, err := child("limit", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
	check(t, path)
}

func childLimit(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		return err
	}
	defer s.Close()
	var all syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		return err
	}
	log := func() int64 {
		st, err := os.Stat(path + "-wal")
		if err != nil {
			return -1
		}
		return st.Size()
	}
	var broken int64
	err = breakAndHeal(s, func() error {
		broken = log()
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE,
			&syscall.Rlimit{Cur: uint64(broken) + 5000, Max: all.Max})
	}, func() error {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
			return err
		}
		// The next update finds the log emptied by the reopening.
		if err := s.Update(context.Background(), func(tx store.Tx) error {
			_, err := tx.Exists(job.ID{})
			return err
		}); err != nil {
			return err
		}
		if n := log(); n >= broken {
			return fmt.Errorf("the log has %d bytes, had %d", n, broken)
		}
		return nil
	})
	return err
}

// TestReadOnlyFiles takes the right to write away from files that are open: an immutable file
// refuses even its owner. Writes are refused until it is given back; reads go on.
func TestReadOnlyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "millrace.db")
	s := mustOpen(t, sqlite.Config{Path: path})
	immutable := func(flag string) func() error {
		return func() error {
			return run("chattr", flag, path, path+"-wal")
		}
	}
	if err := immutable("+i")(); err != nil {
		missing(t, err)
	}
	defer immutable("-i")()
	if err := update(s, "refused"); !job.IsKind(err, job.Unavailable) {
		t.Errorf("read-only files: %v", err)
	}
	if err := update(s, "again"); !job.IsKind(err, job.Unavailable) ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("read-only files: %v", err)
	}
	if err := immutable("-i")(); err != nil {
		t.Fatal(err)
	}
	if err := breakAndHeal(s, immutable("+i"), immutable("-i")); err != nil {
		t.Error(err)
	}
	s.Close()
	check(t, path)
}

// TestReadOnlyDisk makes the file system under a running store read-only, as the kernel does with a
// disk that shows errors: writes are refused with a clear error and reads go on; on the repaired
// disk everything acknowledged is there.
func TestReadOnlyDisk(t *testing.T) {
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	mount := func() error { return run("mount", "-o", "loop,errors=remount-ro", image, dir) }
	for _, step := range []func() error{
		func() error { return os.WriteFile(image, make([]byte, 16<<20), 0o600) },
		func() error { return run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", image) },
		mount,
	} {
		if err := step(); err != nil {
			missing(t, err)
		}
	}
	t.Cleanup(func() { run("umount", dir) })
	path := filepath.Join(dir, "data", "millrace.db")
	s := mustOpen(t, sqlite.Config{Path: path})
	l := &ledger{stored: map[string]bool{}}
	device, err := exec.Command("findmnt", "-no", "SOURCE", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	fault := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(device))),
		"trigger_fs_error")
	for _, step := range []func() error{
		func() error { return l.write(s, "before", false, 5) },
		func() error { return os.WriteFile(fault, []byte("1"), 0o600) },
		func() error { return l.write(s, "broken", true, 5) },
		func() error { return l.audit(s) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := update(s, "refused"); !job.IsKind(err, job.Unavailable) ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only disk: %v", err)
	}
	s.Close()
	if err := run("umount", dir); err != nil {
		t.Fatal(err)
	}
	run("e2fsck", "-fy", image) // its exit code says that it mended something
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, sqlite.Config{Path: path})
	for _, step := range []func() error{
		func() error { return l.audit(s) },
		func() error { return l.write(s, "after", false, 3) },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	s.Close()
	check(t, path)
}

// update inserts one small job.
func update(s *sqlite.Store, key string) error {
	return s.Update(context.Background(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Insert: []*job.Job{newJob(key)}})
	})
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// missing skips what the system cannot do, but not where all tests must run.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	t.Skip("skipped: ", err)
}
