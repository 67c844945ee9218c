package fetchbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

type publisher = func(context.Context, []stream.Message) ([]uint64, error)

// flakyStore is a store whose updates fail, before or after they happened.
type flakyStore struct {
	store.Store
	failing atomic.Int32 // so many
	after   atomic.Bool  // written, but the caller gets an error
}

var errUnavailable = &job.Error{Kind: job.Unavailable, Op: "test",
	Msg: "the database is unavailable"}

func (f *flakyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if f.failing.Load() <= 0 {
		return f.Store.Update(ctx, fn)
	}
	if f.after.Load() {
		if err := f.Store.Update(ctx, fn); err != nil {
			return err
		}
	}
	f.failing.Add(-1)
	return errUnavailable
}

// TestTrouble: whatever fails on the way in, the answer is 500, there is no half job, and the same
// key works afterwards.
func TestTrouble(t *testing.T) {
	t.Parallel()
	afterwards := func(t *testing.T, w *world) {
		t.Helper()
		assertEqual(t, "resources", w.submit(t, manifest(3), keyHeader, "k").ResourceCount, 3)
		assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 3)
		assertEqual(t, "failed", w.counter(t, "ingest_jobs_total", "result", "failed"), 1)
	}
	t.Run("FB-044 FB-035 FB-049 the storage", func(t *testing.T) {
		w := inMemory(t, config())
		bucket := filepath.Join(w.dir, "millrace")
		_ = os.RemoveAll(bucket)
		// a file where the bucket should be
		if err := os.WriteFile(bucket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.post(t, manifest(3), keyHeader, "k").WantError(t, 500, "INTERNAL_ERROR")
		w.wantNothingStored(t)
		if err := os.Remove(bucket); err != nil {
			t.Fatal(err)
		}
		afterwards(t, w)
	})
	t.Run("FB-044 G-FB-20 an S3 store that hangs up", func(t *testing.T) {
		var asked atomic.Int32
		s3 := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked.Add(1)
			panic(http.ErrAbortHandler)
		}))
		defer s3.Close()
		w := inMemory(t, config())
		var err error
		if w.objects, err = object.Open(t.Context(), object.Config{Bucket: "millrace",
			URL: "s3://?region=us-east-1&use_path_style=true&anonymous=true&endpoint=" +
				s3.URL}); err != nil {
			t.Fatal(err)
		}
		defer w.objects.Close()
		w.open(t, config())
		w.post(t, manifest(3), keyHeader, "k").WantError(t, 500, "INTERNAL_ERROR")
		assertEqual(t, "tries", asked.Load(), 3)
		w.wantNothingStored(t)
	})
	t.Run("FB-044 FB-035 FB-049 the streams", func(t *testing.T) {
		w := inMemory(t, config())
		var unavailable atomic.Bool
		unavailable.Store(true)
		var asked atomic.Int32
		w.fetchbox.Publishing(func(next func(context.Context, []stream.Message) ([]uint64,
			error)) publisher {
			return func(ctx context.Context, messages []stream.Message) ([]uint64, error) {
				if unavailable.Load() {
					asked.Add(1)
					return nil, &job.Error{Kind: job.Unavailable, Op: "test"}
				}
				return next(ctx, messages)
			}
		})
		w.post(t, manifest(3), keyHeader, "k").WantError(t, 500, "INTERNAL_ERROR")
		unavailable.Store(false)
		assertEqual(t, "tries (G-FB-20)", asked.Load(), 3)
		w.wantNothingStored(t)
		afterwards(t, w)
	})
	t.Run("FB-044 the streams, once", func(t *testing.T) {
		w := inMemory(t, config())
		var failures atomic.Int32
		failures.Store(2)
		w.fetchbox.Publishing(func(next func(context.Context, []stream.Message) ([]uint64,
			error)) publisher {
			return func(ctx context.Context, messages []stream.Message) ([]uint64, error) {
				offsets, err := next(ctx, messages)
				if failures.Add(-1) >= 0 { // stored, but the answer was lost
					return nil, &job.Error{Kind: job.Unavailable, Op: "test"}
				}
				return offsets, err
			}
		})
		r := w.submit(t, manifest(3))
		assertEqual(t, "entries of the log", len(w.logs(t, r.JobID, "")), 1)
	})
}

func TestTroubleOfStore(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("written nevertheless %t", after), func(t *testing.T) {
			testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
				f := &flakyStore{Store: p.Store}
				f.after.Store(after)
				p.Store, p.Reopen = f, nil
				w := newWorldAt(t, p, config())
				t.Run("FB-044 FB-035 FB-049 three times", func(t *testing.T) {
					f.failing.Store(3)
					r := w.post(t, manifest(3), keyHeader, "k")
					f.failing.Store(0)
					if !after {
						r.WantError(t, 500, "INTERNAL_ERROR")
						assertEqual(t, "jobs",
							len(w.all(t, fetchbox.Name))+len(w.all(t, fetchbox.Tasks)), 0)
					} else { // the second try finds what the first has done
						r.WantStatus(t, 202)
					}
					again := w.submit(t, manifest(3), keyHeader, "k")
					assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), 1)
					assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 3)
					w.object(t, again.ManifestKey)
				})
				t.Run("FB-031 G-FB-20 twice", func(t *testing.T) {
					f.failing.Store(2)
					r := w.submit(t, manifest(2))
					assertEqual(t, "total", w.get(t, r.JobID).Total, 2)
					w.object(t, r.ManifestKey)
				})
			})
		})
	}
}

// TestCallerLeaves: a request that is given up leaves a whole job or none.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	t.Run("FB-035 a caller who leaves while the manifest is stored", func(t *testing.T) {
		w := inMemory(t, config())
		ctx, leave := context.WithCancel(context.Background())
		w.fetchbox.Publishing(func(func(context.Context, []stream.Message) ([]uint64,
			error)) publisher {
			return func(ctx context.Context, _ []stream.Message) ([]uint64, error) {
				assertEqual(t, "manifests before", len(w.stored(t)), 1)
				leave()
				<-ctx.Done()
				return nil, &job.Error{Kind: job.Aborted, Op: "test", Err: ctx.Err()}
			}
		})
		w.handler.ServeHTTP(httptest.NewRecorder(), w.request(t, manifest(3)).WithContext(ctx))
		assertEqual(t, "jobs", len(w.all(t, fetchbox.Name))+len(w.all(t, fetchbox.Tasks)), 0)
		assertEqual(t, "manifests", len(w.stored(t)), 0)
	})
}

// TestSweep is G-FB-02: a manifest whose job never came to be is removed, later.
func TestSweep(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		kept := w.submit(t, manifest(1))
		orphan := func() string {
			id := w.submit(t, manifest(1)).JobID
			return strings.Replace(kept.ManifestKey, kept.JobID, id, 1)
		}
		drop := func(uri string) { // the job is lost, the manifest stays
			parts := strings.Split(uri, "/")
			w.dropJob(t, parts[len(parts)-2])
		}
		old := orphan()
		drop(old)
		sweepOn := func(node *world) {
			if err := node.fetchbox.Sweep(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func() { sweepOn(w) }
		t.Run("G-FB-02 not before an hour", func(t *testing.T) {
			w.clock.Advance(59 * time.Minute)
			sweep()
			assertEqual(t, "manifests", len(w.stored(t)), 2)
		})
		t.Run("G-FB-02 then those without a job", func(t *testing.T) {
			young := orphan()
			drop(young)
			w.clock.Advance(2 * time.Minute)
			sweep()
			assertEqual(t, "manifests", len(w.stored(t)), 2)
			w.object(t, kept.ManifestKey)
			w.object(t, young)
		})
		t.Run("G-FB-02 one node sweeps at a time", func(t *testing.T) {
			other := w.node(t, config())
			drop(orphan())
			w.clock.Advance(3 * time.Hour)
			before := len(w.stored(t))
			sweepOn(other)
			assertEqual(t, "swept by the node that was elected", before-len(w.stored(t)), 2)
			drop(orphan())
			w.clock.Advance(61 * time.Minute)
			before = len(w.stored(t))
			sweepOn(other)
			assertEqual(t, "swept in its next term", before-len(w.stored(t)), 1)
			drop(kept.ManifestKey)
			sweep()
			assertEqual(t, "swept by another node in its term", len(w.stored(t)), before-1)
			w.clock.Advance(time.Hour)
			sweep()
			assertEqual(t, "swept after its term", before-1-len(w.stored(t)), 1)
		})
	})
}
