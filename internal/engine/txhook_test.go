package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestAttach proves that what is attached to a context is written with the first change made with
// it, once, and that its error undoes the change.
func TestAttach(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		var notes []string
		note := func(what string, then error) engine.TxFunc {
			return func(r engine.RecordWriter, before, after *job.Job) error {
				from := "none"
				if before != nil {
					from = string(before.State)
				}
				notes = append(notes, fmt.Sprintf("%s: %s to %s", what, from, after.State))
				if after.Seq == 0 {
					w.Error("the job has no number")
				}
				return errors.Join(then, r.UpsertRecords(job.Record{Kind: "note", Key: what}))
			}
		}
		stored := func(key string) (exists bool) {
			w.noError(w.engine.ViewRecords(w.ctx, func(r engine.RecordReader) error {
				record, err := r.Record("note", key)
				exists = record != nil
				return err
			}))
			return exists
		}
		ctx := engine.WithTxFunc(w.ctx, note("submit", nil))
		_, err := w.engine.Submit(ctx, engine.Unique, subs(sub("phased/a", due(time.Hour))))
		w.noError(err)
		_, err = w.engine.Cancel(ctx, id("phased/a")) // it is used up
		w.noError(err)
		_, err = w.engine.Submit(engine.WithTxFunc(w.ctx, note("again", nil)), engine.Unique,
			subs(sub("phased/a")))
		w.wantKind(err, job.Conflict)
		refused := errors.New("refused")
		w.submit(sub("phased/b"))
		if _, err = w.engine.Cancel(engine.WithTxFunc(w.ctx, note("refused", refused)),
			id("phased/b")); !errors.Is(err, refused) {
			w.Error(err)
		}
		if got := w.get("phased/b").State; got != "queued" {
			w.Errorf("a change that was refused left the job %s", got)
		}
		_, err = w.engine.Cancel(engine.WithTxFunc(w.ctx, note("cancel", nil)), id("phased/b"))
		w.noError(err)
		for key, want := range map[string]bool{"submit": true, "again": false, "refused": false,
			"cancel": true} {
			if stored(key) != want {
				w.Errorf("a note of %s is stored: %v", key, !want)
			}
		}
		want := []string{"submit: none to created", "refused: queued to canceled",
			"cancel: queued to canceled"}
		if fmt.Sprint(notes) != fmt.Sprint(want) {
			w.Errorf("got %q, want %q", notes, want)
		}
	})
}

// TestRunNow proves that a job that waits for its time alone can be claimed at once, and that no
// other job is changed.
func TestRunNow(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("phased/a", due(time.Hour)), sub("phased/b"))
		w.submit(sub("graph/a"))
		w.submit(sub("graph/b", after("graph/a")), sub("graph/c", due(time.Hour)))
		for _, text := range []string{"phased/a", "graph/c"} {
			j, err := w.engine.RunNow(w.ctx, id(text))
			w.noError(err)
			if j.Phase != job.Ready {
				w.Errorf("%s is %s", text, j.Phase)
			}
		}
		for _, text := range []string{"phased/a", "phased/b", "graph/b"} {
			_, err := w.engine.RunNow(w.ctx, id(text))
			w.wantKind(err, job.Conflict)
		}
		_, err := w.engine.RunNow(w.ctx, id("phased/none"))
		w.wantKind(err, job.NotFound)
		if got := len(w.claim("phased", 10)); got != 2 {
			w.Errorf("claimed %d jobs, want 2", got)
		}
		w.checkInvariants()
	})
}

// TestAttachTwice proves that a change writes all that is attached to its context, what was
// attached first as the first, and each of it once.
func TestAttachTwice(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		var notes []string
		note := func(what string) engine.TxFunc {
			return func(engine.RecordWriter, *job.Job, *job.Job) error {
				notes = append(notes, what)
				return nil
			}
		}
		outer := engine.WithTxFunc(w.ctx, note("outer"))
		inner := engine.WithTxFunc(outer, note("inner"))
		_, err := w.engine.Submit(inner, engine.Unique, subs(sub("phased/a", due(time.Hour))))
		w.noError(err)
		_, err = w.engine.Submit(outer, engine.Unique, subs(sub("phased/b", due(time.Hour))))
		w.noError(err)
		if got := fmt.Sprint(notes); got != "[outer inner]" {
			w.Errorf("written are %s", got)
		}
	})
}
