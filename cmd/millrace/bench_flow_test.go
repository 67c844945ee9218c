package main

import (
	"net/url"
	"strings"
	"testing"
)

// The requests of the bench name the job, whatever letters its queue has.
func TestBenchCompletes(t *testing.T) {
	t.Parallel()
	target, err := url.Parse("http://127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	f := &benchRun{b: &bench{flags: &benchFlags{}, target: target}, queue: "bench-IDIDIDID",
		jobs: 1, batch: 1}
	f.prepare()
	got, _, _ := strings.Cut(f.head+"7/run-id/r"+f.tail, "\r\n")
	if want := "DELETE /v2/queues/bench-IDIDIDID/jobs/7/run-id/r HTTP/1.1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
