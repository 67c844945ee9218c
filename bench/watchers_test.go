package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// All of it runs, small.
func TestWatchers(t *testing.T) {
	t.Parallel()
	onWorlds(t, "watchers", []string{"-n", "2000", "-load", "40", "-rate", "40", "-clients", "4",
		"-consoles", "6", "-events", "3", "-rounds", "1", "-time", "100ms", "-past", "20s"},
		func(t *testing.T, out string) {
			for _, want := range []string{"cores of the server without clients of events ",
				"with 3 ", "jobs/s without consoles ", "with 6, which ask again at each event"} {
				if !strings.Contains(out, want) {
					t.Errorf("the report lacks %q:\n%s", want, out)
				}
			}
		})
}

func TestWatchersFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-n", "0"}, {"-consoles", "0"}, {"-events", "0"},
		{"-on", "mysql"}, {"-past", "-1s"}, {"-time", "0s"}} {
		if _, err := parseWatchers(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}

// A job that is completed twice is reported, and so is one that is not completed.
func TestSteadyLoadCountsJobs(t *testing.T) {
	t.Parallel()
	load := func(worked ...int) error {
		l := &steadyLoad{}
		l.submitted.Store(2)
		for _, num := range worked {
			l.markWorked(num, time.Now())
		}
		return l.check()
	}
	if err := load(1, 100_000); err != nil {
		t.Errorf("each of two was worked: %v", err)
	}
	for _, worked := range [][]int{{1, 1}, {1}, {1, 0, 1}, {-1, 0, 1}} {
		if err := load(worked...); err == nil {
			t.Errorf("%v are taken for each of two", worked)
		}
	}
}

func TestProcessorTime(t *testing.T) {
	t.Parallel()
	pid := os.Getpid()
	before, err := processorTime(pid)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this system has no /proc")
	}
	if err != nil {
		t.Fatal(err)
	}
	for text := []byte{}; ; text = append(text[:0], "x"...) {
		after, err := processorTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		if after > before { // reading it takes some
			return
		}
		bytes.Count(text, text)
	}
}

func TestPairFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"river"}, {"-other", "x"}, {"-other", "x", "rivr"},
		{"-other", "x", "-rounds", "0", "river"}, {"-other", "x", "-timeout", "0s", "river"}} {
		if _, err := parsePair(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
	if s, err := parsePair([]string{"-other", "x", "river"}, io.Discard); err != nil ||
		len(s.cases) != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// Ratios are of rounds: this one to the other one.
func TestPairReport(t *testing.T) {
	t.Parallel()
	run := func(rate float64, cpu time.Duration) pairRun {
		return pairRun{rates: map[string]float64{phaseWork: rate}, cpu: cpu}
	}
	s := &pairSettings{cases: []string{"a"}}
	var out bytes.Buffer
	if err := s.report(&out, map[string][2][]pairRun{"a": {
		{run(100, time.Second), run(200, 2*time.Second), run(400, time.Second)},
		{run(50, 2*time.Second), run(150, 2*time.Second), run(400, 3*time.Second)}}}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"a work, jobs/s 200 150 0.750 0.500 to 1.000",
		"a processor time, s 1.00 2.00 2.000 1.000 to 3.000"} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}
