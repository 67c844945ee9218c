package bench

import (
	"net/url"
	"strings"
	"testing"
)

// The request that completes a job names the job, whatever letters its queue has.
func TestBenchCompletes(t *testing.T) {
	t.Parallel()
	target, err := url.Parse("http://127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	l := &load{b: &bench{flags: &flags{}, target: target}, queue: "bench-IDIDIDID",
		jobs: 1, batch: 1}
	l.prepare()
	got, _, _ := strings.Cut(l.completeHead+"7/run-id/r"+l.completeTail, "\r\n")
	if want := "DELETE /v2/queues/bench-IDIDIDID/jobs/7/run-id/r HTTP/1.1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The request that completes a batch names each job of the claim, in its order.
func TestBenchCompletesBatches(t *testing.T) {
	t.Parallel()
	l := &load{queue: "bench-Q"}
	claimed := `[{"queue":"bench-Q","id":"7","payload":"x","run_id":"r"},` +
		`{"queue":"bench-Q","id":"8","run_id":"s"}]`
	body, jobs := l.completionsBody([]byte(claimed))
	want := `[{"queue":"bench-Q","id":"7","run_id":"r"},{"queue":"bench-Q","id":"8","run_id":"s"}]`
	if string(body) != want || jobs != 2 {
		t.Errorf("got  %d jobs, %s\nwant %s", jobs, body, want)
	}
	if _, jobs := l.completionsBody(nil); jobs != 0 {
		t.Errorf("an answer without jobs has %d", jobs)
	}
}
