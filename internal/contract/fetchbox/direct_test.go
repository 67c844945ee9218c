package fetchbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// producer is a direct producer on the NATS protocol.
func (w *world) producer(t testing.TB) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect("nats://" + w.streams.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// publish stores messages on jobs.tasks as a producer does.
func publish(t testing.TB, conn *nats.Conn, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if _, err := conn.Request("jobs.tasks", []byte(m), 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// takeIn ingests what was published. It waits for a last message, and until each message before it
// is acknowledged: one that was delivered to a consumer that was just stopped comes again later.
func (w *world) takeIn(t testing.TB, conn *nats.Conn) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.fetchbox.RunProducers(ctx) }()
	w.marks++
	publish(t, conn, strings.Replace(directTask(fmt.Sprintf("00000000-0000-7000-8000-%012d",
		w.marks), "mark"), gallery, "marks", 1))
	jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: fetchbox.Tasks,
		Queues: []string{"marks"}, Max: 1, Worker: "a worker", Wait: time.Minute})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("got %d jobs: %v", len(jobs), err)
	}
	w.finish(t, jobs[0], storedOutcome)
	testkit.WaitUntil(t, "each message is acknowledged", func() bool {
		consumer := w.consumer(t, conn)
		return (consumer.NumPending == 0) && (consumer.NumAckPending == 0)
	})
	stop()
	<-ended
}

// consumer is the state of the consumer that all nodes share.
func (w *world) consumer(t testing.TB, conn *nats.Conn) *jetstream.ConsumerInfo {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), "JOBS_TASKS", "millrace-direct")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func directTask(jobID, resource string) string {
	return fmt.Sprintf(`{"job_id":%q,"job_type":"gallery","resource_id":%q,"url":"https://example.com/a","headers":{"user-agent":"mine"},"tags":{},"manifest_key":"s3://theirs/m.json","tenant":"them","attempt":1}`,
		jobID, resource)
}

const foreignTask = "0192f3a0-1111-7222-8333-444455556666"

func TestDirectProducers(t *testing.T) {
	c := config()
	c.Types["marks"] = &fetchbox.Type{}
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		testDirectProducers(t, newWorldAt(t, p, c))
	})
}

func testDirectProducers(t *testing.T, w *world) {
	conn := w.producer(t)
	ofTheirs := func() (n int) {
		for _, j := range w.all(t, fetchbox.Tasks) {
			if id, _ := fetchbox.Label(j); id == foreignTask {
				n++
			}
		}
		return n
	}
	t.Run("FB-095 FB-097 FB-098 G-FB-23 a task makes the ledger's entry", func(t *testing.T) {
		publish(t, conn, directTask(foreignTask, "a"), directTask(foreignTask, "b"))
		w.takeIn(t, conn)
		v := w.status(t, foreignTask, "queued")
		assertEqual(t, "entry", fmt.Sprint(v.JobType, v.Total, v.ManifestKey, v.Tenant),
			"gallery2s3://theirs/m.jsonthem")
		assertEqual(t, "log", w.logs(t, foreignTask, "")[0].Message, "the job is accepted")
	})
	t.Run("FB-080 the job type holds for it as for others", func(t *testing.T) {
		j, err := w.engine.GetByAlias(t.Context(), fetchbox.TaskAlias(foreignTask, "a"))
		if err != nil {
			t.Fatal(err)
		}
		var m taskMessage
		if err := json.Unmarshal(j.Payload, &m); err != nil {
			t.Fatal(err)
		}
		assertEqual(t, "headers", fmt.Sprint(m.Headers), "map[X-From:type user-agent:mine]")
		assertEqual(t, "place", m.Storage.Bucket+" "+m.Storage.Key,
			"pictures gallery/"+foreignTask+"/a")
	})
	t.Run("FB-096 FB-086 FB-056 delivered five times it counts once", func(t *testing.T) {
		for range 5 {
			publish(t, conn, directTask(foreignTask, "a"))
		}
		w.takeIn(t, conn)
		assertEqual(t, "tasks", ofTheirs(), 2)
		w.awaitEnd(t, foreignTask, storedOutcome)
		publish(t, conn, directTask(foreignTask, "a"), directTask(foreignTask, "a"))
		w.takeIn(t, conn)
		v := w.status(t, foreignTask, "in_progress")
		assertEqual(t, "counts", fmt.Sprint(v.Total, v.Completed), "2 1")
	})
	t.Run("G-FB-22 what we publish ourselves is passed over", func(t *testing.T) {
		before := len(w.all(t, fetchbox.Tasks))
		r := w.submit(t, manifest(3))
		w.deliver(t)
		w.takeIn(t, conn)
		assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), before+4)
		assertEqual(t, "total", w.get(t, r.JobID).Total, 3)
	})
	t.Run("FB-095 their tasks are not published again", func(t *testing.T) {
		w.deliver(t)
		n := 0
		for _, m := range w.messages(t) {
			if m.JobID == foreignTask && m.ResourceID == "b" {
				n++
			}
		}
		assertEqual(t, "messages", n, 1)
	})
	t.Run("FB-097 more tasks for a job that is done open it again", func(t *testing.T) {
		w.awaitEnd(t, foreignTask, storedOutcome)
		w.finalizeAll(t)
		w.status(t, foreignTask, "completed")
		publish(t, conn, directTask(foreignTask, "c"))
		w.takeIn(t, conn)
		assertEqual(t, "total", w.status(t, foreignTask, "in_progress").Total, 3)
		w.awaitEnd(t, foreignTask, brokeOutcome)
		w.finalizeAll(t)
		w.status(t, foreignTask, "failed")
	})
	t.Run("FB-095 a task for a job of the API", func(t *testing.T) {
		r := w.submit(t, manifest(1))
		publish(t, conn, directTask(strings.ToUpper(r.JobID), "more"), directTask(r.JobID, "r0000"))
		w.takeIn(t, conn)
		assertEqual(t, "total", w.get(t, r.JobID).Total, 2)
	})
	t.Run("FB-096 what they say is taken as correct", func(t *testing.T) {
		const id = "0192f3a0-1111-7222-8333-444455557777"
		// the fetcher refuses it (FB-081)
		publish(t, conn, strings.Replace(directTask(id, "ftp"), "https://", "ftp://", 1))
		w.takeIn(t, conn)
		w.status(t, id, "queued")
	})
	t.Run("FB-095 500 at once", func(t *testing.T) {
		const id = "0192f3a0-1111-7222-8333-444455558888"
		for i := range 500 {
			if err := conn.Publish("jobs.tasks",
				[]byte(directTask(id, fmt.Sprint("r", i)))); err != nil {
				t.Fatal(err)
			}
		}
		w.takeIn(t, conn)
		assertEqual(t, "total", w.get(t, id).Total, 500)
	})
	testMalformed(t, w, conn)
}

// testMalformed is FB-099: what is no task becomes a dead letter, and the next message is taken in.
func testMalformed(t *testing.T, w *world, conn *nats.Conn) {
	w.deliver(t)
	before := len(w.all(t, fetchbox.Tasks))
	good := directTask(foreignTask, "x")
	cases := []struct{ name, message, code string }{
		{"no JSON", "{", "SYSTEM_MALFORMED_TASK"},
		{"no UTF-8", "\xff\x00", "SYSTEM_MALFORMED_TASK"},
		{"nothing", "", "SYSTEM_MALFORMED_TASK"},
		{"an array", "[]", "SYSTEM_MALFORMED_TASK"},
		{"null", "null", "SYSTEM_MALFORMED_TASK"},
		{"no job", strings.Replace(good, "job_id", "jobb", 1), "SYSTEM_MALFORMED_TASK"},
		{"a job id that is none", directTask("../../up", "x"), "SYSTEM_MALFORMED_TASK"},
		{"a job id that is a pattern", directTask(">", "x"), "SYSTEM_MALFORMED_TASK"},
		{"no resource", directTask(foreignTask, ""), "SYSTEM_MALFORMED_TASK"},
		{"a long resource", directTask(foreignTask, strings.Repeat("x", 129)),
			"SYSTEM_MALFORMED_TASK"},
		{"no url", strings.Replace(good, `"url"`, `"uri"`, 1), "SYSTEM_MALFORMED_TASK"},
		{"a number for a header", strings.Replace(good, `"mine"`, "7", 1), "SYSTEM_MALFORMED_TASK"},
		{"a huge one", strings.Replace(good, "mine", strings.Repeat("m", 300<<10), 1),
			"SYSTEM_MALFORMED_TASK"},
		{"an unknown job type", strings.Replace(good, gallery, "unknown", 1),
			"SYSTEM_UNKNOWN_JOB_TYPE"},
	}
	for _, c := range cases {
		publish(t, conn, c.message)
	}
	w.takeIn(t, conn)
	got := w.deadLetters(t, "?limit=100").Items
	for i, c := range cases {
		t.Run("FB-099 "+c.name, func(t *testing.T) {
			l := got[len(cases)-1-i] // the newest first
			assertEqual(t, "code", l.Code, c.code)
			if l.Message == "" || l.Attempts != 0 || !json.Valid(l.Task) {
				t.Errorf("got %+v", l)
			}
			if len(c.message) < 1000 && json.Valid([]byte(c.message)) {
				assertEqual(t, "task", string(l.Task), c.message)
			}
			w.replay(t, l.Offset).WantError(t, 409, "CONFLICT")
		})
	}
	t.Run("FB-099 none of them is a task", func(t *testing.T) {
		// what ingestBatch waits for
		assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), before+1)
	})
}

// finalizeAll finalizes every job that ended.
func (w *world) finalizeAll(t testing.TB) {
	t.Helper()
	for _, j := range w.claimOf(t, fetchbox.Name, 100) {
		w.finish(t, j, engine.Outcome{On: job.Started})
		w.finish(t, j, outcomeOf(j))
	}
}

func outcomeOf(j *job.Job) engine.Outcome { return engine.Outcome{On: fetchbox.FinalCause(j)} }
