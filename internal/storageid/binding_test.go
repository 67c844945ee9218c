package storageid

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

// TestOneOutageOneLine binds again and again while the objects are unavailable: their part logs
// that, and the binding says nothing more.
func TestOneOutageOneLine(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	objects, err := object.Open(t.Context(), object.Config{Bucket: "millrace",
		URL: "s3://?region=us-east-1&use_path_style=true&endpoint=http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	var log bytes.Buffer
	p := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Objects: objects})
	for range 2 {
		p.bindOnce(t.Context(), nil)
		if p.known || p.Check() != nil {
			t.Error("it is known what cannot be known")
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", &log)
	}
}

// world is one database, and the time of its store.
type world struct {
	*testing.T
	clock  *testkit.Clock
	engine *engine.Engine
	log    bytes.Buffer
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, clock: testkit.NewClock()}
	w.engine = testkit.NewEngine(t, testkit.MemoryStore(t, w.clock.Now), w.clock)
	return w
}

// node makes the binding of a process that runs on a directory.
func (w *world) node(dir string, rebind bool) *Binding {
	w.Helper()
	objects, err := object.Open(w.Context(), object.Config{Bucket: "millrace", Dir: dir})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { objects.Close() })
	return New(Config{Log: slog.New(slog.NewTextHandler(&w.log, nil)), Objects: objects,
		ObjectsDir: dir, Rebind: rebind})
}

// try binds, and wants the node to serve or to be refused for a reason.
func (w *world) try(p *Binding, reason string) {
	w.Helper()
	p.bindOnce(w.Context(), w.engine)
	err := p.Check()
	_, refused := Refused(err)
	if serves, _ := p.mayServe(); !p.known || serves == refused || opOf(err) != reason {
		w.Errorf("known %v, serves %v, refused with %v; want reason %q", p.known, serves, err,
			reason)
	}
}

func opOf(err error) string {
	msg, _ := Refused(err)
	switch {
	case msg == "":
		return ""
	case adviceFor(err) == adviceFor((&comparison{inUse: []string{objects}}).refusal()):
		return lockOp
	}
	return bindOp
}

func (w *world) copyOf(dir string) string {
	w.Helper()
	copied := filepath.Join(w.TempDir(), "objects")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		w.Fatal(err)
	}
	return copied
}

// TestCopiedDirectory: a node on a copy of a directory is refused while the node on the original
// renews, and has it when that one has ended. One that lost it serves no more.
func TestCopiedDirectory(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.node(dir, false)
	w.try(first, "")
	second := w.node(w.copyOf(dir), false)
	w.try(second, lockOp)
	for range 10 {
		w.clock.Advance(bindInterval)
		w.try(first, "")
		w.try(second, lockOp)
	}
	w.try(w.node(dir, false), "") // it was killed and started again
	w.clock.Advance(holdTime - time.Second)
	w.try(second, lockOp)
	w.clock.Advance(time.Second)
	w.try(second, "")
	w.try(first, lockOp)
	if n := bytes.Count(w.log.Bytes(), []byte("this node refuses FetchBox and Images")); n != 2 {
		t.Errorf("two refusals are logged %d times: %s", n, &w.log)
	}
}

// TestPauses: a node that holds a directory renews that at the ticks of five seconds, and one that
// holds none looks after its marker each minute.
func TestPauses(t *testing.T) {
	for _, holds := range []bool{true, false} {
		w := newWorld(t)
		dir := filepath.Join(t.TempDir(), "objects")
		b, waits, passed := w.node(dir, false), make(chan time.Duration), make(chan time.Time)
		if !holds {
			b.ObjectsDir = ""
		}
		ctx, stop := context.WithCancel(t.Context())
		b.Timer = func(d time.Duration) (<-chan time.Time, func()) {
			select {
			case waits <- d:
			case <-ctx.Done():
			}
			return passed, func() {}
		}
		for range 2 {
			before := time.Now()
			if b.engine == nil {
				b.Bind(ctx, w.engine)
			} else {
				w.clock.Advance(holdTime)
				passed <- time.Time{}
			}
			wait := testkit.Receive(t, "the next pause", waits)
			isTick := testkit.HasTick(before, time.Now(), wait, bindInterval)
			if (holds && !isTick) || (!holds && wait != time.Minute) {
				t.Errorf("a node that holds a directory, %v, waits for %s", holds, wait)
			}
		}
		if holds {
			w.try(w.node(w.copyOf(dir), false), lockOp)
		}
		stop()
	}
}

// TestRebindTakesOnce: rebind_storage takes a directory from the node that holds it, and not again
// from a node that has taken it later.
func TestRebindTakesOnce(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.node(dir, false)
	w.try(first, "")
	second := w.node(w.copyOf(dir), true)
	w.try(second, "")
	w.try(first, lockOp)
	w.clock.Advance(holdTime)
	w.try(first, "")
	w.try(second, lockOp)
}

// TestRebindElsewhere: a node that runs refuses when another one has made its own objects the
// database's, and serves again when its own are.
func TestRebindElsewhere(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.node(dir, false)
	w.try(first, "")
	w.try(w.node(filepath.Join(t.TempDir(), "other"), true), "")
	w.try(first, bindOp)
	w.try(w.node(dir, true), "")
	w.try(first, "")
}

// TestWorkEndsWithTheHold: what a node does by itself ends when another node has taken what it
// held, and begins again when it has that back.
func TestWorkEndsWithTheHold(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.node(dir, false)
	ctx, cancel := context.WithCancel(t.Context())
	began, ended, over := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(over)
		first.Run(ctx, func(ctx context.Context) {
			began <- true
			<-ctx.Done()
			ended <- true
		})
	}()
	w.try(first, "")
	<-began
	w.try(w.node(w.copyOf(dir), true), "")
	w.try(first, lockOp)
	<-ended
	w.clock.Advance(holdTime)
	w.try(first, "")
	<-began
	cancel()
	<-ended
	<-over
}

// TestMarkerIsPutBack: a node that is bound puts back a marker that was deleted, and never makes
// another one; a node that is not bound makes none where the database knows one.
func TestMarkerIsPutBack(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	marker := filepath.Join(dir, "millrace", ".millrace", "id")
	first := w.node(dir, false)
	w.try(first, "")
	id, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "objects")
	restarted := w.node(dir, false)
	for _, p := range []*Binding{w.node(other, false), restarted} {
		w.try(p, bindOp)
		found, err := filepath.Glob(filepath.Join(p.ObjectsDir, "millrace", ".millrace", "id"))
		if err != nil || len(found) > 0 {
			t.Errorf("a marker was made: %s %v", found, err)
		}
	}
	w.try(first, "")
	if again, err := os.ReadFile(marker); !bytes.Equal(again, id) {
		t.Errorf("the marker was %s and is %s, %v", id, again, err)
	}
	w.try(restarted, "")
}

// TestHoldWithoutObjects: what a node holds is renewed also while its objects are unavailable.
func TestHoldWithoutObjects(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.node(dir, false)
	w.try(first, "")
	second := w.node(w.copyOf(dir), false)
	if err := first.Objects.Close(); err != nil {
		t.Fatal(err)
	}
	if id, err := first.Objects.ID(t.Context()); err == nil {
		t.Fatalf("the marker is %q", id)
	}
	for range 4 {
		w.clock.Advance(bindInterval)
		w.try(first, "")
	}
	w.try(second, lockOp)
}

// streamsNode makes the binding of a node that shares objects and streams with others.
func (w *world) streamsNode(dir string, c stream.Config) *Binding {
	w.Helper()
	b := w.node(dir, false)
	b.ObjectsDir = "" // all nodes reach it
	c.Node, c.Log, c.Now = "n", slog.New(slog.DiscardHandler), time.Now
	c.Specs = []stream.Spec{{Name: "S", Subjects: []string{"s"}}}
	var err error
	if b.Streams, err = stream.Open(w.Context(), c); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(b.Streams.Close)
	return b
}

// TestStreamsMadeAgain: a node that starts while a stream is lost is refused until a node that runs
// has given the stream its former id.
func TestStreamsMadeAgain(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.streamsNode(dir, stream.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	w.try(first, "")
	url := "nats://" + first.Streams.Address()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	second := w.streamsNode(dir, stream.Config{URL: url})
	w.try(second, bindOp)
	second.alignStreams(t.Context())
	w.try(second, bindOp)
	first.alignStreams(t.Context())
	w.try(first, "")
	second.alignStreams(t.Context())
	w.try(second, "")
}

// TestStreamsThatWait: streams that wait for their first message are bound when they are opened for
// it. A node whose streams wait opens them where the database is bound to others, and is refused.
func TestStreamsThatWait(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first := w.withStreams(w.node(dir, false))
	if err := first.StreamsOpened(t.Context()); !job.IsKind(err, job.Unavailable) {
		t.Errorf("before the node is started: %v", err)
	}
	first.engine = w.engine
	w.try(first, "")
	if err := first.publish(w); err != nil || len(first.Streams.IDs()) != 1 {
		t.Fatalf("published with %v", err)
	}
	w.try(first, "")
	lost := w.withStreams(w.node(dir, false)) // as after a restart without the files of streams
	w.try(lost, bindOp)
	if !lost.Streams.IsOpen() {
		t.Error("the streams wait although the database is bound to some")
	}
	lost.Rebind = true
	w.try(lost, "")
	w.try(first, bindOp)
}

// TestStreamsOfAnother: nothing is published to streams that are opened when another node has
// bound its own.
func TestStreamsOfAnother(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "objects")
	first, second := w.withStreams(w.node(dir, false)), w.withStreams(w.node(dir, false))
	for _, one := range []*Binding{first, second} {
		one.engine = w.engine
		w.try(one, "")
	}
	if err := first.publish(w); err != nil {
		t.Fatal(err)
	}
	err := second.publish(w)
	if _, refused := Refused(err); !refused {
		t.Errorf("published with %v", err)
	}
	if read, err := second.Streams.Read(t.Context(), "S", "s", 0, 10); err != nil || len(read) > 0 {
		t.Errorf("read %v, %v", read, err)
	}
}

// withStreams gives a node streams that wait for their first message.
func (w *world) withStreams(b *Binding) *Binding {
	w.Helper()
	b.StreamsDir = w.TempDir()
	streams, err := stream.Open(w.Context(), stream.Config{Dir: b.StreamsDir, Node: "n",
		Specs: []stream.Spec{{Name: "S", Subjects: []string{"s"}}}, Log: b.Log, Now: time.Now,
		StartWhenUsed: true, BeforeUse: b.StreamsOpened})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(streams.Close)
	b.Streams = streams
	return b
}

// publish publishes a message to the streams of a node.
func (b *Binding) publish(w *world) error {
	_, err := b.Streams.Publish(w.Context(), []stream.Message{{Subject: "s", ID: "1"}})
	return err
}
