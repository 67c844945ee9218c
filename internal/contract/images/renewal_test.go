package images_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// slowProcessor is a processor that takes its time before it begins.
type slowProcessor struct {
	images.Processor
	takes time.Duration
}

func (l *slowProcessor) Run(ctx context.Context, original io.Reader, sizes []int,
	dir string) (picture.Info, []picture.Variant, error) {
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return picture.Info{}, nil, ctx.Err()
	}
	return l.Processor.Run(ctx, original, sizes, dir)
}

// timedWorld is a whole Images inside a bubble whose time passes when all in it wait. Such a bubble
// has no network.
type timedWorld struct {
	images *images.Images
	engine *engine.Engine
}

func newTimedWorld(t *testing.T, takes time.Duration) *timedWorld {
	t.Helper()
	jobs, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { jobs.Close() })
	c := config()
	c.API, c.Worker, c.Log = prometheus.NewRegistry(), prometheus.NewRegistry(),
		slog.New(slog.DiscardHandler)
	c.Now, c.Random, c.Node, c.Queue = time.Now, testkit.RandomBytes, "test", &memoryQueue{}
	c.Bucket, c.WorkDir, c.Processor = bucket, t.TempDir(), &slowProcessor{processor(), takes}
	if c.Objects, err = object.Open(context.Background(),
		object.Config{Dir: t.TempDir(), Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Objects.Close() })
	x := &timedWorld{}
	began := time.Now()
	x.engine, err = engine.New(engine.Config{Store: jobs, Node: "n", Random: testkit.RandomBytes,
		Monotonic: func() time.Duration { return time.Since(began) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.engine.Close)
	c.Engine = x.engine
	if x.images, err = images.New(c); err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, x.engine, x.images.JobTypes()...)
	return x
}

// upload uploads a picture.
func (x *timedWorld) upload(t *testing.T) receipt {
	t.Helper()
	req := httptest.NewRequest("POST", filesPath, bytes.NewReader(pngOf(t, 20, 20)))
	req.Header.Set("Content-Type", "image/png")
	answer := httptest.NewRecorder()
	x.images.Mount().Handler.ServeHTTP(answer, req)
	return testkit.DecodeReply[receipt](t,
		testkit.Reply{Status: answer.Code, Body: answer.Body.String()}.WantStatus(t, 202))
}

// The pool renews the lock of a job that takes two and a half times its time-out, at a third of
// that, and nobody takes it over, although others propose, claim and look for stale locks all the
// time.
func TestLongJob(t *testing.T) {
	t.Parallel()
	t.Run("G-IP-05 a lock is renewed while its worker lives", func(t *testing.T) {
		synctest.Test(t, longJob)
	})
}

func longJob(t *testing.T) {
	const takes = 5 * lockTimeout / 2
	x := newTimedWorld(t, takes)
	id := x.upload(t).JobID
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { x.images.Run(ctx) })
	x.images.Propose(ctx, message.Delivery{Body: proposal(id), Ack: func() {}, Nak: func() {}})
	synctest.Wait()
	began, first := time.Now(), x.state(t, id)
	var renewed []time.Duration
	for time.Since(began) < takes-time.Second {
		time.Sleep(10 * time.Second)
		testkit.RunMaintenance(t, x.engine)
		if j, acked, err := x.images.ClaimProposed(ctx, proposal(id), "another"); j != nil ||
			!acked || err != nil {
			t.Fatalf("after %s another worker got %v, acknowledged %t, %v", time.Since(began), j,
				acked, err)
		}
		j := x.state(t, id)
		if at := j.LeaseUntil.Add(-j.Lease).Sub(began); at > 0 && !slices.Contains(renewed, at) {
			renewed = append(renewed, at)
		}
		if j.Run != first.Run || j.State != processing {
			t.Fatalf("after %s the job is %s, in run %s", time.Since(began), j.State, j.Run)
		}
	}
	var want []time.Duration
	for at := lockTimeout / 3; at < takes; at += lockTimeout / 3 {
		want = append(want, at)
	}
	assertEqual(t, "renewed at thirds of the time-out", encoded(renewed), encoded(want))
	for x.state(t, id).State == processing {
		time.Sleep(time.Second)
	}
	last := x.state(t, id)
	assertEqual(t, "state", last.State, completed)
	assertEqual(t, "attempts", last.Attempts, 1)
	assertEqual(t, "failures", last.FailedAttempts, 0)
	stop()
	running.Wait()
}

func (x *timedWorld) state(t *testing.T, id string) *job.Job {
	t.Helper()
	j, err := x.engine.Get(context.Background(), engineJobID(id))
	if err != nil {
		t.Fatal(err)
	}
	return j
}
