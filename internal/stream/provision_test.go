package stream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestProvision changes what the settings say and leaves what is the operator's; a second time
// nothing happens.
func TestProvision(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		streamConfig := func() jetstream.StreamConfig {
			t.Helper()
			found, err := w.js.Stream(t.Context(), "LOGS")
			if err != nil {
				t.Fatal(err)
			}
			return found.CachedInfo().Config
		}
		if c := streamConfig(); c.MaxAge != 30*24*time.Hour || c.Duplicates != 2*time.Minute ||
			c.Storage != jetstream.FileStorage {
			t.Errorf("got %+v", c)
		}
		w.mustPublish(t, newMessages("logs.a", "m", 3)...)
		before := streamConfig()
		before.MaxBytes, before.Description = 1<<30, "theirs"
		if _, err := w.js.UpdateStream(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		c := w.config
		c.Specs = testSpecs()
		c.Specs[1].MaxAge = time.Minute // below the window, which the server does not take
		if c.URL == "" {                // another node finds the embedded server by its address
			c.URL = "nats://" + w.Address()
		}
		w.Streams = mustOpen(t, c)
		if c := streamConfig(); c.MaxAge != time.Minute || c.Duplicates != time.Minute ||
			c.MaxBytes != 1<<30 || c.Description != "theirs" {
			t.Errorf("got %+v", c)
		}
		if got := w.mustRead(t, "LOGS", "logs.a", 0, 10); len(got) != 3 {
			t.Errorf("got %v", dataOf(got))
		}
	})
}
