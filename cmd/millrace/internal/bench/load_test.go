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
