package stream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// The tests of clusters run one after another: beside each other, on few processors, three servers each would be slow to
// elect their leaders.

// mustCluster starts a cluster and streams on it. The servers have not elected their leader when Open comes.
func mustCluster(t *testing.T) (*outside.NATSCluster, *world) {
	t.Helper()
	cluster := outside.NewNATSCluster(t, "hush")
	c := config(t)
	c.Dir, c.Token, c.URL = "", "hush", cluster.URL
	soon(t, "the streams", func() bool {
		s, err := stream.Open(t.Context(), c)
		if err == nil {
			s.Close()
		} else if !job.IsKind(err, job.Unavailable) { // an election may last longer than Open does
			t.Fatal(err)
		}
		return err == nil
	})
	w := mustWorld(t, c)
	for _, spec := range specs() {
		w.leader(t, spec.Name)
	}
	return cluster, w
}

// soon waits until something holds that nobody tells of.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute in vain for " + what)
		}
	}
}

// leader gives the index of the server that leads a stream.
func (w *world) leader(t *testing.T, name string) (index int) {
	t.Helper()
	soon(t, "a leader", func() bool {
		found, err := w.js.Stream(t.Context(), name)
		if err != nil || found.CachedInfo().Cluster == nil {
			return false
		}
		n, _ := fmt.Sscanf(found.CachedInfo().Cluster.Leader, "n%d", &index)
		return n == 1
	})
	return index
}

// publishAnyway publishes until it is acknowledged.
func (w *world) publishAnyway(ctx context.Context, t *testing.T, m []stream.Message) []uint64 {
	t.Helper()
	for {
		offsets, err := w.Publish(ctx, m)
		if err == nil {
			return offsets
		}
		if !job.IsKind(err, job.Unavailable) {
			t.Fatal(err)
		}
	}
}

// TestCluster goes through the verbs.
func TestCluster(t *testing.T) {
	_, w := mustCluster(t)
	for _, spec := range specs() {
		found, err := w.js.Stream(t.Context(), spec.Name)
		if err != nil || found.CachedInfo().Config.Replicas != 3 {
			t.Fatalf("%s: got %v, %v", spec.Name, found, err)
		}
	}
	work := messages("work", "m", 30)
	for range 2 { // the second time the stream knows them
		if offsets := w.publishAnyway(t.Context(), t, work); offsets[0] != 1 || offsets[29] != 30 {
			t.Errorf("got offsets %v", offsets)
		}
	}
	soon(t, "all messages to be in the copies", func() bool { return len(w.mustRead(t, "WORK", "work", 0, 100)) == 30 })
	if newest, err := w.Newest(t.Context(), "WORK", "work", 0, 2); err != nil || !slices.Equal(data(newest), []string{"m29", "m28"}) {
		t.Errorf("got %v, %v", data(newest), err)
	}
	if e, err := w.Get(t.Context(), "WORK", 7); err != nil || string(e.Data) != "m6" {
		t.Errorf("got %s, %v", e.Data, err)
	}
	got := w.collect(t, worker(), 30, (*stream.Delivery).Ack)
	if len(got) != 30 || got[0].Attempt != 1 || string(got[29].Data) != "m29" {
		t.Errorf("got %d deliveries", len(got))
	}
	w.await(t, func(floor uint64, open int) bool { return floor == 30 && open == 0 })
	w.clock.move(8 * 24 * time.Hour)
	if err := w.Prune(t.Context()); err != nil {
		t.Error(err)
	}
	soon(t, "all messages to be pruned", func() bool { return len(w.mustRead(t, "WORK", "work", 0, 100)) == 0 })
	if err := w.js.DeleteStream(t.Context(), "LOGS"); err != nil {
		t.Fatal(err)
	}
	if offsets := w.publishAnyway(t.Context(), t, messages("logs.a", "anew", 20)); offsets[19] != 20 {
		t.Errorf("got offsets %v", offsets)
	}
}

// TestClusterServerKilled kills a server under a publisher, a consumer and a follower, and starts it again.
func TestClusterServerKilled(t *testing.T) {
	for name, after := range map[string]struct{ connected, killed int }{ // counted from the leader on
		"the leader of the stream":     {1, 0},
		"the server of the connection": {1, 1},
		"the server that is both":      {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, w := mustCluster(t)
			leader := w.leader(t, "WORK")
			c := w.config
			c.URL = cluster.Servers[(leader+after.connected)%3].URL
			w.Streams = mustOpen(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			l := w.listen(ctx, t)

			killed := cluster.Servers[(leader+after.killed)%3]
			var acknowledged []string
			for i := range 24 { // a batch and a single message in turn
				switch i {
				case 8:
					killed.Kill()
				case 16:
					killed.Restart()
				}
				prefix, n := fmt.Sprint("b", i, "-"), 1+39*(i%2)
				work := messages("work", prefix, n)
				w.publishAnyway(ctx, t, append(work, messages("logs.f", prefix, n)...))
				for _, m := range work {
					acknowledged = append(acknowledged, string(m.Data))
				}
			}
			l.check(t, acknowledged)
			soon(t, "all messages to be in the copies", func() bool { return len(w.mustRead(t, "WORK", "work", 0, 1000)) >= len(acknowledged) })
			if stored := data(w.mustRead(t, "WORK", "work", 0, 1000)); !slices.Equal(stored, acknowledged) {
				t.Errorf("%d were acknowledged, and stored are %v", len(acknowledged), stored)
			}
		})
	}
}

// listeners note what a consumer of work and a follower of logs.f hear.
type listeners struct {
	mu       sync.Mutex
	consumed map[string]int // how often
	followed []string
}

func (w *world) listen(ctx context.Context, t *testing.T) *listeners {
	l := &listeners{consumed: map[string]int{}}
	c := worker()
	c.AckWait = 3 * time.Second // what was on its way to or from the killed server comes again after it
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		err := w.Consume(ctx, c, func(_ context.Context, batch []stream.Delivery) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for i := range batch {
				l.consumed[string(batch[i].Data)]++
				batch[i].Ack()
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	wait.Go(func() {
		err := w.Follow(ctx, "LOGS", "logs.f", 0, func(e stream.Entry) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.followed = append(l.followed, string(e.Data))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wait.Wait() })
	return l
}

// check waits until all was heard: by the follower in order and once, by the consumer once, or again where the server's
// end came between a delivery and its acknowledgement.
func (l *listeners) check(t *testing.T, want []string) {
	t.Helper()
	soon(t, "all messages to be consumed and followed", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.consumed) >= len(want) && len(l.followed) >= len(want)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.followed, want) {
		t.Errorf("followed %v", l.followed)
	}
	if len(l.consumed) != len(want) {
		t.Errorf("consumed %d of %d", len(l.consumed), len(want))
	}
	again := 0
	for _, n := range l.consumed {
		again += n - 1
	}
	if again > len(want)/2 {
		t.Errorf("%d of %d were handed out again", again, len(want))
	}
}

// TestClusterWithoutQuorum kills two servers of three: nothing can be published until one is back.
func TestClusterWithoutQuorum(t *testing.T) {
	cluster, w := mustCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w.publishAnyway(ctx, t, messages("work", "before", 20))
	cluster.Servers[0].Kill()
	cluster.Servers[1].Kill()
	var wait sync.WaitGroup
	for _, n := range []int{1, 20} {
		wait.Go(func() {
			if _, err := w.Publish(ctx, messages("work", "meanwhile", n)); !job.IsKind(err, job.Unavailable) {
				t.Errorf("without a quorum: got %v", err)
			}
		})
	}
	wait.Wait()
	cluster.Servers[0].Restart()
	w.publishAnyway(ctx, t, messages("work", "meanwhile", 20))
	cluster.Servers[1].Restart()
	w.publishAnyway(ctx, t, messages("work", "after", 20))
	got := w.collect(t, worker(), 60, (*stream.Delivery).Ack)
	seen := map[string]bool{}
	for _, d := range got {
		seen[string(d.Data)] = true
	}
	if len(got) != 60 || len(seen) != 60 {
		t.Errorf("got %d deliveries of %d messages", len(got), len(seen))
	}
}
