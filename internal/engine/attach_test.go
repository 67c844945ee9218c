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
	everywhere(t, made(), func(w *world) {
		var notes []string
		note := func(what string, then error) engine.AttachedFunc {
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
		stored := func(key string) (is bool) {
			w.ok(w.ViewRecords(w.ctx, func(r engine.RecordReader) error {
				record, err := r.Record("note", key)
				is = record != nil
				return err
			}))
			return is
		}
		ctx := engine.Attach(w.ctx, note("submit", nil))
		_, err := w.Submit(ctx, engine.Unique, subs(sub("phased/a", due(time.Hour))))
		w.ok(err)
		_, err = w.Cancel(ctx, id("phased/a")) // it is used up
		w.ok(err)
		_, err = w.Submit(engine.Attach(w.ctx, note("again", nil)), engine.Unique,
			subs(sub("phased/a")))
		w.fails(err, job.Conflict)
		refused := errors.New("refused")
		w.submit(sub("phased/b"))
		if _, err = w.Cancel(engine.Attach(w.ctx, note("refused", refused)),
			id("phased/b")); !errors.Is(err, refused) {
			w.Error(err)
		}
		if got := w.get("phased/b").State; got != "queued" {
			w.Errorf("a change that was refused left the job %s", got)
		}
		_, err = w.Cancel(engine.Attach(w.ctx, note("cancel", nil)), id("phased/b"))
		w.ok(err)
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
	everywhere(t, made(), func(w *world) {
		w.submit(sub("phased/a", due(time.Hour)), sub("phased/b"))
		w.submit(sub("graph/a"))
		w.submit(sub("graph/b", after("graph/a")), sub("graph/c", due(time.Hour)))
		for _, text := range []string{"phased/a", "graph/c"} {
			j, err := w.RunNow(w.ctx, id(text))
			w.ok(err)
			if j.Phase != job.Ready {
				w.Errorf("%s is %s", text, j.Phase)
			}
		}
		for _, text := range []string{"phased/a", "phased/b", "graph/b"} {
			_, err := w.RunNow(w.ctx, id(text))
			w.fails(err, job.Conflict)
		}
		_, err := w.RunNow(w.ctx, id("phased/none"))
		w.fails(err, job.NotFound)
		if got := len(w.claim("phased", 10)); got != 2 {
			w.Errorf("claimed %d jobs, want 2", got)
		}
		w.sound()
	})
}
