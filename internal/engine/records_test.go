package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

func TestRecords(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		refused := errors.New("refused")
		change := func(fn func(engine.RecordWriter) error) error {
			return w.engine.ChangeRecords(w.ctx, "lock", fn)
		}
		w.noError(change(func(r engine.RecordWriter) error {
			return r.UpsertRecords(job.Record{Kind: "k", Key: "b", Owner: "o"},
				job.Record{Kind: "k", Key: "a", Owner: "o", ExpiresAt: r.Now().Add(time.Minute)})
		}))
		if err := change(func(r engine.RecordWriter) error {
			return errors.Join(r.DeleteRecords("k", "a", "b"),
				r.UpsertRecords(job.Record{Kind: "k", Key: "c"}), refused)
		}); !errors.Is(err, refused) {
			w.Error(err)
		}
		are := func(want ...string) {
			w.Helper()
			w.noError(w.engine.ViewRecords(w.ctx, func(r engine.RecordReader) error {
				var keys []string
				all, err := r.Records("k", "o", "", 10)
				for _, one := range all {
					keys = append(keys, one.Key)
				}
				if !slices.Equal(keys, want) {
					w.Errorf("the records are %v, want %v", keys, want)
				}
				for _, key := range []string{"a", "b", "c"} {
					if one, err := r.Record("k", key); err != nil ||
						(one != nil) != slices.Contains(want, key) {
						w.Error(key, one, err)
					}
				}
				return err
			}))
		}
		are("a", "b")
		w.clock.Advance(time.Minute)
		are("b")
		if n, err := w.engine.Prune(w.ctx); n != 1 || err != nil {
			w.Errorf("pruned %d: %v", n, err)
		}
		w.noError(change(func(r engine.RecordWriter) error { return r.DeleteRecords("k", "b", "none") }))
		are()
	})
}

// Changes under one lock do not lose each other's work, on all nodes.
func TestRecordChangesRunOneAfterAnother(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 10 {
					if err := nodes[i%2].ChangeRecords(w.ctx, "counter",
						func(r engine.RecordWriter) error {
							n := 0
							if one, err := r.Record("k", "n"); err != nil {
								return err
							} else if one != nil {
								n, _ = strconv.Atoi(string(one.Body))
							}
							return r.UpsertRecords(job.Record{Kind: "k", Key: "n",
								Body: fmt.Append(nil, n+1)})
						}); err != nil {
						w.Error(err)
					}
				}
			})
		}
		wg.Wait()
		w.noError(w.engine.ViewRecords(w.ctx, func(r engine.RecordReader) error {
			one, err := r.Record("k", "n")
			if err != nil || string(one.Body) != "80" {
				w.Errorf("%+v, %v", one, err)
			}
			return err
		}))
	})
}

// Of many submissions of different jobs under one alias one is stored, whether or not they share a
// transaction.
func TestAliasIsUnique(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		alias := job.AliasOf("brief", "client", "key")
		named := with(func(j *job.Job) { j.Alias = alias })
		if _, err := w.engine.GetByAlias(w.ctx, alias); !job.IsKind(err, job.NotFound) {
			w.Error(err)
		}
		var mu sync.Mutex
		var stored []string
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				key := fmt.Sprint("brief/", i)
				_, err := nodes[i%2].Submit(w.ctx, engine.Unique, subs(sub(key, named)))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					stored = append(stored, key)
				} else if !job.IsKind(err, job.Conflict) {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		j, err := w.engine.GetByAlias(w.ctx, alias)
		if err != nil || len(stored) != 1 || name(j.ID) != stored[0] {
			w.Fatalf("stored %v, the alias is that of %v: %v", stored, j, err)
		}
		w.noError(w.engine.Remove(w.ctx, j.ID))
		w.submit(sub("brief/again", named))
	})
}

// A worker says how long a job waits that failed or was given back, and why.
func TestOutcomeDelaysAndReasons(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"))
		for i, on := range []job.Cause{job.Failed, job.Released} {
			r := w.run("graph/a")
			_, err := w.engine.Finish(w.ctx, r,
				engine.Outcome{On: on, Reason: "later", Progress: []byte{byte(i)},
					Delay: time.Hour})
			w.noError(err)
			if got := w.claim("graph", 1); len(got) != 0 {
				w.Errorf("%s: claimed at once", on)
			}
			j := w.get("graph/a")
			if j.Phase != job.Waiting || !j.DueAt.Equal(w.clock.Now().Add(time.Hour)) ||
				j.Progress[0] != byte(i) {
				w.Errorf("%s: %+v", on, j)
			}
			w.clock.Advance(time.Hour)
		}
		events, err := w.engine.History(w.ctx, id("graph/a"))
		w.noError(err)
		var reasons []string
		for _, e := range events {
			if e.Reason != "" {
				reasons = append(reasons, string(e.Cause)+" "+e.Reason)
			}
		}
		want := []string{"claimed worker", "failed later", "claimed worker", "released later"}
		if !slices.Equal(reasons, want) {
			w.Errorf("the reasons are %q", reasons)
		}
	})
}
