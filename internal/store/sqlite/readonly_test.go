package sqlite_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

func mustViews(t *testing.T, path string) *sqlite.Views {
	t.Helper()
	v, err := sqlite.OpenViews(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// seen reports whether a view has the job.
func seen(t *testing.T, v *sqlite.Views, key string) (there bool) {
	t.Helper()
	if err := v.View(t.Context(), func(r store.Reader) (err error) {
		there, err = r.Exists(newJob(key).ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return there
}

// Views run beside the process that has the database, and see all it has committed.
func TestViewsBesideAWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	v := mustViews(t, path)
	for _, key := range []string{"a", "b"} {
		if seen(t, v, key) {
			t.Errorf("%s is there before it is stored", key)
		}
		if err := update(s, key); err != nil {
			t.Fatal(err)
		}
		if !seen(t, v, key) {
			t.Errorf("%s is not seen", key)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !seen(t, mustViews(t, path), "b") {
		t.Error("b is not seen when the writer is gone")
	}
}

// What a crash left is read as it is: the log stays, and the file.
func TestViewsChangeNothing(t *testing.T) {
	t.Parallel()
	path, crashed := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := update(s, "a"); err != nil {
		t.Fatal(err)
	}
	had := map[string][]byte{}
	for _, end := range []string{"", "-wal"} {
		if had[end], err = os.ReadFile(path + end); err != nil || len(had[end]) == 0 {
			t.Fatal(len(had[end]), err)
		}
		if err := os.WriteFile(crashed+end, had[end], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := mustViews(t, crashed)
	if !seen(t, v, "a") {
		t.Error("what is in the log is not seen")
	}
	v.Close()
	for end, want := range had {
		if got, err := os.ReadFile(crashed + end); err != nil || !bytes.Equal(got, want) {
			t.Errorf("db%s has %d bytes, had %d: %v", end, len(got), len(want), err)
		}
	}
}

func TestViewsNeedADatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	_, err := sqlite.OpenViews(t.Context(), sqlite.Config{Path: path, Now: time.Now})
	if _, made := os.Stat(path); !job.IsKind(err, job.NotFound) || made == nil {
		t.Errorf("got %v; the file: %v", err, made)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = sqlite.OpenViews(t.Context(),
		sqlite.Config{Path: path, Now: time.Now}); err == nil {
		t.Error("an empty file passes for a database")
	}
}
