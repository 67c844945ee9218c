package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeRunner is a case whose every run takes a given time.
type fakeRunner struct {
	name string
	log  *[]string
	took []time.Duration // per run, the warm-up included; zero fails the run
	runs int
}

func (f *fakeRunner) Durability() string { return "none" }

func (f *fakeRunner) Run(_ context.Context, n int) ([]Phase, error) {
	*f.log = append(*f.log, fmt.Sprintf("%s %d", f.name, n))
	took := f.took[f.runs]
	f.runs++
	if took == 0 {
		return nil, errors.New("lost a job")
	}
	return []Phase{{Name: phaseWork, Jobs: n, Took: took, Latency: []time.Duration{took}}}, nil
}

func (f *fakeRunner) Close() error {
	*f.log = append(*f.log, "close "+f.name)
	return nil
}

func fakeCase(log *[]string, name string, divide int, took ...time.Duration) Case {
	return Case{Name: name, Divide: divide, Setup: func(context.Context, *Env) (Runner, error) {
		return &fakeRunner{name: name, log: log, took: took}, nil
	}}
}

func fakeBench(rounds int) *Bench {
	return &Bench{Env: &Env{}, Jobs: 100, Warmup: 10, Rounds: rounds, Timeout: time.Minute,
		Log: io.Discard}
}

func TestBenchInterleaves(t *testing.T) {
	t.Parallel()
	var log []string
	s := time.Second
	missing := Case{Name: "c", Setup: func(context.Context, *Env) (Runner, error) {
		return nil, skipf("no server")
	}}
	tracks, err := fakeBench(2).Run(t.Context(), []Case{
		fakeCase(&log, "a", 0, s, s, 2*s), missing, fakeCase(&log, "b", 4, s, s, s),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a 10", "b 2", "a 100", "b 25", "a 100", "b 25", "close b", "close a"}
	if !slices.Equal(log, want) {
		t.Errorf("order = %q, want %q", log, want)
	}
	if got := tracks[0].Rates(phaseWork); !slices.Equal(got, []float64{100, 50}) {
		t.Errorf("rates of a = %v, want those of the two measured rounds", got)
	}
	if tracks[1].SkipReason != "no server" || tracks[1].Failed != "" {
		t.Errorf("track of the missing server = %+v, want a skip and no failure", tracks[1])
	}
}

func TestBenchDropsAFailedCase(t *testing.T) {
	t.Parallel()
	var log []string
	s := time.Second
	tracks, err := fakeBench(3).Run(t.Context(), []Case{
		fakeCase(&log, "a", 1, s, s, 0), fakeCase(&log, "b", 1, s, 2*s, s, s),
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b := caseLines(tracks, "b")[0], caseLines(tracks, "b")[1]
	if a.Failed != "round 2/3: lost a job" {
		t.Errorf("failed = %q, want the round and the cause", a.Failed)
	}
	if got, want := *a.Phases[0].Ratio, (Spread{Median: 2, Min: 2, Max: 2,
		Rounds: 1}); got != want {
		t.Errorf("ratio = %+v, want %+v: only the round that both finished", got, want)
	}
	if b.Phases[0].Rate.Rounds != 3 {
		t.Errorf("the other case finished %d rounds, want 3", b.Phases[0].Rate.Rounds)
	}
	if want := "close a"; log[len(log)-1] != want {
		t.Errorf("last entry = %q, want %q: a failed case is closed too", log[len(log)-1], want)
	}
}

func TestBenchCutShort(t *testing.T) {
	t.Parallel()
	var log []string
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := Case{Name: "stop", Setup: func(context.Context, *Env) (Runner, error) {
		cancel(errors.New("time is over"))
		return &fakeRunner{name: "stop", log: &log}, nil
	}}
	_, err := fakeBench(3).Run(ctx, []Case{stop})
	if err == nil || !strings.Contains(err.Error(), "time is over") {
		t.Errorf("err = %v, want the cause", err)
	}
	if want := []string{"close stop"}; !slices.Equal(log, want) {
		t.Errorf("log = %q, want %q", log, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var log []string
	s := time.Second
	tracks, err := fakeBench(1).Run(t.Context(), []Case{
		fakeCase(&log, "mine", 1, s, s), fakeCase(&log, "peer", 1, s, 4*s),
	})
	if err != nil {
		t.Fatal(err)
	}
	report := Report{Reference: "peer", Cases: caseLines(tracks, "peer")}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"x peer", "4.00  4.00-4.00", "100-100"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &text)
		}
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := report.WriteJSON(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Cases[0].Phases[0]; got.Rate.Median != 100 || got.Ratio.Median != 4 ||
		got.Latency.P50 != s {
		t.Errorf("from the file = %+v, want rate 100, ratio 4 and p50 of a second", got)
	}
}

func TestReferenceThatDidNotRun(t *testing.T) {
	t.Parallel()
	ran := func(name string) *Track {
		return &Track{Case: Case{Name: name},
			Rounds: [][]Phase{{{Name: phaseWork, Jobs: 1, Took: 1}}}}
	}
	skipped := &Track{Case: Case{Name: "river"}, SkipReason: "no server"}
	if got := reference([]*Track{skipped, ran("a"), ran("b")}, "river"); got != "a" {
		t.Errorf("reference = %q, want the first that ran", got)
	}
	if got := reference([]*Track{ran("a"), ran("b")}, "b"); got != "b" {
		t.Errorf("reference = %q, want the wanted one", got)
	}
	if got := reference([]*Track{skipped}, "river"); got != "" {
		t.Errorf("reference = %q, want none", got)
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		args    []string
		wantRef string
		wantErr string
	}{
		{"all cases", nil, "river", ""},
		{"the first is the reference when River is not chosen", []string{"asynq", "floor-http"},
			"floor-http", ""},
		{"named reference", []string{"--ref", "asynq", "asynq", "river"}, "asynq", ""},
		{"reference not chosen", []string{"--ref", "asynq", "river"}, "", "not among the chosen"},
		{"unknown case", []string{"rivr"}, "", `no case is named "rivr"`},
		{"no jobs", []string{"-n", "-1"}, "", "--n must be"},
		{"no end", []string{"-max-time", "0s"}, "", "must be positive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := parse(tc.args, io.Discard)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("err = %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || s.ref != tc.wantRef {
				t.Errorf("ref = %q (%v), want %q", s.ref, err, tc.wantRef)
			}
		})
	}
}

func TestCaseNames(t *testing.T) {
	t.Parallel()
	visited := map[string]bool{}
	for _, c := range cases {
		if c.Name == "" || c.Summary == "" || c.Setup == nil || visited[c.Name] {
			t.Errorf("case %q: want a name of its own, a line that says what, and a setup", c.Name)
		}
		visited[c.Name] = true
	}
}
