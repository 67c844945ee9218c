package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// onceWith identifies the request with an idempotency key and a payload, within a minute.
func onceWith(key, payload string) engine.Idempotency {
	return engine.Idempotency{
		Alias:  job.AliasOf("brief", "client", key),
		Window: time.Minute,
		IsSame: func(j *job.Job) bool { return bytes.Equal(j.Payload, []byte(payload)) },
	}
}

func payload(text string) func(*engine.Submission) {
	return with(func(j *job.Job) { j.Payload = []byte(text) })
}

// once is the outcome of SubmitOnce as a text.
func once(e *engine.Engine, ctx context.Context, o engine.Idempotency,
	batch ...engine.Submission) string {
	made, err := e.SubmitOnce(ctx, o, batch)
	switch {
	case errors.Is(err, engine.ErrKeyReused) && job.IsKind(err, job.Conflict):
		return "reused"
	case err != nil:
		return job.KindOf(err).String()
	case made.Existed:
		return "existed " + name(made.Job.ID)
	}
	return "stored " + name(made.Job.ID)
}

func TestSubmitOnce(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		wants := func(o engine.Idempotency, want string, batch ...engine.Submission) {
			w.Helper()
			if got := once(w.engine, w.ctx, o, batch...); got != want {
				w.Errorf("got %s, want %s", got, want)
			}
		}
		finds := func(o engine.Idempotency, want string) {
			w.Helper()
			j, err := w.engine.FindSubmitted(w.ctx, o)
			got := "nothing"
			switch {
			case errors.Is(err, engine.ErrKeyReused):
				got = "reused"
			case err != nil:
				got = err.Error()
			case j != nil:
				got = name(j.ID)
			}
			if got != want {
				w.Errorf("found %s, want %s", got, want)
			}
		}
		finds(onceWith("k", "p"), "nothing")
		wants(onceWith("k", "p"), "stored brief/a", sub("brief/a", payload("p")))
		wants(onceWith("k", "p"), "existed brief/a", sub("brief/b", payload("p")))
		wants(onceWith("k", "p"), "existed brief/a", sub("brief/a", payload("p"))) // a lost answer
		wants(onceWith("k", "q"), "reused", sub("brief/b", payload("q")))
		finds(onceWith("k", "p"), "brief/a")
		finds(onceWith("k", "q"), "reused")
		wants(onceWith("other", "p"), "conflict", sub("brief/a", payload("p"))) // of the identity
		wants(engine.Idempotency{}, "stored brief/c", sub("brief/c"))
		wants(engine.Idempotency{}, "conflict", sub("brief/c"))
		finds(engine.Idempotency{}, "nothing")

		w.clock.Advance(time.Minute - time.Microsecond)
		wants(onceWith("k", "p"), "existed brief/a", sub("brief/b", payload("p")))
		w.clock.Advance(time.Microsecond)
		finds(onceWith("k", "q"), "nothing")
		wants(onceWith("k", "q"), "conflict", sub("brief/a", payload("q")))
		before := w.get("brief/a")
		wants(onceWith("k", "q"), "stored brief/b", sub("brief/b", payload("q")))
		wants(onceWith("k", "q"), "existed brief/b", sub("brief/d", payload("q")))
		after := w.get("brief/a")
		before.Alias = job.IdentityHash{}
		if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) {
			w.Errorf("the job without its alias is\n%+v, was\n%+v", after, before)
		}
		forever := engine.Idempotency{Alias: onceWith("k", "q").Alias}
		w.clock.Advance(1000 * time.Hour)
		wants(forever, "existed brief/b", sub("brief/d"))
		w.noError(w.engine.Remove(w.ctx, id("brief/b")))
		wants(forever, "stored brief/d", sub("brief/d"))
	})
}

// A batch is stored as a whole or, for a repeated request, not at all.
func TestSubmitOnceOfABatch(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		batch := func(n int) []engine.Submission {
			parent := fmt.Sprintf("family/%d", n)
			return subs(sub(parent), sub(fmt.Sprintf("part/%da", n), childOf(parent)),
				sub(fmt.Sprintf("part/%db", n), childOf(parent)))
		}
		o := engine.Idempotency{Alias: job.AliasOf("family", "", "k"), Window: time.Minute}
		for i, want := range []string{"stored family/0", "existed family/0", "stored family/2"} {
			if i == 2 {
				w.clock.Advance(time.Minute)
			}
			if got := once(w.engine, w.ctx, o, batch(i)...); got != want {
				w.Errorf("got %s, want %s", got, want)
			}
		}
		jobs, err := w.engine.List(w.ctx, store.Filter{})
		w.noError(err)
		if got, want := fmt.Sprint(sorted(names(jobs))),
			"[family/0 family/2 part/0a part/0b part/2a part/2b]"; got != want {
			w.Errorf("stored %s, want %s", got, want)
		}
		w.checkInvariants()
	})
}

// Of many requests with one key, on two nodes, one is stored and the others get its job or, with
// another payload, a conflict; also when the window of an earlier job has just ended.
func TestSubmitOnceOfACrowd(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		for round := range 3 {
			outcomes := map[string]int{}
			for _, got := range testkit.RunConcurrently(40, func(i int) string {
				p := fmt.Sprint("payload ", i%3)
				return p + " " + once(nodes[i%2], w.ctx, onceWith("k", p),
					sub(fmt.Sprintf("brief/%d.%d", round, i), payload(p)))
			}) {
				outcomes[got]++
			}
			winner, err := w.engine.FindSubmitted(w.ctx, engine.Idempotency{Alias: onceWith("k",
				"").Alias})
			if err != nil || winner == nil {
				w.Fatal(winner, err)
			}
			p, key := string(winner.Payload), name(winner.ID)
			same := 40 / 3
			if p == "payload 0" {
				same++
			}
			if outcomes[p+" stored "+key] != 1 || outcomes[p+" existed "+key] != same-1 ||
				len(outcomes) != 4 {
				w.Errorf("round %d: %s has the alias, of %v", round, key, outcomes)
			}
			w.clock.Advance(time.Minute)
		}
		jobs, err := w.engine.List(w.ctx, store.Filter{})
		if err != nil || len(jobs) != 3 {
			w.Errorf("%d jobs, %v", len(jobs), err)
		}
	})
}

// lookupTx calls after with each lookup of an alias in a transaction.
type lookupTx struct {
	store.Tx
	after func()
}

func (t lookupTx) Load(s store.Selector) ([]*job.Job, error) {
	found, err := t.Tx.Load(s)
	if len(s.Aliases) > 0 && !s.Lock {
		t.after()
	}
	return found, err
}

// What another node does between the lookup of the alias and the insert is found by the next try,
// whatever it is: it stores the alias, or frees that of the job whose window has ended, or removes
// that job.
func TestSubmitOnceMeetsAnother(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		interfere func(w *world, other *engine.Engine)
		want      string
	}{
		"stored": {func(w *world, other *engine.Engine) {
			w.noError(other.Remove(w.ctx, id("brief/old")))
			if got := once(other, w.ctx, onceWith("k", "p"), sub("brief/new", payload("p"))); got !=
				"stored brief/new" {
				w.Error(got)
			}
		}, "existed brief/new"},
		"freed": {func(w *world, other *engine.Engine) {
			if got := once(other, w.ctx, onceWith("k", "q"), sub("brief/new", payload("q"))); got !=
				"stored brief/new" {
				w.Error(got)
			}
		}, "reused"},
		"removed": {func(w *world, other *engine.Engine) {
			w.noError(other.Remove(w.ctx, id("brief/old")))
		}, "stored brief/mine"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "postgres", testJobTypes())
			var lookups atomic.Int32
			s := &wrappedStore{Store: w.store, wrap: func(tx store.Tx) store.Tx {
				return lookupTx{tx, func() {
					if lookups.Add(1) == 1 {
						c.interfere(w, w.engine)
					}
				}}
			}}
			e := testkit.NewEngine(t, s, w.clock, testJobTypes()...)
			if got := once(e, w.ctx, onceWith("k", "old"), sub("brief/old", payload("old"))); got !=
				"stored brief/old" {
				t.Fatal(got)
			}
			w.clock.Advance(time.Minute)
			if got := once(e, w.ctx, onceWith("k", "p"), sub("brief/mine", payload("p"))); got !=
				c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if lookups.Load() != 2 {
				t.Errorf("%d lookups", lookups.Load())
			}
		})
	}
}

// recorded identifies the request with an idempotency key that a record keeps for a minute.
func recorded(key, digest string) engine.Idempotency {
	return engine.Idempotency{Record: &engine.IdempotencyRecord{Kind: "graphs", Key: key,
		Digest: digest,
		Window: time.Minute}}
}

// A record has the keys of all jobs of a request, in their order, also when they are gone. What is
// refused leaves no record.
func TestSubmitOnceWithARecord(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		batch := func(n int) []engine.Submission {
			return subs(sub(fmt.Sprintf("brief/%d", n)), sub(fmt.Sprintf("brief/%da", n)))
		}
		wants := func(o engine.Idempotency, want string, batch []engine.Submission) {
			w.Helper()
			made, err := w.engine.SubmitOnce(w.ctx, o, batch)
			got := fmt.Sprint(made.Existed, made.Keys, made.Job != nil)
			if errors.Is(err, engine.ErrKeyReused) {
				got = "reused"
			} else if err != nil {
				got = job.KindOf(err).String()
			}
			if got != want {
				w.Errorf("got %s, want %s", got, want)
			}
		}
		wants(recorded("k", "d"), "false [0 0a] true", batch(0))
		wants(recorded("k", "d"), "true [0 0a] false", batch(1))
		wants(recorded("k", "other"), "reused", batch(1))
		wants(recorded("k2", "d"), "conflict", batch(0)) // of the identity
		wants(recorded("k2", "d"), "not found", subs(sub("part/lost", childOf("family/none"))))
		wants(recorded("k2", "d"), "false [2 2a] true", batch(2))
		w.noError(w.engine.Remove(w.ctx, id("brief/0a")))
		w.noError(w.engine.Remove(w.ctx, id("brief/0")))
		wants(recorded("k", "d"), "true [0 0a] false", batch(1))
		w.clock.Advance(time.Minute)
		wants(recorded("k", "other"), "false [1 1a] true", batch(1))
		w.checkInvariants()
	})
}

// Of many requests whose key a record keeps, on two nodes, one is stored.
func TestSubmitOnceWithARecordOfACrowd(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		outcomes := map[string]int{}
		for _, got := range testkit.RunConcurrently(30, func(i int) string {
			made, err := nodes[i%2].SubmitOnce(w.ctx, recorded("k", "d"), subs(
				sub(fmt.Sprintf("brief/%d", i)), sub(fmt.Sprintf("brief/%d'", i))))
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(made.Keys)
		}) {
			outcomes[got]++
		}
		jobs, err := w.engine.List(w.ctx, store.Filter{})
		if len(outcomes) != 1 || len(jobs) != 2 || err != nil {
			w.Errorf("%d jobs, %v: %v", len(jobs), err, outcomes)
		}
	})
}

// Of many requests that make a record under one key one makes it, the same requests find it, and
// others are refused, until the key is forgotten.
func TestIdempotencyRecord(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		request := func(node *engine.Engine, digest, id string) (outcome string) {
			o := engine.IdempotencyRecord{Kind: "once", Key: "k", Owner: "o", Digest: digest,
				Window: time.Minute}
			err := node.ChangeRecords(w.ctx, "lock", func(r engine.RecordWriter) error {
				earlier, err := o.Find(r)
				if outcome = "found " + earlier; err != nil || earlier != "" {
					return err
				}
				outcome = "made " + id
				return o.Store(r, id)
			})
			switch {
			case errors.Is(err, engine.ErrKeyReused) && job.IsKind(err, job.Conflict):
				return "reused"
			case err != nil:
				return err.Error()
			}
			return outcome
		}
		if got := request(w.engine, "a", "first"); got != "made first" {
			t.Error(got)
		}
		w.clock.Advance(time.Minute)
		outcomes := map[string]int{}
		for _, got := range testkit.RunConcurrently(20, func(i int) string {
			return request(nodes[i%2], "b", "second")
		}) {
			outcomes[got]++
		}
		if outcomes["made second"] != 1 || outcomes["found second"] != 19 {
			t.Errorf("the outcomes are %v", outcomes)
		}
		if got := request(nodes[1], "a", "third"); got != "reused" {
			t.Error(got)
		}
	})
}

// The records of an older build have other members. A request that made a subscription then finds
// none by its key, and one that rotated an API key is refused: neither finds something else.
func TestIdempotencyRecordOfAnOlderBuild(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		for _, tt := range []struct {
			body, digest, id string
			reused           bool
		}{
			{body: `{"id":"client"}`, id: "client"},
			{body: `{"id":"key","rotate":true}`, digest: "rotate", reused: true},
			{body: `{"hook":"subscription","request":"a"}`, digest: "a"},
			{body: `{"hook":"subscription","request":"a"}`, digest: "b", reused: true},
		} {
			o := engine.IdempotencyRecord{Kind: "once", Key: "old", Digest: tt.digest}
			var id string
			err := w.engine.ChangeRecords(w.ctx, "lock", func(r engine.RecordWriter) error {
				err := r.UpsertRecords(job.Record{Kind: o.Kind, Key: o.Key, Body: []byte(tt.body)})
				if err != nil {
					return err
				}
				id, err = o.Find(r)
				return err
			})
			if id != tt.id || errors.Is(err, engine.ErrKeyReused) != tt.reused ||
				(err != nil && !tt.reused) {
				t.Errorf("%s for %q: found %q, %v", tt.body, tt.digest, id, err)
			}
		}
	})
}
