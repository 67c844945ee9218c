package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// children are what this binary does in a process of its own, on a database.
var children = map[string]func(path string) error{
	"open":    childOpen,
	"hang on": childHangOn,
	"migrate": childMigrate,
}

func TestMain(m *testing.M) {
	if run := children[os.Getenv("MILLRACE_TEST_CHILD")]; run != nil {
		if err := run(os.Getenv("MILLRACE_TEST_PATH")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(name, path string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "MILLRACE_TEST_CHILD="+name, "MILLRACE_TEST_PATH="+path)
	return c
}

func childOpen(path string) error {
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		return err
	}
	return s.Close()
}

// childHangOn opens, says so and waits to be killed.
func childHangOn(path string) error {
	if _, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: path, Now: time.Now}); err != nil {
		return err
	}
	fmt.Println("open")
	time.Sleep(time.Minute)
	return nil
}

func TestSecondOpenIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s := mustOpen(t, sqlite.Config{Path: path})

	holder := fmt.Sprintf("in use by process %d", os.Getpid())
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if !job.IsKind(err, job.Conflict) || !strings.Contains(err.Error(), holder) {
		t.Errorf("in this process: %v", err)
	}
	out, err := child("open", path).CombinedOutput()
	if err == nil || !strings.Contains(string(out), holder) {
		t.Errorf("in another process: %v %s", err, out)
	}
	mustInsert(t, s, "still works")
	s.Close()
	if out, err := child("open", path).CombinedOutput(); err != nil {
		t.Errorf("after close: %v %s", err, out)
	}
}

// A process that was killed holds nothing back.
func TestOpenAfterKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	c := child("hang on", path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	c.Process.Kill()
	c.Wait()
	mustInsert(t, mustOpen(t, sqlite.Config{Path: path}), "a")
}

func mustInsert(tb testing.TB, s *sqlite.Store, key string) *job.Job {
	tb.Helper()
	j := newJob(key)
	if err := s.Update(context.Background(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Insert: []*job.Job{j}})
	}); err != nil {
		tb.Fatal(err)
	}
	return j
}

func newJob(key string) *job.Job {
	return &job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: key}, Queue: "q",
		State: "queued", Phase: job.Ready}
}

// TestNumbersAreNew: a number says which job a run id belongs to, for ever.
func TestNumbersAreNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	var last int64
	for round := range 3 {
		s := mustOpen(t, sqlite.Config{Path: path})
		// The block of numbers taken in an update that is undone is not kept.
		s.Update(t.Context(), func(tx store.Tx) error {
			undone := store.Changes{Insert: []*job.Job{newJob("undone")}}
			if err := tx.Apply(undone); err != nil {
				t.Error(err)
			}
			return fmt.Errorf("undo")
		})
		for i := range 5 {
			j := mustInsert(t, s, fmt.Sprint(i))
			if j.Seq <= last {
				t.Errorf("round %d: number %d after %d", round, j.Seq, last)
			}
			last = j.Seq
			if err := s.Update(t.Context(), func(tx store.Tx) error {
				return tx.Apply(store.Changes{Delete: []*job.Job{j}})
			}); err != nil {
				t.Fatal(err)
			}
		}
		// One insert may need more than a block.
		if round == 1 {
			jobs := make([]*job.Job, 10_010)
			for i := range jobs {
				jobs[i] = newJob(fmt.Sprint("many", i))
			}
			if err := s.Update(t.Context(), func(tx store.Tx) error {
				return tx.Apply(store.Changes{Insert: jobs})
			}); err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				if j.Seq <= last {
					t.Fatalf("number %d after %d", j.Seq, last)
				}
				last = j.Seq
			}
		}
		s.Close()
	}
}

// rawDB opens a database file beside the store. A child has no tb.
func rawDB(tb testing.TB, path string) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=busy_timeout(5000)&_pragma=cache_size(-200)")
	if err != nil {
		panic(err)
	}
	if tb != nil {
		tb.Cleanup(func() { db.Close() })
	}
	return db
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	mustOpen(t, sqlite.Config{Path: path}).Close()
	if _, err := rawDB(t,
		path).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Now: time.Now})
		if !job.IsKind(err, job.ReadOnly) || !strings.Contains(err.Error(), "schema 99999") {
			t.Errorf("got %v", err)
		}
	}
	have, want, err := sqlite.SchemaVersion(t.Context(), path)
	if have != 99999 || want < 1 || err != nil {
		t.Errorf("have %d, want %d, %v", have, want, err)
	}
}

func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database. ", 1000)),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if !job.IsKind(err, job.ReadOnly) {
		t.Errorf("got %v", err)
	}
}
