package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFailover loses the primary of two PostgreSQL servers under load, and finds nothing that was
// acknowledged lost.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	requirePrograms(t, "initdb", "postgres", "pg_basebackup")
	t.Parallel()
	var output bytes.Buffer
	dir := t.TempDir()
	code := Main(t.Context(), []string{"-seed", "5", "-store", "postgres", "-nodes", "2", "-only",
		faultFailover, "-load", "10s", "-dir", dir, "-binary", serverBinary(t)}, &output)
	if code != exitGood || !strings.Contains(output.String(), "no violation") {
		t.Errorf("exit code %d:\n%s", code, &output)
	}
	var v verdict
	text, err := os.ReadFile(filepath.Join(dir, "verdict.json"))
	if err != nil || json.Unmarshal(text, &v) != nil || len(v.Failovers) == 0 || v.Created < 20 {
		t.Errorf("%d failovers, %d jobs: %v\n%s", len(v.Failovers), v.Created, err, &output)
	}
}

// requirePrograms skips a test without some programs, or fails it where no test may be skipped.
func requirePrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := findProgram(name); err != nil && os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		} else if err != nil {
			t.Skip("skipped:", err)
		}
	}
}

// TestFirstWrites: the nodes write again when each has acknowledged a write that was sent after the
// loss, and what was sent before, refused, or did not write proves nothing.
func TestFirstWrites(t *testing.T) {
	t.Parallel()
	written := []claimedJob{{Job: "j"}}
	l := &ledger{ops: []*op{
		{Node: 0, Invoked: 5, Returned: 12, Class: classOK, Claimed: written},
		{Node: 0, Invoked: 11, Returned: 13, Class: classOK, Verb: "submit", Made: []made{{}}},
		{Node: 0, Invoked: 12, Returned: 14, Class: classUnknown, Verb: "heartbeat"},
		{Node: 0, Invoked: 13, Returned: 20, Class: classOK, Claimed: written},
		{Node: 0, Invoked: 14, Returned: 18, Class: classOK, Verb: "heartbeat"},
		{Node: 0, Invoked: 15, Claimed: written, Class: classOK}, // not ended yet
	}}
	if at, ok := l.firstWrites(2, 10); ok || at != 18 {
		t.Errorf("with one node of two: %d %t", at, ok)
	}
	l.ops = append(l.ops, &op{Node: 1, Invoked: 21, Returned: 25, Class: classOK, Claimed: written})
	if at, ok := l.firstWrites(2, 10); !ok || at != 25 {
		t.Errorf("with both nodes: %d %t", at, ok)
	}
}

// TestSplitLost: what a failover to an asynchronous standby explains is no violation, and all else
// stays one.
func TestSplitLost(t *testing.T) {
	t.Parallel()
	lost, violated := splitLost(map[string]int{"I1 no acknowledged loss": 3, "I10 isolation": 1,
		"I17 linearizable": 2, "I12 egress": 1, "answer": 1})
	if len(lost) != 2 || lost["I1 no acknowledged loss"] != 3 || len(violated) != 3 ||
		violated["I10 isolation"] != 1 {
		t.Errorf("lost %v, violated %v", lost, violated)
	}
	v := &verdict{Lost: lost, Violations: violated, Failovers: []failedOver{
		{Mode: modeCut, Outage: 3 * time.Second, Wait: time.Second}, {Mode: modeCut}}}
	v.Examples = []string{"I1 no acknowledged loss: job a", "I10 isolation: job b"}
	var text strings.Builder
	if err := v.write(&text, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 failovers: 2 × cut\n", "lost: I1 no acknowledged loss: job a\n",
		"VIOLATION I10 isolation: job b\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// TestFailoversAlone: a run draws failovers where they are named alone, as they need servers of
// their own, and then each in one of the modes.
func TestFailoversAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		only string
		want bool
	}{{"", false}, {faultFailover, true}, {faultFailoverAsync, true}} {
		p, _, err := readPlan([]string{"-seed", "5", "-store", "postgres", "-load", "10m", "-only",
			c.only}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		drawn := map[string]bool{}
		for _, f := range p.schedule() {
			if isFailover(f.Kind) != c.want {
				t.Fatalf("with -only %q the schedule has %s", c.only, f)
			}
			drawn[f.Mode] = true
		}
		if c.want && slices.ContainsFunc(modes, func(mode string) bool { return !drawn[mode] }) {
			t.Errorf("with -only %q the modes are %v", c.only, drawn)
		}
	}
	p, _, err := readPlan([]string{"-seed", "5", "-store", "postgres", "-load", "10m", "-only",
		faultFailover, "-mode", modeFrozen}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.schedule() {
		if f.Mode != modeFrozen {
			t.Errorf("with -mode frozen the schedule has %s", f)
		}
	}
	for _, refused := range [][]string{{"-only", faultFailover}, {"-mode", modeFrozen},
		{"-store", "postgres", "-only", faultFailover, "-mode", "lost"}} {
		if _, _, err := readPlan(refused, io.Discard); err == nil {
			t.Errorf("%v is accepted", refused)
		}
	}
}
