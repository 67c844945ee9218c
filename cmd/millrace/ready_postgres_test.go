package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestReadyReportsWrites: while a database answers and refuses what some of the work writes, a node
// without any traffic is not ready and says what is missing; when it is there again the node is
// ready without a restart.
func TestReadyReportsWrites(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	s := launchOn(t, server.Database("mine"))
	ready := requestCheck{method: "GET", path: "/health/ready"}
	answers := func(want int, line string) {
		t.Helper()
		var status int
		var body string
		pollUntil(t.Fatalf, fmt.Sprintf("%d with %q", want, line), func() bool {
			status, body = ready.send(t, s.url)
			return status == want && strings.Contains(body, line+"\n")
		})
		if want == http.StatusServiceUnavailable && strings.Count(body, " fails") != 1 {
			t.Errorf("others are blamed as well: %s", body)
		}
	}
	for _, c := range []struct{ refuse, allow, because string }{
		{"REVOKE INSERT, UPDATE ON ALL TABLES IN SCHEMA public FROM mine",
			"GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO mine",
			"permission denied by the database: the role has no right to INSERT on jobs"},
		{"REVOKE ALL ON SEQUENCE job_numbers FROM mine",
			"GRANT ALL ON SEQUENCE job_numbers TO mine",
			"permission denied by the database: the role has no right to USAGE on job_numbers"},
		{"ALTER TABLE dead_letters RENAME TO moved", "ALTER TABLE moved RENAME TO dead_letters",
			"the store's schema is not the one that is needed: it has no dead_letters"},
	} {
		answers(http.StatusOK, "store ok")
		server.Exec("mine", c.refuse)
		answers(http.StatusServiceUnavailable, "store fails: "+c.because)
		server.Exec("mine", c.allow)
	}
	answers(http.StatusOK, "store ok")
	put := requestCheck{method: "POST", path: "/v2/queues/jobs",
		body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	// of which the catalogue says nothing
	server.Exec("mine", fmt.Sprintf(refuseFunctionSQL, "58030"))
	if status, body := put.send(t, s.url); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	answers(http.StatusServiceUnavailable, "store fails: the store is unavailable")
	server.Exec("mine", allowSQL)
	answers(http.StatusOK, "store ok")
	if status, body := put.send(t, s.url); status != http.StatusAccepted {
		t.Errorf("%d %s", status, body)
	}
}
