package images_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// What was about to be claimed when a node was killed is not left waiting for its message to come
// again.
func TestMessageInHand(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	jobs := []string{w.put(t, pngOf(t, 9, 9)).JobID, w.put(t, pngOf(t, 9, 9)).JobID}
	w.messages(t) // they come no more
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.images.Run(ctx) })
	for _, id := range jobs {
		w.waitForState(t, id, completed)
	}
	stop()
	running.Wait()
	assertEqual(t, "IP-076 ends that were written",
		metric(t, w.worker, "db_query_duration_seconds", "query_type", "update"), 2.0)
}

func TestMessages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.put(t, pngOf(t, 20, 20), "X-User-Id", "u")
		t.Run("IP-003 IP-008 a new job is proposed by a message", func(t *testing.T) {
			all := w.messages(t)
			want := `{"jobId":"` + r.JobID + `","type":"process_file","fileId":"` + r.FileID +
				`","userId":"u","storageKey":"images/` + r.FileID +
				`/original","requestedSizes":[16,64]}`
			if len(all) != 1 || string(all[0].Body) != want {
				t.Errorf("got %s, want %s", all, want)
			}
		})
		one := func(t *testing.T, why string) {
			t.Helper()
			if all := w.messages(t); len(all) != 1 {
				t.Errorf("%s: %d messages", why, len(all))
			}
		}
		t.Run("so is whatever makes a job claimable again", func(t *testing.T) {
			w.fail(t, r.JobID)
			assertEqual(t, "messages before the delay is over", len(w.messages(t)), 0)
			w.clock.Advance(5 * time.Second)
			w.sweep(t)
			one(t, "the delay is over")
			w.mustClaim(t, r.JobID)
			w.clock.Advance(lockTimeout + time.Microsecond)
			w.sweep(t)
			one(t, "the lock ran out")
			other := w.put(t, pngOf(t, 20, 20))
			one(t, "created")
			if err := w.end(w.mustClaim(t, other.JobID),
				engine.Outcome{On: job.Released}); err != nil {
				t.Fatal(err)
			}
			one(t, "given back")
			v := w.status(t, other.JobID, retryable)
			assertEqual(t, "G-IP-21 the attempt counts", v.AttemptCount, 1)
			assertEqual(t, "and is no more than that", text(v.LastErrorType), "worker_lost")
			w.attempt(t, other.JobID)
		})
		t.Run("a deletion's message names the file", func(t *testing.T) {
			w.messages(t)
			w.Do(t, "DELETE", filesPath+"/"+r.FileID, "").WantStatus(t, 202)
			all := w.messages(t)
			want := `{"jobId":"` + w.file(t, r.FileID, "deleted").JobID +
				`","type":"delete_file","fileId":"` + r.FileID + `","userId":"u"}`
			if len(all) != 1 || string(all[0].Body) != want {
				t.Errorf("got %s, want %s", all, want)
			}
		})
		t.Run("IP-003 a message is sent again when asked for", func(t *testing.T) {
			w.Do(t, "POST", "/images/v1/messages", `{"job_id":"`+r.JobID+`"}`).WantStatus(t, 202)
			all := w.queue.receive()
			if len(all) != 1 || all[0].ID != "" {
				t.Errorf("got %+v", all)
			}
			for _, body := range []string{`{}`, `{"job_id":7}`, `[`} {
				w.Do(t, "POST", "/images/v1/messages", body).WantError(t, 400, "VALIDATION_FAILED")
			}
			w.Do(t, "POST", "/images/v1/messages", `{"job_id":"x"}`, testkit.HeaderUndocumented,
				"1").WantError(t, 404, "JOB_NOT_FOUND")
		})
		t.Run("what proposes nothing is passed over", func(t *testing.T) {
			for _, body := range []string{``, `{}`, `{"jobId":"x"}`, `nonsense`, `{"jobId":7}`,
				string(proposal(r.FileID))} {
				j, acked, err := w.images.ClaimProposed(context.Background(), []byte(body), "w")
				if j != nil || !acked || err != nil {
					t.Errorf("%q: %v, acknowledged %t, %v", body, j, acked, err)
				}
			}
		})
	})
}

// An outage of the queue keeps the outbox waiting, and nothing else.
func TestQueueOutage(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.queue.fail = &job.Error{Kind: job.Unavailable, Op: "test"}
	r := w.put(t, pngOf(t, 20, 20))
	if _, err := w.engine.Publish(context.Background(), w.images.Deliver); err == nil {
		t.Error("published")
	}
	w.Do(t, "POST", "/images/v1/messages", `{"job_id":"`+r.JobID+`"}`).WantError(t, 503,
		"SERVICE_UNAVAILABLE")
	assertEqual(t, "failures", metric(t, w.api, "external_error_total", "service", "sqs",
		"error_code", "unavailable"), 2.0)
	w.queue.fail = nil
	assertEqual(t, "messages", len(w.messages(t)), 1)
}

func TestSweep(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		sweep := w.images.Sweeper()
		swept := func(t *testing.T) int {
			t.Helper()
			if err := sweep(context.Background()); err != nil {
				t.Fatal(err)
			}
			return len(w.queue.receive())
		}
		first := w.put(t, pngOf(t, 20, 20)).JobID
		w.messages(t) // lost
		assertEqual(t, "before a minute", swept(t), 0)
		w.clock.Advance(time.Minute)
		assertEqual(t, "G-IP-16 after a minute", swept(t), 1)
		t.Run("G-IP-16 whatever can be claimed is proposed again, and nothing else",
			func(t *testing.T) {
				w.clock.Advance(time.Hour)
				swept(t)
				want := map[string]bool{}
				made := func(waits bool) string {
					id := w.put(t, pngOf(t, 2, 2)).JobID
					if waits {
						want[id] = true
					}
					return id
				}
				w.mustClaim(t, made(true)) // its lock will run out
				w.clock.Advance(lockTimeout - 5*time.Second)
				made(true) // queued
				w.fail(t, made(true))
				if err := w.end(w.mustClaim(t, made(true)),
					engine.Outcome{On: job.Released}); err != nil {
					t.Fatal(err)
				}
				w.attempt(t, made(false))
				w.clock.Advance(6 * time.Second)
				w.sweep(t) // the lock has run out, the delay is over
				w.mustClaim(t, made(false))
				w.messages(t) // lost
				w.clock.Advance(time.Minute)
				if err := sweep(context.Background()); err != nil {
					t.Fatal(err)
				}
				for _, m := range w.queue.receive() {
					var of struct{ JobID string }
					if err := json.Unmarshal(m.Body, &of); err != nil || m.ID != "" {
						t.Errorf("%s %q: %v", m.Body, m.ID, err)
					}
					if of.JobID == first {
						continue
					}
					if !want[of.JobID] {
						t.Errorf("%s is proposed", of.JobID)
					}
					delete(want, of.JobID)
				}
				assertEqual(t, "not proposed", len(want), 0)
			})
		t.Run("one node sweeps at a time", func(t *testing.T) {
			other := w.node(t, config())
			if err := other.images.Sweeper()(context.Background()); err != nil {
				t.Fatal(err)
			}
			assertEqual(t, "messages", len(w.queue.receive()), 0)
		})
		t.Run("originals without a job are removed, once they are an hour old", func(t *testing.T) {
			id := w.put(t, pngOf(t, 2, 2)).FileID
			kept := len(w.stored(t))
			orphan := "images/" + id[:len(id)-4] + "ffff/original" // of the same moment
			if _, err := w.objects.Put(context.Background(), "", orphan, http1(),
				objectOfPNG); err != nil {
				t.Fatal(err)
			}
			w.clock.Advance(time.Hour - time.Minute)
			swept(t)
			assertEqual(t, "objects", len(w.stored(t)), kept+1)
			w.clock.Advance(2 * time.Minute)
			swept(t)
			w.clock.Advance(time.Minute)
			swept(t)
			assertEqual(t, "objects", len(w.stored(t)), kept)
		})
	})
}

// TestUncheckedOriginal checks that the sweep checks an original again that it could not check,
// removes it then, and goes on behind it.
func TestUncheckedOriginal(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	u := &failingStore{Store: p.Store}
	p.Store = u
	w := newWorldAt(t, p, config())
	id := w.put(t, pngOf(t, 2, 2)).FileID
	kept := len(w.stored(t))
	for _, end := range []string{"eeee", "ffff"} {
		if _, err := w.objects.Put(context.Background(), "",
			"images/"+id[:len(id)-4]+end+"/original", http1(), objectOfPNG); err != nil {
			t.Fatal(err)
		}
	}
	sweep := w.images.Sweeper()
	w.clock.Advance(time.Hour + time.Minute)
	u.blind.Store(true)
	for range 2 {
		if err := sweep(context.Background()); err == nil {
			t.Error("a sweep succeeds that checks nothing")
		}
		assertEqual(t, "objects in an outage", len(w.stored(t)), kept+2)
		w.clock.Advance(time.Minute)
	}
	u.blind.Store(false)
	if err := sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	assertEqual(t, "objects after it", len(w.stored(t)), kept)
}

// One message twenty times, in parallel, to four workers on two nodes: one attempt.
func TestDuplicates(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, place testkit.Database) {
		t.Run("IP-040 IP-004 IP-042 IP-046 twenty deliveries, four workers, one attempt",
			func(t *testing.T) {
				var processed atomic.Int32
				c := config()
				c.Processor = &interruptedProcessor{processor(), func() { processed.Add(1) }}
				w := newWorldAt(t, place, c)
				r := w.put(t, pngOf(t, 30, 30))
				w.messages(t)
				other := w.node(t, c)
				ctx, stop := context.WithCancel(context.Background())
				var running, sends sync.WaitGroup
				for _, node := range []*world{w, other} {
					running.Go(func() { node.images.Run(ctx) })
				}
				var acked atomic.Int32
				for i := range 20 {
					sends.Go(func() {
						acknowledged := make(chan struct{})
						d := message.Delivery{Body: proposal(r.JobID), Ack: func() {
							acked.Add(1)
							close(acknowledged)
						}, Nak: func() { close(acknowledged) }}
						[]*world{w, other}[i%2].images.Propose(ctx, d)
						<-acknowledged
					})
				}
				sends.Wait()
				assertEqual(t, "acknowledged", acked.Load(), 20)
				stop()
				running.Wait()
				assertEqual(t, "attempts", w.status(t, r.JobID, completed).AttemptCount, 1)
				sum := metric(t, w.worker, "job_processed_total", "status", "completed") +
					metric(t, other.worker, "job_processed_total", "status", "completed")
				assertEqual(t, "attempts counted", sum, 1.0)
				assertEqual(t, "processed", processed.Load(), 1)
			})
	})
}

// 32 claims of one job at the same time: one succeeds, fifty times.
func TestClaimCrowd(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("IP-043 IP-050 32 claims at once, one winner", func(t *testing.T) {
			other := w.node(t, config())
			r := w.put(t, pngOf(t, 2, 2))
			for round := range 50 {
				id := w.create(t, "process_file", r.FileID).JobID
				wins := testkit.RunConcurrently(32, func(i int) bool {
					j, acked, err := []*world{w,
						other}[i%2].images.ClaimProposed(context.Background(), proposal(id),
						fmt.Sprint("w", i))
					if err != nil || !acked {
						t.Errorf("acknowledged %t: %v", acked, err)
					}
					return j != nil
				})
				n := 0
				for _, won := range wins {
					if won {
						n++
					}
				}
				assertEqual(t, fmt.Sprint("winners of round ", round), n, 1)
				assertEqual(t, "attempts", w.state(t, id).Attempts, 1)
			}
		})
	})
}

// A job from the upload to its variants, through the streams: upload, outbox, message, claim,
// attempt.
func TestThroughStreams(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	s, err := stream.Open(context.Background(),
		stream.Config{Dir: t.TempDir(), Node: "n", Specs: images.Streams(), Log: log,
			Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := config()
	c.Queue = images.Embedded(s, log)
	t.Run("G-IP-12 upload, outbox, stream, claim, attempt", func(t *testing.T) {
		runThrough(t, inMemory(t, c))
	})
}

// runThrough runs the contract until a file that is uploaded is ready.
func runThrough(t *testing.T, w *world) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.images.Run(ctx) })
	defer running.Wait()
	defer stop()
	r := w.put(t, pngOf(t, 200, 100))
	if _, err := w.engine.Publish(ctx, w.images.Deliver); err != nil {
		t.Fatal(err)
	}
	w.waitForState(t, r.JobID, completed)
	w.Do(t, "POST", "/images/v1/messages", `{"job_id":"`+r.JobID+`"}`).WantStatus(t, 202)
	other := w.put(t, pngOf(t, 200, 100))
	if _, err := w.engine.Publish(ctx, w.images.Deliver); err != nil {
		t.Fatal(err)
	}
	w.waitForState(t, other.JobID, completed)
	assertEqual(t, "IP-038 attempts of the job whose message came twice",
		w.job(t, r.JobID).AttemptCount, 1)
	assertEqual(t, "variants", len(w.file(t, other.FileID, "ready").Variants), 2)
}

// waitForState reads a job until it has a status.
func (w *world) waitForState(t testing.TB, id string, want job.State) {
	t.Helper()
	testkit.WaitUntil(t, "job "+id+" to be "+string(want), func() bool {
		return w.job(t, id).Status == string(want)
	})
}

// The same through SQS, in a server of its own.
func TestThroughSQS(t *testing.T) {
	server := outside.NewSQS(t, 30*time.Second)
	queue, err := message.OpenSQS(context.Background(), server.Setting(),
		slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	c := config()
	c.Queue = queue
	t.Run("G-IP-12 upload, outbox, SQS, claim, attempt", func(t *testing.T) {
		runThrough(t, inMemory(t, c))
	})
}
