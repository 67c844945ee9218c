package stream_test

import (
	"context"
	"maps"
	"testing"
	"time"
)

// TestIDs: streams are told from those of other servers, and stay what they are when they are opened again, changed, or
// made again after they were lost.
func TestIDs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ids := w.IDs()
		if len(ids) != len(specs()) || ids["LOGS"] == "" {
			t.Fatalf("got %v", ids)
		}
		c := w.config
		if c.URL == "" { // another node finds the embedded server by its address
			c.URL = "nats://" + w.Address()
		}
		c.Specs = specs()
		c.Specs[1].MaxAge = time.Hour
		if again := mustOpen(t, c).IDs(); !maps.Equal(again, ids) {
			t.Errorf("got %v and then %v", ids, again)
		}
		if err := w.js.DeleteStream(context.Background(), "LOGS"); err != nil {
			t.Fatal(err)
		}
		w.mustPublish(t, messages("logs.a", "m", 3)...) // it is made again
		if again := mustOpen(t, c).IDs(); !maps.Equal(again, ids) {
			t.Errorf("got %v, and after a stream was lost %v", ids, again)
		}
		if others := mustOpen(t, config(t)).IDs(); others["LOGS"] == ids["LOGS"] {
			t.Errorf("another server has the ids %v as well", others)
		}
	})
}
