package images_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/testkit"
)

// history returns the states a job went through, as the document calls them.
func (w *world) history(t testing.TB, id string) string {
	t.Helper()
	events, err := w.engine.History(context.Background(), engineJobID(id))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		if s := images.StatusOf(e.Next); len(all) == 0 || all[len(all)-1] != s {
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

func TestAttempt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, jpegOf(t, 120, 60))
		w.clock.Advance(time.Second)
		j := w.mustClaim(t, r.JobID)
		t.Run("IP-031 IP-015 IP-049 a claim takes the lock and counts an attempt",
			func(t *testing.T) {
				v := w.status(t, r.JobID, processing)
				assertEqual(t, "attempts", v.AttemptCount, 1)
				if v.LockedAt == nil || !v.LockedAt.Equal(w.clock.Now()) ||
					!v.UpdatedAt.Equal(w.clock.Now()) {
					t.Errorf("locked %v, updated %s, now %s", v.LockedAt, v.UpdatedAt,
						w.clock.Now())
				}
			})
		t.Run("IP-042 IP-046 whoever does not get the claim does nothing", func(t *testing.T) {
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed twice")
			}
			assertEqual(t, "attempts", w.job(t, r.JobID).AttemptCount, 1)
		})
		if _, err := w.images.Attempt(context.Background(), j); err != nil {
			t.Fatal(err)
		}
		t.Run("IP-032 IP-016 IP-012 the attempt completes the job", func(t *testing.T) {
			v := w.status(t, r.JobID, completed)
			assertEqual(t, "locked", v.LockedAt == nil, true)
			assertEqual(t, "error", text(v.LastError), "null")
			assertEqual(t, "history", w.history(t, r.JobID), "queued processing completed")
		})
		t.Run("G-IP-14 G-IP-18 the variants are there, under keys made of file and size",
			func(t *testing.T) {
				f := w.file(t, r.FileID, "ready")
				assertEqual(t, "dimensions", [2]int{*f.Width, *f.Height}, [2]int{120, 60})
				assertEqual(t, "variants", len(f.Variants), 2)
				for i, want := range [][3]int{{16, 16, 8}, {64, 64, 32}} {
					v := f.Variants[i]
					assertEqual(t, "variant", [3]int{v.Size, v.Width, v.Height}, want)
					got := w.Do(t, "GET", v.URL, "").WantStatus(t, 200)
					assertEqual(t, "bytes", int64(len(got.Body)), v.Bytes)
					assertEqual(t, "type", got.Header.Get("Content-Type"), "image/jpeg")
					assertEqual(t, "stored",
						strings.Contains(strings.Join(w.stored(t), " "), v.Key), true)
				}
			})
		t.Run("IP-037 IP-039 processing a file twice leaves the same variants, and one "+
			"completion each", func(t *testing.T) {
			before := w.content(t)
			again := w.create(t, "process_file", r.FileID)
			w.attempt(t, again.JobID)
			w.status(t, again.JobID, completed)
			assertEqual(t, "objects", w.content(t), before)
			assertEqual(t, "variants", len(w.file(t, r.FileID, "ready").Variants), 2)
		})
		t.Run("IP-021 IP-038 IP-047 IP-004 nothing moves a completed job", func(t *testing.T) {
			w.wantUnchanged(t, r.JobID, j)
		})
		t.Run("other sizes add to the variants", func(t *testing.T) {
			w.attempt(t, w.create(t, "process_file", r.FileID, `"sizes":[500]`).JobID)
			f := w.file(t, r.FileID, "ready")
			assertEqual(t, "variants", len(f.Variants), 3)
			assertEqual(t, "never enlarged", [2]int{f.Variants[2].Width, f.Variants[2].Height},
				[2]int{120, 60})
		})
	})
}

// content are all objects with what is in them.
func (w *world) content(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, key := range w.stored(t) {
		body, info, err := w.objects.Open(context.Background(), "", key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		body.Close()
		all.WriteString(key + " " + info.ContentType + " " + string(text) + "\n")
	}
	return all.String()
}

// wantUnchanged tries everything on a job that is done; run is one it had.
func (w *world) wantUnchanged(t testing.TB, id string, run *job.Job) {
	t.Helper()
	before := encoded(w.job(t, id))
	processed := metric(t, w.worker, "job_processed_total")
	if w.claim(t, id) != nil {
		t.Error("claimed")
	}
	for _, on := range []job.Cause{job.Succeeded, job.Failed, job.FailedForGood, job.Released} {
		if err := w.end(run, engine.Outcome{On: on}); !job.IsKind(err, job.RunLost) {
			t.Errorf("%s: %v", on, err)
		}
	}
	for _, on := range job.Causes() {
		if _, err := w.engine.Change(t.Context(), engineJobID(id), on, nil); !job.IsKind(err,
			job.Conflict) {
			t.Errorf("%s: %v", on, err)
		}
	}
	w.clock.Advance(lockTimeout + time.Hour)
	w.sweep(t)
	if w.claim(t, id) != nil {
		t.Error("claimed")
	}
	assertEqual(t, "the job", encoded(w.job(t, id)), before)
	assertEqual(t, "IP-084 attempts counted", metric(t, w.worker, "job_processed_total"), processed)
}

func TestRetries(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 20, 20))
		w.fail(t, r.JobID)
		t.Run("IP-033 IP-017 IP-052 IP-057 a failure that may pass is failed_retryable, with its reason", func(t *testing.T) {
			v := w.status(t, r.JobID, retryable)
			assertEqual(t, "reason", text(v.LastErrorType)+": "+text(v.LastError),
				"storage_error: the disk is unavailable")
			assertEqual(t, "file", w.file(t, r.FileID, "processing").JobID, r.JobID)
		})
		t.Run("IP-055 the next attempt comes after 5 s, then after 10", func(t *testing.T) {
			w.clock.Advance(5*time.Second - time.Microsecond)
			w.sweep(t)
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed before its time")
			}
			w.clock.Advance(time.Microsecond)
			w.fail(t, r.JobID)
			w.clock.Advance(10*time.Second - time.Microsecond)
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed before its time")
			}
			w.clock.Advance(time.Microsecond)
		})
		t.Run("IP-034 IP-019 IP-044 a retry is processing again", func(t *testing.T) {
			w.sweep(t)
			w.status(t, r.JobID, retryable)
			j := w.mustClaim(t, r.JobID)
			assertEqual(t, "attempts", w.status(t, r.JobID, processing).AttemptCount, 3)
			if err := w.end(j, images.FailureOutcome(j, "away", "storage_error",
				true)); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("IP-054 IP-018 IP-014 G-IP-06 a failed third attempt is failed at once",
			func(t *testing.T) {
				v := w.status(t, r.JobID, failed)
				assertEqual(t, "attempts", v.AttemptCount, 3)
				assertEqual(t, "history", w.history(t, r.JobID),
					"queued processing failed_retryable processing failed_retryable processing failed")
				w.file(t, r.FileID, "failed")
			})
		t.Run("IP-053 what cannot be retried is failed at once", func(t *testing.T) {
			other := w.put(t, []byte("\xff\xd8\xff no picture"))
			j := w.mustClaim(t, other.JobID)
			if _, err := w.images.Attempt(context.Background(), j); err != nil {
				t.Fatal(err)
			}
			v := w.status(t, other.JobID, failed)
			assertEqual(t, "attempts", v.AttemptCount, 1)
			assertEqual(t, "type", text(v.LastErrorType), picture.DecodeError)
			t.Run("IP-022 IP-047 nothing moves a failed job", func(t *testing.T) {
				w.wantUnchanged(t, other.JobID, j)
			})
		})
		t.Run("IP-035 IP-020 what waits to be tried again can be dropped", func(t *testing.T) {
			other := w.put(t, pngOf(t, 20, 20))
			w.fail(t, other.JobID)
			if _, err := w.engine.Cancel(t.Context(), engineJobID(other.JobID)); err != nil {
				t.Fatal(err)
			}
			assertEqual(t, "reason", text(w.status(t, other.JobID, failed).LastErrorType),
				"storage_error")
			fresh := w.put(t, pngOf(t, 20, 20))
			_, err := w.engine.Cancel(t.Context(), engineJobID(fresh.JobID))
			if !job.IsKind(err, job.Conflict) {
				t.Errorf("IP-024: a queued job was dropped: %v", err)
			}
		})
	})
}

func TestDeadLetters(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		type deadLetter struct {
			JobID     string    `json:"job_id"`
			JobType   string    `json:"job_type"`
			FileID    string    `json:"file_id"`
			Error     string    `json:"error"`
			ErrorType string    `json:"error_type"`
			Attempts  int       `json:"attempts"`
			FailedAt  time.Time `json:"failed_at"`

			ReplayedAt *time.Time `json:"replayed_at"`
			ReplayedAs *string    `json:"replayed_as"`
		}
		deadLetters := func(query string) []deadLetter {
			return testkit.DecodeReply[struct{ Items []deadLetter }](t,
				w.Do(t, "GET", deadLettersPath+query, "").WantStatus(t, 200)).Items
		}
		r := w.put(t, []byte("GIF89a"))
		assertEqual(t, "dead letters of a queued job", len(deadLetters("")), 0)
		w.Do(t, "POST", deadLettersPath+"/"+r.JobID+"/replay", "").WantError(t, 409,
			"NOT_REPLAYABLE")
		w.attempt(t, r.JobID)
		t.Run("IP-056 a failed job is a dead letter with its last error", func(t *testing.T) {
			all := deadLetters("")
			if len(all) != 1 {
				t.Fatalf("%d dead letters", len(all))
			}
			got := all[0]
			if got.JobID != r.JobID || got.FileID != r.FileID ||
				got.ErrorType != picture.DecodeError || got.Error == "" || got.Attempts != 1 ||
				!got.FailedAt.Equal(w.state(t, r.JobID).FinishedAt) || got.ReplayedAs != nil {
				t.Errorf("got %+v", got)
			}
		})
		t.Run("G-IP-08 a replay is a new job; failed stays failed", func(t *testing.T) {
			again := testkit.DecodeReply[jobView](t,
				w.Do(t, "POST", deadLettersPath+"/"+r.JobID+"/replay", "").WantStatus(t, 202))
			assertEqual(t, "another job",
				again.JobID != r.JobID && again.FileID == r.FileID && again.Status == "queued",
				true)
			got := deadLetters("")[0]
			if got.ReplayedAs == nil || *got.ReplayedAs != again.JobID || got.ReplayedAt == nil {
				t.Errorf("AD-051 the replayed dead letter is %+v", got)
			}
			w.status(t, r.JobID, failed)
			assertEqual(t, "definition", string(w.state(t, again.JobID).Definition),
				string(w.state(t, r.JobID).Definition))
			w.Do(t, "POST", deadLettersPath+"/"+again.JobID+"/replay", "").WantError(t, 409,
				"NOT_REPLAYABLE")
			w.Do(t, "POST", deadLettersPath+"/"+r.FileID+"/replay", "").WantError(t, 404,
				"JOB_NOT_FOUND")
		})
		t.Run("G-IP-20 a page is full as long as there is more, whatever else has failed",
			func(t *testing.T) {
				var old, late []string // created in turns; the old ones failed long ago
				for range 5 {
					w.clock.Advance(time.Second)
					old = append(old, w.put(t, []byte("GIF89a")).JobID)
					w.clock.Advance(time.Second)
					late = append([]string{w.put(t, []byte("GIF89a")).JobID}, late...)
				}
				for _, id := range old {
					w.attempt(t, id)
				}
				w.clock.Advance(91 * 24 * time.Hour)
				for _, id := range late {
					w.attempt(t, id)
				}
				var got []string
				sizes, query := "", "?limit=2"
				for query != "" {
					p := testkit.DecodeReply[struct {
						Items []deadLetter
						Next  *string `json:"next_cursor"`
						More  bool    `json:"has_more"`
					}](t, w.Do(t, "GET", deadLettersPath+query, "").WantStatus(t, 200))
					for _, l := range p.Items {
						got = append(got, l.JobID)
					}
					sizes += fmt.Sprint(len(p.Items), " ")
					assertEqual(t, "more", p.More, p.Next != nil)
					if query = ""; p.Next != nil {
						query = "?limit=2&cursor=" + *p.Next
					}
				}
				assertEqual(t, "pages", sizes, "2 2 1 ")
				assertEqual(t, "dead letters", strings.Join(got, " "), strings.Join(late, " "))
			})
	})
}

func TestDeadLettersAreKept(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, []byte("GIF89a"))
		w.attempt(t, r.JobID)
		deadLetters := func() int {
			return len(testkit.DecodeReply[struct{ Items []any }](t,
				w.Do(t, "GET", deadLettersPath, "").WantStatus(t, 200)).Items)
		}
		t.Run("G-IP-08 dead letters are kept for 90 days", func(t *testing.T) {
			w.clock.Advance(90*24*time.Hour - time.Minute)
			assertEqual(t, "dead letters", deadLetters(), 1)
			w.clock.Advance(time.Minute + time.Second)
			assertEqual(t, "dead letters", deadLetters(), 0)
			w.Do(t, "POST", deadLettersPath+"/"+r.JobID+"/replay", "").WantError(t, 409,
				"NOT_REPLAYABLE")
		})
	})
}

func TestLocks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 20, 20))
		first := w.mustClaim(t, r.JobID)
		t.Run("IP-045 IP-048 a lock of exactly ten minutes still holds", func(t *testing.T) {
			w.clock.Advance(lockTimeout)
			w.sweep(t)
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed")
			}
			assertEqual(t, "attempts", w.status(t, r.JobID, processing).AttemptCount, 1)
		})
		t.Run("G-IP-05 a heartbeat renews it", func(t *testing.T) {
			if _, err := w.engine.Heartbeat(context.Background(),
				engine.Run{ID: first.ID, Run: first.Run}, nil); err != nil {
				t.Fatal(err)
			}
			if v := w.job(t, r.JobID); !v.LockedAt.Equal(w.clock.Now()) {
				t.Errorf("locked at %s, now %s", v.LockedAt, w.clock.Now())
			}
			w.clock.Advance(lockTimeout)
			if w.claim(t, r.JobID) != nil {
				t.Error("claimed")
			}
		})
		w.clock.Advance(time.Microsecond)
		second := w.mustClaim(t, r.JobID)
		t.Run("IP-044 G-IP-03 an older one is taken over: processing still, one attempt more",
			func(t *testing.T) {
				v := w.status(t, r.JobID, processing)
				assertEqual(t, "attempts", v.AttemptCount, 2)
				assertEqual(t, "history", w.history(t, r.JobID), "queued processing")
				if !v.LockedAt.Equal(w.clock.Now()) {
					t.Errorf("locked at %s", v.LockedAt)
				}
				assertEqual(t, "lines", len(w.log.Lines(t,
					map[string]any{"msg": "lock taken over", "job_id": r.JobID})), 1)
			})
		t.Run("IP-041 the late result of the old worker is refused", func(t *testing.T) {
			if _, err := w.images.Attempt(context.Background(), first); !job.IsKind(err,
				job.RunLost) {
				t.Errorf("got %v", err)
			}
			if err := w.end(first, images.FailureOutcome(first, "late", "storage_error",
				true)); !job.IsKind(err, job.RunLost) {
				t.Errorf("got %v", err)
			}
			assertEqual(t, "run", w.state(t, r.JobID).Run, second.Run)
			w.status(t, r.JobID, processing)
		})
		t.Run("IP-051 another worker finishes the job", func(t *testing.T) {
			if _, err := w.images.Attempt(context.Background(), second); err != nil {
				t.Fatal(err)
			}
			v := w.status(t, r.JobID, completed)
			assertEqual(t, "reason", text(v.LastErrorType), "worker_lost")
			w.file(t, r.FileID, "ready")
		})
		t.Run("a job whose workers die every time has failed", func(t *testing.T) {
			other := w.put(t, pngOf(t, 20, 20))
			for range 3 {
				w.mustClaim(t, other.JobID)
				w.clock.Advance(lockTimeout + time.Microsecond)
				w.sweep(t)
			}
			v := w.status(t, other.JobID, failed)
			assertEqual(t, "reason", text(v.LastErrorType), "worker_lost")
			assertEqual(t, "attempts", v.AttemptCount, 3)
		})
	})
}

func TestDeletion(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 90, 30))
		w.attempt(t, r.JobID)
		queuedJob := w.create(t, "process_file", r.FileID)
		waiting := w.create(t, "process_file", r.FileID)
		w.fail(t, waiting.JobID)
		url := w.file(t, r.FileID, "ready").Variants[0].URL
		deletion := testkit.DecodeReply[receipt](t,
			w.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)).JobID
		t.Run("IP-029 a deletion is another job, and changes no other", func(t *testing.T) {
			v := w.status(t, deletion, queued)
			assertEqual(t, "type", v.JobType, "delete_file")
			w.status(t, r.JobID, completed)
			w.status(t, queuedJob.JobID, queued)
			w.status(t, waiting.JobID, retryable)
			again := testkit.DecodeReply[receipt](t,
				w.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)).JobID
			assertEqual(t, "a second one", again, deletion)
			assertEqual(t, "as a job", w.create(t, "delete_file", r.FileID).JobID, deletion)
		})
		t.Run("G-IP-19 the file is deleted from then on", func(t *testing.T) {
			assertEqual(t, "variants", len(w.file(t, r.FileID, "deleted").Variants), 0)
			w.Do(t, "GET", url, "").WantError(t, 410, "FILE_DELETED")
			w.Do(t, "GET", filesPath+"/"+r.FileID+"/content", "").WantError(t, 410, "FILE_DELETED")
			w.Do(t, "POST", jobsPath, `{"type":"process_file","file_id":"`+r.FileID+
				`"}`).WantError(t, 410, "FILE_DELETED")
		})
		t.Run("G-IP-15 a job that is claimed later ends as failed, with nothing written",
			func(t *testing.T) {
				w.attempt(t, queuedJob.JobID)
				assertEqual(t, "reason", text(w.status(t, queuedJob.JobID, failed).LastErrorType),
					"file_deleted")
			})
		w.attempt(t, deletion)
		w.messages(t)
		t.Run("G-IP-07 IP-020 what waits to be tried again is given up", func(t *testing.T) {
			assertEqual(t, "reason", text(w.status(t, waiting.JobID, failed).LastErrorType),
				"file_deleted")
		})
		t.Run("a deletion alarms nobody", func(t *testing.T) {
			assertEqual(t, "lines", len(w.log.Lines(t,
				map[string]any{"msg": "a job failed for good"})), 0)
		})
		w.status(t, deletion, completed)
		assertEqual(t, "objects", len(w.stored(t)), 0)
		w.Do(t, "POST", deadLettersPath+"/"+waiting.JobID+"/replay", "").WantError(t, 410,
			"FILE_DELETED")
	})
}

// interruptedProcessor is a processor that lets something happen before it has ended.
type interruptedProcessor struct {
	images.Processor
	meanwhile func()
}

func (i *interruptedProcessor) Run(ctx context.Context, original io.Reader, sizes []int,
	dir string) (picture.Info, []picture.Variant, error) {
	info, variants, err := i.Processor.Run(ctx, original, sizes, dir)
	i.meanwhile()
	return info, variants, err
}

// A file that is deleted while it is processed gets no variants.
func TestDeletionMeanwhile(t *testing.T) {
	t.Parallel()
	p := &interruptedProcessor{Processor: processor()}
	c := config()
	c.Processor = p
	w := inMemory(t, c)
	r := w.put(t, pngOf(t, 90, 30))
	p.meanwhile = func() {
		id := testkit.DecodeReply[receipt](t,
			w.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)).JobID
		w.attempt(t, id)
	}
	w.attempt(t, r.JobID)
	assertEqual(t, "reason", text(w.status(t, r.JobID, failed).LastErrorType), "file_deleted")
	assertEqual(t, "objects", len(w.stored(t)), 0)
	assertEqual(t, "files", len(files(t, filepath.Join(w.dir, bucket))), 0)
}

// A worker that stalls until its lock has run out comes too late with its result.
func TestStalledWriter(t *testing.T) {
	t.Parallel()
	p := &interruptedProcessor{Processor: processor()}
	c := config()
	c.Processor = p
	w := inMemory(t, c)
	r := w.put(t, pngOf(t, 90, 30))
	var second *job.Job
	p.meanwhile = func() { // the lock runs out, and another worker does the work
		p.meanwhile = func() {}
		w.clock.Advance(lockTimeout + time.Microsecond)
		second = w.mustClaim(t, r.JobID)
		if _, err := w.images.Attempt(context.Background(), second); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.images.Attempt(context.Background(), w.mustClaim(t, r.JobID)); !job.IsKind(err,
		job.RunLost) {
		t.Fatalf("IP-041 the stalled worker's result: %v", err)
	}
	assertEqual(t, "attempts", w.status(t, r.JobID, completed).AttemptCount, 2)
	assertEqual(t, "variants", len(w.file(t, r.FileID, "ready").Variants), 2)
}

// failingProcessor is a processor that fails with what it has.
type failingProcessor struct{ err error }

func (s failingProcessor) Run(context.Context, io.Reader, []int, string) (picture.Info,
	[]picture.Variant, error) {
	return picture.Info{}, nil, s.err
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		kind   string
		status job.State
	}{
		{&picture.Error{Type: picture.Timeout, Msg: "m"}, picture.Timeout, retryable},
		{&picture.Error{Type: picture.OutOfMemory, Msg: "m"}, picture.OutOfMemory, retryable},
		{&picture.Error{Type: picture.Crashed, Msg: "m"}, picture.Crashed, retryable},
		{&picture.Error{Type: picture.TooLarge, Final: true, Msg: "m"}, picture.TooLarge, failed},
		{errors.New("no room on the device"), "internal_error", retryable},
	} {
		conf := config()
		conf.Processor = failingProcessor{c.err}
		w := inMemory(t, conf)
		r := w.put(t, pngOf(t, 2, 2))
		w.attempt(t, r.JobID)
		assertEqual(t, c.kind, text(w.status(t, r.JobID, c.status).LastErrorType), c.kind)
		assertEqual(t, "counted", metric(t, w.worker, "image_processing_errors_total", "error_type",
			c.kind), 1.0)
	}
	w := inMemory(t, config())
	r := w.put(t, pngOf(t, 2, 2))
	if err := w.objects.Delete(context.Background(), "",
		"images/"+r.FileID+"/original"); err != nil {
		t.Fatal(err)
	}
	w.attempt(t, r.JobID)
	assertEqual(t, "an original that is gone", text(w.status(t, r.JobID, failed).LastErrorType),
		"original_missing")
}

// An original that is missing on this node may be with another one, where nodes share the database:
// it is tried again.
func TestOriginalMissingOnASharedStore(t *testing.T) {
	t.Parallel()
	conf := config()
	conf.Binding = storageid.New(storageid.Config{})
	w := inMemory(t, conf)
	r := w.put(t, pngOf(t, 2, 2))
	key := "images/" + r.FileID + "/original"
	body, _, err := w.objects.Open(t.Context(), "", key)
	if err != nil {
		t.Fatal(err)
	}
	original, err := io.ReadAll(body)
	body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Delete(t.Context(), "", key); err != nil {
		t.Fatal(err)
	}
	w.attempt(t, r.JobID)
	assertEqual(t, "why", text(w.status(t, r.JobID, retryable).LastErrorType), "original_missing")
	if _, err := w.objects.Put(t.Context(), "", key, bytes.NewReader(original),
		object.Attributes{ContentType: "image/png"}); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	w.sweep(t)
	w.attempt(t, r.JobID)
	w.status(t, r.JobID, completed)
}
