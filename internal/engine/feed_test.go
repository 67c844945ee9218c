package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// listener are subscriptions that want all changes of the jobs of a job type, or of all without
// one.
type listener struct{ jobType string }

func (l *listener) Wants(j *job.Job, _ job.Event) (wanted, readsBodies bool) {
	return l.jobType == "" || l.jobType == j.ID.JobType, true
}

func (l *listener) Message(j *job.Job, ev job.Event) []byte {
	return fmt.Appendf(nil, "%s %s %q>%q payload=%s result=%s failure=%s", name(j.ID), ev.Cause,
		ev.Prev, ev.Next, j.Payload, j.Result, j.Failure)
}

func (l *listener) EventBody(n engine.FeedEvent) []byte {
	return fmt.Appendf(nil, "%s %s/%s", n.Type, n.JobType, n.Queue)
}

// listening returns a feed for a listener; nil is nobody.
func listening(l *listener) engine.Feed {
	return engine.Feed{JobType: "line", Read: func(engine.RecordReader) (engine.Subscriptions, error) {
		if l == nil {
			return nil, nil
		}
		return l, nil
	}}
}

// lineJobType is the job type of the messages of the feed, whose jobs form chains.
func lineJobType() engine.JobType {
	return engine.JobType{Name: "line", Graph: true, Machine: job.MustMachine(
		map[job.State]job.Phase{"waiting": job.Waiting, "ready": job.Ready, "running": job.Leased,
			"done": job.Done, "failed": job.Done},
		[]job.Transition{
			{From: job.StateNone, On: job.Submitted, To: "waiting"},
			{From: "waiting", On: job.Satisfied, To: "ready"},
			{From: "waiting", On: job.Unsatisfiable, To: "ready"},
			{From: "ready", On: job.Claimed, To: "running"},
			{From: "running", On: job.Succeeded, To: "done"},
			{From: "running", On: job.FailedForGood, To: "failed"},
			{From: "running", On: job.Expired, To: "ready"},
		})}
}

// goneMachine is the machine of jobs that are not kept and have no history: nothing but the feed
// has them.
func goneMachine() *job.Machine {
	return job.MustMachine(map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased},
		[]job.Transition{
			{From: job.StateNone, On: job.Submitted, To: "queued"},
			{From: "queued", On: job.Replaced, To: "queued"},
			{From: "queued", On: job.Claimed, To: "running"},
			{From: "running", On: job.Succeeded, To: job.StateNone},
			{From: "running", On: job.Expired, To: "queued"},
		})
}

// feedJobTypes are the job types of the tests of the feed.
func feedJobTypes() []engine.JobType {
	return []engine.JobType{{Name: "gone", Machine: goneMachine()}, lineJobType(),
		{Name: "kept", Machine: costMachine("over"), History: true, Publish: true}}
}

// publishFeed publishes what the feed has and returns it.
func publishFeed(w *world, e *engine.Engine) (bodies []string) {
	w.Helper()
	_, err := e.Publish(w.ctx, func(_ context.Context, all []job.Message) error {
		for _, m := range all {
			bodies = append(bodies, string(m.Body))
		}
		return nil
	}, "line")
	w.noError(err)
	return bodies
}

func (w *world) wantPublished(want ...string) {
	w.Helper()
	if got := publishFeed(w, w.engine); !slices.Equal(got, want) {
		w.Fatalf("WH-004 the feed has\n%s\nwant\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

// WH-004: every change of every job is in the outbox in the order in which it happened, with the
// bodies as they were, also of jobs that are gone and of job types without history, and of a change
// that stays in its state.
func TestFeed(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		w.engine.SetFeed(listening(&listener{}))
		w.submit(sub("gone/a"))
		if _, err := w.engine.Submit(w.ctx, engine.Replace, subs(sub("gone/a",
			with(func(j *job.Job) {
				j.Payload = []byte("new")
			})))); err != nil {
			w.Fatal(err)
		}
		run := w.run("gone/a")
		_, err := w.engine.Finish(w.ctx, run, engine.Outcome{On: job.Succeeded,
			Result: []byte("7")})
		w.noError(err)
		w.wantPublished(`gone/a submitted "">"queued" payload=gone/a result= failure=`,
			`gone/a replaced "queued">"queued" payload=new result= failure=`,
			`gone/a claimed "queued">"running" payload=new result= failure=`,
			`gone/a succeeded "running">"" payload=new result=7 failure=`)
		w.submit(sub("kept/b"))
		w.wantPublished(`kept/b submitted "">"pending" payload=kept/b result= failure=`,
			`kept/b satisfied "pending">"queued" payload=kept/b result= failure=`)
		own := 0
		_, err = w.engine.Publish(w.ctx, func(_ context.Context, all []job.Message) error {
			own += len(all)
			return nil
		}, "kept")
		w.noError(err)
		if own != 2 {
			w.Errorf("the contract has %d messages of its own, want 2", own)
		}
		w.submit(sub("line/c")) // the feed does not tell of what it makes
		w.wantPublished()
	})
}

// WH-004: a change that is undone tells nothing.
func TestFeedOfUndoneChange(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		w.engine.SetFeed(listening(&listener{}))
		refused := errors.New("refused")
		ctx := engine.WithTxFunc(w.ctx, func(engine.RecordWriter, *job.Job, *job.Job) error {
			return refused
		})
		if _, err := w.engine.Submit(ctx, engine.Unique, subs(sub("gone/a"))); !errors.Is(err,
			refused) {
			w.Fatalf("got %v", err)
		}
		if _, err := w.engine.Submit(w.ctx, engine.Unique,
			subs(sub("kept/a"), sub("kept/a"))); !job.IsKind(err, job.Conflict) {
			w.Fatalf("got %v", err)
		}
		w.wantPublished()
	})
}

// WH-002: a pause and its end are published once each, with what else is stored then, and nothing
// that changes no pause.
func TestFeedOfPauses(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		w.engine.SetFeed(listening(&listener{}))
		for _, q := range []job.QueueSettings{{Paused: true}, {Paused: true, MaxRunning: 3}, {}} {
			q.JobType, q.Queue = "gone", "q"
			w.noError(w.engine.SetQueue(w.ctx, q))
		}
		w.wantPublished("queue.paused gone/q", "queue.resumed gone/q")
	})
}

// WH-001: a subscription is in force at once where it was changed, and on other nodes with their
// next refresh.
func TestFeedChanges(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		feed := engine.Feed{JobType: "line", Read: func(r engine.RecordReader) (engine.Subscriptions,
			error) {
			found, err := r.Record("listener", "1")
			if found == nil {
				return nil, err
			}
			return &listener{}, err
		}}
		w.engine.SetFeed(feed)
		other := w.node(feedJobTypes())
		other.SetFeed(feed)
		submit := func(e *engine.Engine, text string) {
			_, err := e.Submit(w.ctx, engine.Unique, subs(sub(text)))
			w.noError(err)
		}
		submit(other, "gone/a")
		submit(w.engine, "gone/b")
		w.wantPublished()
		w.noError(w.engine.ChangeFeed(w.ctx, "line", "1", func(to engine.RecordWriter,
			_ *job.QueueSettings) error {
			return to.UpsertRecords(job.Record{Kind: "listener", Key: "1", Body: []byte("{}")})
		}))
		submit(w.engine, "gone/c")
		w.noError(other.Refresh(w.ctx))
		submit(other, "gone/d")
		w.wantPublished(`gone/c submitted "">"queued" payload=gone/c result= failure=`,
			`gone/d submitted "">"queued" payload=gone/d result= failure=`)
		third := w.node(feedJobTypes()) // the first transaction of a node reads it
		third.SetFeed(feed)
		submit(third, "gone/e")
		w.wantPublished(`gone/e submitted "">"queued" payload=gone/e result= failure=`)
	})
}

// chained is a submission to a chain.
func chained(text, line string) engine.Submission {
	return sub(text, with(func(j *job.Job) { j.Alias = job.AliasOf("line", "", line) }))
}

// WH-004: jobs of a chain are ready one after another, however they were stored and however the one
// before has ended; one that exists is not stored again.
func TestSubmitChained(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		a1, a2, a3, a4 := chained("line/a1", "a"), chained("line/a2", "a"), chained("line/a3", "a"),
			chained("line/a4", "a")
		w.noError(w.engine.SubmitChained(w.ctx, subs(a1, chained("line/b1", "b"), a2)))
		w.noError(w.engine.SubmitChained(w.ctx, subs(a1, a2, a3, a3, sub("line/x"))))
		want := func(line ...string) []*job.Job {
			w.Helper()
			jobs := w.claim("line", 10)
			if got := names(jobs); !slices.Equal(got, line) {
				w.Fatalf("WH-004 ready are %v, want %v", got, line)
			}
			return jobs
		}
		end := func(j *job.Job, on job.Cause) { w.finish(engine.Run{ID: j.ID, Run: j.Run}, on) }
		first := want("line/a1", "line/b1", "line/x")
		end(first[0], job.FailedForGood)
		end(want("line/a2")[0], job.Succeeded)
		end(want("line/a3")[0], job.Succeeded)
		w.noError(w.engine.SubmitChained(w.ctx, subs(a4, chained("line/b2", "b"))))
		want("line/a4") // the one before is done
		end(first[1], job.Succeeded)
		want("line/b2")
	})
}

// WH-004: what several nodes store at a time in one chain, each of them all of it, is there once
// and in one chain.
func TestSubmitChainedOfNodes(t *testing.T) {
	onEveryStore(t, feedJobTypes(), func(w *world) {
		const nodes, jobs = 3, 12
		var all sync.WaitGroup
		for range nodes {
			e := w.node(feedJobTypes())
			all.Go(func() {
				for i := range jobs {
					if err := e.SubmitChained(w.ctx,
						subs(chained(fmt.Sprintf("line/%02d", i), "a"))); err != nil {
						w.Error(err)
					}
				}
			})
		}
		all.Wait()
		for i := range jobs {
			w.finish(w.run(fmt.Sprintf("line/%02d", i)), job.Succeeded)
			w.clock.Advance(time.Millisecond)
		}
		if left := w.claim("line", 1); len(left) > 0 {
			w.Errorf("WH-004 there are more: %v", names(left))
		}
	})
}

// WH-004: a read of the subscriptions that began before a change, and ends after it, does not take
// the change back: what happens after the answer to a subscription is published. In memory reads
// come one after another.
func TestFeedReadsInOrder(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"file", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			readInOrder(newWorld(t, database, feedJobTypes()))
		})
	}
}

func readInOrder(w *world) {
	w.Helper()
	isSlow, started, goOn := make(chan bool, 1), make(chan bool), make(chan bool)
	w.engine.SetFeed(engine.Feed{JobType: "line",
		Read: func(r engine.RecordReader) (engine.Subscriptions, error) {
			found, err := r.Record("listener", "1")
			select {
			case <-isSlow:
				started <- true
				<-goOn
			default:
			}
			if found == nil {
				return nil, err
			}
			return &listener{}, err
		}})
	w.submit(sub("gone/a"))
	isSlow <- true
	refreshed := make(chan error)
	go func() { refreshed <- w.engine.Refresh(w.ctx) }()
	<-started
	w.noError(w.engine.ChangeFeed(w.ctx, "line", "1", func(to engine.RecordWriter,
		_ *job.QueueSettings) error {
		return to.UpsertRecords(job.Record{Kind: "listener", Key: "1", Body: []byte("{}")})
	}))
	close(goOn)
	w.noError(<-refreshed)
	w.submit(sub("gone/b"))
	w.wantPublished(`gone/b submitted "">"queued" payload=gone/b result= failure=`)
	w.noError(w.engine.Refresh(w.ctx))
	w.submit(sub("gone/c"))
	w.wantPublished(`gone/c submitted "">"queued" payload=gone/c result= failure=`)
}
