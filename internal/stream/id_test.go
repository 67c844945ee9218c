package stream_test

import (
	"context"
	"maps"
	"testing"
	"time"
)

// TestIDs: streams are distinguished from those of other servers, and keep their ids when they are
// opened again, changed, or made again after they were lost.
func TestIDs(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		ids := w.IDs()
		if len(ids) != len(testSpecs()) || ids["LOGS"] == "" {
			t.Fatalf("got %v", ids)
		}
		c := w.config
		if c.URL == "" { // another node finds the embedded server by its address
			c.URL = "nats://" + w.Address()
		}
		c.Specs = testSpecs()
		c.Specs[1].MaxAge = time.Hour
		if repeated := mustOpen(t, c).IDs(); !maps.Equal(repeated, ids) {
			t.Errorf("got %v and then %v", ids, repeated)
		}
		if err := w.js.DeleteStream(context.Background(), "LOGS"); err != nil {
			t.Fatal(err)
		}
		w.mustPublish(t, newMessages("logs.a", "m", 3)...) // it is made again
		if repeated := mustOpen(t, c).IDs(); !maps.Equal(repeated, ids) {
			t.Errorf("got %v, and after a stream was lost %v", ids, repeated)
		}
		if err := w.js.DeleteStream(context.Background(), "LOGS"); err != nil {
			t.Fatal(err)
		}
		second := mustOpen(t, c) // it starts before the other node needs the stream
		if err := second.KeepIDs(t.Context()); err != nil || second.IDs()["LOGS"] == ids["LOGS"] {
			t.Errorf("a node that has found no stream has its id: %v", err)
		}
		if err := w.KeepIDs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := second.LoadIDs(t.Context()); err != nil || !maps.Equal(second.IDs(), ids) {
			t.Errorf("got %v, want %v: %v", second.IDs(), ids, err)
		}
		if err := w.js.DeleteStream(context.Background(), "LOGS"); err != nil {
			t.Fatal(err)
		}
		if err := w.KeepIDs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if repeated := mustOpen(t, c).IDs(); !maps.Equal(repeated, ids) {
			t.Errorf("got %v, and without a message %v", ids, repeated)
		}
		if others := mustOpen(t, testConfig(t)).IDs(); others["LOGS"] == ids["LOGS"] {
			t.Errorf("another server has the ids %v as well", others)
		}
	})
}
