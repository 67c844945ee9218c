package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// The tests of clusters run one after another: beside each other, on few processors, three servers
// each would be slow to elect their leaders.

// mustCluster starts a cluster and streams on it. The servers have not elected their leader when
// Open comes.
func mustCluster(t *testing.T) (*outside.NATSCluster, *fixture) {
	t.Helper()
	cluster := outside.NewNATSCluster(t, "hush")
	c := testConfig(t)
	c.Dir, c.Token, c.URL = "", "hush", cluster.URL
	waitUntil(t, "the streams", func() bool {
		s, err := stream.Open(t.Context(), c)
		if err == nil {
			s.Close()
		} else if !job.IsKind(err, job.Unavailable) { // an election may last longer than Open does
			t.Fatal(err)
		}
		return err == nil
	})
	w := mustFixture(t, c)
	for _, spec := range testSpecs() {
		w.leader(t, spec.Name)
	}
	return cluster, w
}

// waitUntil polls until a condition holds that gives no signal.
func waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("timed out after a minute waiting for " + what)
		}
	}
}

// leader returns the index of the server that leads a stream.
func (w *fixture) leader(t *testing.T, name string) (index int) {
	t.Helper()
	waitUntil(t, "a leader", func() bool {
		found, err := w.js.Stream(t.Context(), name)
		if err != nil || found.CachedInfo().Cluster == nil {
			return false
		}
		n, _ := fmt.Sscanf(found.CachedInfo().Cluster.Leader, "n%d", &index)
		return n == 1
	})
	return index
}

// publishUntilAcked publishes until it is acknowledged.
func (w *fixture) publishUntilAcked(ctx context.Context, t *testing.T,
	m []stream.Message) []uint64 {
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
	wantCopies(t, w.js)
	work := newMessages("work", "m", 30)
	for range 2 { // the second time the stream knows them
		if offsets := w.publishUntilAcked(t.Context(), t, work); offsets[0] != 1 ||
			offsets[29] != 30 {
			t.Errorf("got offsets %v", offsets)
		}
	}
	waitUntil(t, "all messages to be in the copies", func() bool {
		return len(w.mustRead(t, "WORK", "work", 0, 100)) == 30
	})
	if newest, err := w.Newest(t.Context(), "WORK", "work", 0, 2); err != nil ||
		!slices.Equal(dataOf(newest), []string{"m29", "m28"}) {
		t.Errorf("got %v, %v", dataOf(newest), err)
	}
	if e, err := w.Get(t.Context(), "WORK", 7); err != nil || string(e.Data) != "m6" {
		t.Errorf("got %s, %v", e.Data, err)
	}
	got := w.consumeN(t, workerConsumer(), 30, (*stream.Delivery).Ack)
	if len(got) != 30 || got[0].Attempt != 1 || string(got[29].Data) != "m29" {
		t.Errorf("got %d deliveries", len(got))
	}
	w.awaitAcknowledged(t, func(floor uint64, open int) bool { return floor == 30 && open == 0 })
	w.clock.advance(8 * 24 * time.Hour)
	if err := w.Prune(t.Context()); err != nil {
		t.Error(err)
	}
	waitUntil(t, "all messages to be pruned", func() bool {
		return len(w.mustRead(t, "WORK", "work", 0, 100)) == 0
	})
	if err := w.js.DeleteStream(t.Context(), "LOGS"); err != nil {
		t.Fatal(err)
	}
	if offsets := w.publishUntilAcked(t.Context(), t,
		newMessages("logs.a", "again", 20)); offsets[19] != 20 {
		t.Errorf("got offsets %v", offsets)
	}
}

// TestClusterServerJoins opens the streams when a server of the cluster has not joined yet, as when
// all of it starts. They wait for it and have all their copies.
func TestClusterServerJoins(t *testing.T) {
	pair, join := outside.NewNATSPair(t, "hush")
	conn, err := nats.Connect(pair.URL, nats.Token("hush"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the refusal of three copies by two servers", func() bool {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PROBE", Replicas: 3})
		return err != nil && strings.Contains(err.Error(), "no suitable peers")
	})
	c := testConfig(t)
	c.Dir, c.Token, c.URL = "", "hush", pair.URL
	opened := make(chan error, 1)
	go func() {
		s, err := stream.Open(t.Context(), c)
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	join()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	wantCopies(t, js)
}

// wantCopies asks for three copies of each stream.
func wantCopies(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, spec := range testSpecs() {
		found, err := js.Stream(t.Context(), spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		if copies := found.CachedInfo().Config.Replicas; copies != 3 {
			t.Fatalf("%s: got %d copies", spec.Name, copies)
		}
	}
}

// TestClusterServerKilled kills a server under a publisher, a consumer and a follower, and starts
// it again.
func TestClusterServerKilled(t *testing.T) {
	// counted from the leader on
	for name, after := range map[string]struct{ connected, killed int }{
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
				work := newMessages("work", prefix, n)
				w.publishUntilAcked(ctx, t, append(work, newMessages("logs.f", prefix, n)...))
				for _, m := range work {
					acknowledged = append(acknowledged, string(m.Data))
				}
			}
			l.wantAll(t, acknowledged)
			waitUntil(t, "all messages to be in the copies", func() bool {
				return len(w.mustRead(t, "WORK", "work", 0, 1000)) >= len(acknowledged)
			})
			if stored := dataOf(w.mustRead(t, "WORK", "work", 0, 1000)); !slices.Equal(stored,
				acknowledged) {
				t.Errorf("%d were acknowledged, and stored are %v", len(acknowledged), stored)
			}
		})
	}
}

// receivedLog keep what a consumer of work and a follower of logs.f receive.
type receivedLog struct {
	mu       sync.Mutex
	consumed map[string]int // how often
	followed []string
}

func (w *fixture) listen(ctx context.Context, t *testing.T) *receivedLog {
	l := &receivedLog{consumed: map[string]int{}}
	c := workerConsumer()
	// what was on its way to or from the killed server comes again after it
	c.AckWait = 3 * time.Second
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

// wantAll waits until all was heard: by the follower in order and once, by the consumer once, or
// again where the server's end came between a delivery and its acknowledgement.
func (l *receivedLog) wantAll(t *testing.T, want []string) {
	t.Helper()
	waitUntil(t, "all messages to be consumed and followed", func() bool {
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
	repeated := 0
	for _, n := range l.consumed {
		repeated += n - 1
	}
	if repeated > len(want)/2 {
		t.Errorf("%d of %d were delivered again", repeated, len(want))
	}
}

// TestClusterWithoutQuorum kills two servers of three: nothing can be published until one is back.
func TestClusterWithoutQuorum(t *testing.T) {
	cluster, w := mustCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w.publishUntilAcked(ctx, t, newMessages("work", "before", 20))
	cluster.Servers[0].Kill()
	cluster.Servers[1].Kill()
	var wait sync.WaitGroup
	for _, n := range []int{1, 20} {
		wait.Go(func() {
			if _, err := w.Publish(ctx, newMessages("work", "meanwhile", n)); !job.IsKind(err,
				job.Unavailable) {
				t.Errorf("without a quorum: got %v", err)
			}
		})
	}
	wait.Wait()
	cluster.Servers[0].Restart()
	w.publishUntilAcked(ctx, t, newMessages("work", "meanwhile", 20))
	cluster.Servers[1].Restart()
	w.publishUntilAcked(ctx, t, newMessages("work", "after", 20))
	got := w.consumeN(t, workerConsumer(), 60, (*stream.Delivery).Ack)
	visited := map[string]bool{}
	for _, d := range got {
		visited[string(d.Data)] = true
	}
	if len(got) != 60 || len(visited) != 60 {
		t.Errorf("got %d deliveries of %d messages", len(got), len(visited))
	}
}
