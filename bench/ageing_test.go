package main

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgeingIsDrawnAndReported runs all of it, small, on the server that other cases use.
func TestAgeingIsDrawnAndReported(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	var stdout, stderr bytes.Buffer
	code := runAgeing(t.Context(), []string{"-out", out, "-dir", t.TempDir(),
		"-server", cmp.Or(os.Getenv(envPostgres), defaultPostgres), "-rate", "40", "-clients", "4",
		"-backlog", "10", "-time", "900ms", "-every", "300ms", "-hold-from", "300ms",
		"-hold-to", "600ms"}, &stdout, &stderr)
	if (os.Getenv("MILLRACE_TEST_REQUIRE") != "1") &&
		strings.Contains(stderr.String(), "no PostgreSQL") {
		t.Skip(stderr.String())
	}
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{"baseline ", "open ", "after ", "(x 1.00)", "dead rows, ",
		"lock_ready "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &stdout)
		}
	}
	for name, want := range map[string]string{"ageing-claims.svg": "a transaction is open",
		"ageing-claims.csv": "p99 from due,0.6,", "ageing-dead.csv": "all tables,0.3,",
		"ageing-files.csv": "jobs,0.3,"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q (%v):\n%.300s", name, want, err, text)
		}
	}
}

func TestAgeingFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-rate", "0"}, {"-time", "1s"},
		{"-hold-from", "0s"}, {"-hold-from", "13m"}, {"-hold-to", "15m"}} {
		if _, err := parseAgeing(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
	s, err := parseAgeing([]string{"-hold-to", "0"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.period(s.total - 1); got != ageingBaseline {
		t.Errorf("without a transaction the end is %q, want baseline", got)
	}
}

func TestAgeingPeriods(t *testing.T) {
	t.Parallel()
	s := ageingSettings{holdFrom: 10 * time.Second, holdTo: 20 * time.Second,
		total: 30 * time.Second}
	for at, want := range map[time.Duration]string{0: ageingWarm, time.Second: ageingBaseline,
		10 * time.Second: ageingOpen, 20 * time.Second: ageingAfter} {
		if got := s.period(at); got != want {
			t.Errorf("%s is %q, want %q", at, got, want)
		}
	}
}

func TestClaimsCountWhereTheyWereDue(t *testing.T) {
	t.Parallel()
	l := ageingLoad{rate: 100, batch: 10, total: time.Second, claims: make([]claimTimes, 10)}
	for i := range l.claims {
		l.claims[i].due.Store(int64(i) * int64(time.Second)) // the first has no answer
		l.claims[i].sent.Store(1)
	}
	due, sent := l.claimsBetween(0, 300*time.Millisecond)
	if len(due) != 2 || len(sent) != 2 || due[1] != 2*time.Second {
		t.Errorf("claims due in the first 300 ms took %v, want the second and third", due)
	}
}

func TestTableSeries(t *testing.T) {
	t.Parallel()
	samples := []ageSample{{at: time.Second, tables: map[string]tableAge{"a": {dead: 1}}},
		{at: 2 * time.Second, tables: map[string]tableAge{"a": {dead: 1}, "b": {dead: 5}}}}
	var got []string
	for _, s := range tableSeries(samples, func(t tableAge) float64 { return float64(t.dead) }) {
		got = append(got, s.Name+" "+shortNumber(s.Points[1].Y))
	}
	if want := "all tables 6, b 5, a 1"; strings.Join(got, ", ") != want {
		t.Errorf("series = %q, want %q", got, want)
	}
}

func TestStatementTimesOfPeriods(t *testing.T) {
	t.Parallel()
	var s statementTimes
	for _, period := range []string{ageingBaseline, ageingOpen} {
		s.begin(period)
		s.observe("COMMIT", time.Millisecond, nil)
	}
	s.observe("lock_ready", 5*time.Millisecond, nil)
	s.observe("COMMIT", 2*time.Millisecond, nil)
	if got := s.longest(ageingOpen, 5); strings.Join(got, " ") != "lock_ready COMMIT" {
		t.Errorf("longest = %q", got)
	}
	if mean, n := s.mean(ageingOpen, "COMMIT"); n != 2 || mean != 1500*time.Microsecond {
		t.Errorf("mean = %v of %d, want 1.5ms of 2", mean, n)
	}
}

func TestLinearAxis(t *testing.T) {
	t.Parallel()
	a := Axis{Linear: true}
	for _, high := range []float64{1, 7, 30, 840, 3600} {
		s := a.scale([]float64{high / 2, high}, 100, 200)
		if n := len(a.ticks(s)); n < 4 || n > 11 {
			t.Errorf("to %v: %d ticks, want 4 to 11", high, n)
		}
		if got := s.at(s.high / 2); math.Abs(got-150) > 1e-9 {
			t.Errorf("half of %v is at %v, want the middle", s.high, got)
		}
	}
}
