package stream_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

// TestEmbeddedListens opens a port only where it is configured, and requires the token there.
func TestEmbeddedListens(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	silent := mustOpen(t, c)
	if silent.Address() != "" {
		t.Errorf("it listens on %s", silent.Address())
	}
	c = testConfig(t)
	c.Listen, c.Token = "127.0.0.1:0", "hush"
	server := mustOpen(t, c)
	if _, err := nats.Connect("nats://"+server.Address(), nats.Token("wrong")); err == nil {
		t.Error("a wrong token is good enough")
	}
	if _, err := nats.Connect("nats://" + server.Address()); err == nil {
		t.Error("no token is good enough")
	}
	producer, err := nats.Connect("nats://"+server.Address(), nats.Token("hush"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if _, err := producer.Request("work", []byte("proposal"), answerTimeout); err != nil {
		t.Fatal(err)
	}
	if got, err := server.Read(t.Context(), "WORK", "work", 0, 10); err != nil ||
		!slices.Equal(dataOf(got), []string{"proposal"}) {
		t.Errorf("got %v, %v", dataOf(got), err)
	}
}

// TestEmbeddedDirectory keeps messages over a restart, belongs to one process at a time, and begins
// anew when it is emptied.
func TestEmbeddedDirectory(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	first, err := stream.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{Streams: first}
	w.mustPublish(t, newMessages("logs.a", "m", 100)...)
	if _, err := stream.Open(t.Context(), c); !job.IsKind(err, job.Conflict) ||
		!strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a second one: got %v", err)
	}
	first.Close()
	if _, err := first.Publish(t.Context(), newMessages("logs.a", "late", 1)); !job.IsKind(err,
		job.Unavailable) {
		t.Errorf("after the end: got %v", err)
	}

	w.Streams = mustOpen(t, c)
	if got := w.mustRead(t, "LOGS", "logs.a", 0, 1000); len(got) != 100 {
		t.Errorf("got %d entries", len(got))
	}
	if got := w.mustPublish(t, newMessages("logs.a", "m", 1)...); got[0] != 1 {
		t.Errorf("its id is forgotten: got offset %d", got[0])
	}
	w.Close()

	if err := os.RemoveAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	w.Streams = mustOpen(t, c)
	if got := w.mustPublish(t, newMessages("logs.a", "m", 20)...); got[0] != 1 || got[19] != 20 {
		t.Errorf("got offsets %v", got)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	unwritable := testConfig(t)
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unwritable.Dir = file + "/streams"
	absent := testConfig(t)
	absent.URL = "nats://127.0.0.1:1"
	taken := testConfig(t)
	taken.Listen = mustFixture(t, func() stream.Config {
		c := testConfig(t)
		c.Listen = "127.0.0.1:0"
		return c
	}()).Address()
	twice := testConfig(t)
	twice.Specs = append(twice.Specs, stream.Spec{Name: "OTHER", Subjects: []string{"logs.a"}})
	for _, tt := range []struct {
		name, text string
		c          stream.Config
		want       job.Kind
	}{
		{"nothing is said", "lacks", stream.Config{}, job.Internal},
		{"the directory cannot be made", "not writable", unwritable, job.ReadOnly},
		{"no server listens", "cannot be reached", absent, job.Unavailable},
		{"the port is taken", "did not start", taken, job.Unavailable},
		{"two streams accept a subject", "the stream OTHER cannot be created", twice, job.Internal},
	} {
		if s, err := stream.Open(t.Context(), tt.c); job.KindOf(err) != tt.want ||
			!strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %v", tt.name, err)
			if err == nil {
				s.Close()
			}
		}
	}
}
