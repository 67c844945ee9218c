package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// nodeHook is a webhook of operators that is changed through one node, while jobs change through
// the other.
type nodeHook struct {
	*killedNodes
	clock *sql.DB // of the store
	at    string  // the URL of the receiver

	mu   sync.Mutex // guards came
	came map[string]bool
}

// ServeHTTP takes an event, and keeps where it came to, its type and the number of its job.
func (h *nodeHook) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var got struct {
		Type string
		Data struct{ Number int64 }
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		h.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.came[fmt.Sprint(r.URL.Path, " ", got.Type, " ", got.Data.Number)] = true
}

// TestWebhookOnTwoNodes (WH-001, WH-004): two server processes on one PostgreSQL. A webhook that
// operators make through one node gets what happens through the other, and a change, a pause and a
// resumption of it hold for that two seconds later.
func TestWebhookOnTwoNodes(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 2, nil, "--set", "contracts=taskflow")
	h := &nodeHook{killedNodes: w, clock: pgtest.DB(t, w.store), came: map[string]bool{}}
	receiver := httptest.NewServer(h)
	t.Cleanup(receiver.Close)
	h.at = receiver.URL
	h.check()
	w.stop()
}

func (h *nodeHook) check() {
	here := h.clients[0].Admin()
	first, second := h.at+"/first", h.at+"/second"
	hook, _, err := here.CreateWebhook(h.Context(), client.AdminWebhookSpec{URL: &first,
		Events: []string{"taskflow.job.submitted"}}, "")
	h.must(err)
	one := h.submitThere()
	h.await("/first", "submitted", one)

	_, err = here.SetWebhook(h.Context(), hook.ID, client.AdminWebhookSpec{URL: &second,
		Events: []string{"taskflow.job.deleted"}})
	h.must(err)
	two := h.submitThere()
	h.deleteThere(one)
	h.deleteThere(two)
	h.await("/second", "deleted", one)
	h.await("/second", "deleted", two) // that it was submitted would have come before

	_, err = here.DisableWebhook(h.Context(), hook.ID)
	h.must(err)
	three := h.submitThere()
	h.deleteThere(three)
	pollUntil(h.Fatalf, "the delivery to be given up", func() bool {
		for d, err := range h.admin().Deliveries(h.Context(), hook.ID, "exhausted", 10) {
			h.must(err)
			return len(d.Attempts) == 0
		}
		return false
	})

	_, err = here.EnableWebhook(h.Context(), hook.ID)
	h.must(err)
	four := h.submitThere()
	h.deleteThere(four)
	h.await("/second", "deleted", four)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.came) != 4 {
		h.Errorf("WH-004 the events are %v, of the jobs %d to %d", h.came, one, four)
	}
}

func (h *nodeHook) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// now is the time of the store.
func (h *nodeHook) now() (at time.Time) {
	h.Helper()
	h.must(h.clock.QueryRow("SELECT clock_timestamp()").Scan(&at))
	return at
}

// submitThere submits a job through the other node, two seconds after the change before.
func (h *nodeHook) submitThere() (number int64) {
	h.Helper()
	from := h.now().Add(inForce)
	pollUntil(h.Fatalf, "the change to be in force", func() bool { return h.now().After(from) })
	j, err := h.admin().SubmitJob(h.Context(), client.AdminSubmission{Contract: "taskflow",
		Request: []byte(`{"name":"n","queue":"q"}`)})
	h.must(err)
	return j.Number
}

// deleteThere deletes a job through the other node.
func (h *nodeHook) deleteThere(number int64) {
	h.Helper()
	_, err := h.admin().ActOnJob(h.Context(), number, client.AdminActionDelete)
	h.must(err)
}

// await waits for an event of a job at a path.
func (h *nodeHook) await(path, change string, number int64) {
	h.Helper()
	name := fmt.Sprint(path, " taskflow.job.", change, " ", number)
	pollUntil(h.Fatalf, name, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.came[name]
	})
}
