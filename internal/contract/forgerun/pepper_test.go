package forgerun_test

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// TestPepperOfTheFirstNode: the node that starts first decides, not the one that is asked first,
// and one that cannot serve says so by itself (FR-027).
func TestPepperOfTheFirstNode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := config()
		c.Pepper = []byte("another pepper, which is long enough as well")
		wrong := newWorld(t, w.clock, w.store, c)
		ready := func(w *world) bool { return w.forge.Checks()[0].Run(context.Background()) == nil }
		if !ready(wrong) || !ready(w) {
			t.Error("without any keys a pepper is wrong")
		}
		wrong.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 401)
		wrong.Do(t, "DELETE", "/v1/webhooks/"+nobody, "").WantStatus(t, 401)
		w.runServer(t)
		w.watcher.waitFor(t, "the pepper", func() bool {
			return strings.Contains(w.log.String(), "the pepper is the store's")
		})
		wrong.runServer(t)
		refused := map[string]any{"level": "ERROR", "error_code": "RFA_CONFIG_INVALID"}
		wrong.watcher.waitFor(t, "a line about the pepper", func() bool {
			return len(wrong.log.Lines(t, refused)) > 0
		})
		line := wrong.log.Lines(t, refused)[0]
		if !strings.Contains(line["msg"].(string), "secrets.pepper_file") ||
			!strings.Contains(line["error_message"].(string), "the pepper is not the one") {
			t.Errorf("got %v", line)
		}
		if !ready(w) || ready(wrong) {
			t.Errorf("the first node is ready: %v, the other: %v", ready(w), ready(wrong))
		}
		w.customer(t)
		wrong.Do(t, "GET", "/v1/jobs", "").WantError(t, 503, "RFA_CONFIG_INVALID")
	})
}

// TestPepperIsBoundLater: a store that takes nothing at the start does so in the end, and a key is
// made under no pepper that is not bound.
func TestPepperIsBoundLater(t *testing.T) {
	t.Parallel()
	w, f := faultyWorld(t, config())
	f.failWrites(&job.Error{Kind: job.Unavailable})
	w.Do(t, "POST", "/v1/clients", "").WantError(t, 503, "RFA_STORAGE_DB_ERROR")
	w.runServer(t)
	line := map[string]any{"msg": "a loop waits for a part", "loop": "binding of the pepper"}
	w.watcher.waitFor(t, "a line about the pepper", func() bool {
		return len(w.log.Lines(t, line)) > 0
	})
	f.failWrites(nil)
	w.customer(t)
}
