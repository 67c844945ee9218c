package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatroni has Patroni make another one of three PostgreSQL servers the primary under load, and
// finds nothing that was acknowledged lost. A switchover takes seconds; the other modes take the 20
// that Patroni gives a primary which is silent.
func TestPatroni(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	requirePrograms(t, "patroni", "etcd")
	t.Parallel()
	var output bytes.Buffer
	dir := t.TempDir()
	code := Main(t.Context(), []string{"-seed", "5", "-store", "postgres", "-nodes", "2", "-only",
		faultPatroni, "-mode", modeSwitched, "-load", "10s", "-dir", dir, "-binary",
		serverBinary(t)}, &output)
	if code != exitGood || !strings.Contains(output.String(), "no violation") {
		t.Errorf("exit code %d:\n%s", code, &output)
	}
	var v verdict
	text, err := os.ReadFile(filepath.Join(dir, "verdict.json"))
	if err != nil || json.Unmarshal(text, &v) != nil || len(v.Failovers) == 0 || v.Created < 20 {
		t.Errorf("%d failovers, %d jobs: %v\n%s", len(v.Failovers), v.Created, err, &output)
	}
}

// TestLongestGap: what was refused, did not write or was not acknowledged is no end of a gap.
func TestLongestGap(t *testing.T) {
	t.Parallel()
	written := []claimedJob{{Job: "j"}}
	l := &ledger{ops: []*op{
		{Returned: 5, Class: classOK, Claimed: written},
		{Returned: 12, Class: classOK, Claimed: written},
		{Returned: 20, Class: classUnknown, Verb: "heartbeat"},
		{Returned: 22, Class: classOK, Verb: "submit"},
		{Returned: 30, Class: classOK, Verb: "heartbeat"},
		{Class: classOK, Claimed: written}, // not ended yet
	}}
	for _, c := range []struct{ from, to, want int64 }{{10, 40, 18}, {10, 60, 30}, {4, 12, 7}} {
		if got := l.longestGap(c.from, c.to); got.Microseconds() != c.want {
			t.Errorf("between %d and %d: %s, want %d µs", c.from, c.to, got, c.want)
		}
	}
}

// TestPatroniAlone: Patroni is drawn where it is named, in all of its modes. What an asynchronous
// standby lacks is counted as lost.
func TestPatroniAlone(t *testing.T) {
	t.Parallel()
	for kind, mayLose := range map[string]bool{faultPatroni: false, faultPatroniAsync: true} {
		p, _, err := readPlan([]string{"-seed", "5", "-store", "postgres", "-load", "10m", "-only",
			kind}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		drawn := map[string]bool{}
		for _, f := range p.schedule() {
			if f.Kind != kind {
				t.Fatalf("with -only %s the schedule has %s", kind, f)
			}
			drawn[f.Mode] = true
		}
		if len(drawn) != len(patroniModes) || losesAcknowledged(kind) != mayLose {
			t.Errorf("%s: %v, %t", kind, drawn, losesAcknowledged(kind))
		}
	}
}
