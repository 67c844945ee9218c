package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// play says which part of a test package this binary plays below bounds.
const play = "BOUNDS_PLAY"

func TestMain(m *testing.M) {
	switch os.Getenv(play) {
	case "eats":
		eaten := make([]byte, 96<<20)
		for i := range eaten {
			eaten[i] = byte(i)
		}
	case "fails":
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// TestHangs hangs where it plays a part, after a subtest that ends, and fails where it plays
// another.
func TestHangs(t *testing.T) {
	t.Run("ends", func(t *testing.T) { t.Log("of a test that passes") })
	switch os.Getenv(play) {
	case "hangs":
		select {}
	case "wrong":
		t.Error("of a test that fails")
	}
}

// under runs this binary within bounds and returns the exit code and what was said.
func under(t *testing.T, part string, b bounds, args ...string) (code int, said string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(play, part)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, errs := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = write, write
	defer func() { os.Stdout, os.Stderr = out, errs }()
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(read)
		text <- string(all)
	}()
	code = b.run(append([]string{self}, args...))
	write.Close()
	return code, <-text
}

func TestBounds(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	within := bounds{memory: defaultMemory, report: report, test: testTime}
	for _, c := range []struct {
		part, says string
		bounds     bounds
		code       int
	}{
		{"passes", "PASS", within, 0},
		{"fails", "", within, 3},
		{"wrong", "--- FAIL: TestHangs", within, 1},
		{"wrong", "of a test that fails", within, 1},
		{"eats", "the tests of .ci/bounds used", bounds{memory: 64, test: testTime}, 1},
		{"hangs", "TestHangs (1s)",
			bounds{memory: defaultMemory, time: time.Second, test: testTime}, 2},
		{"hangs", "TestHangs went on for more than 500ms",
			bounds{memory: defaultMemory, test: 500 * time.Millisecond}, 2},
	} {
		code, said := under(t, c.part, c.bounds, "-test.timeout=30m0s", "-test.run=^TestHangs$",
			"-test.paniconexit0")
		if code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, "passes\n") {
			t.Errorf("%s: exit code %d, want %d; it says:\n%s", c.part, code, c.code, said)
		}
	}
	lines, err := os.ReadFile(report)
	if err != nil || strings.Count(string(lines), " .ci/bounds\n") != 4 {
		t.Errorf("the report is %q: %v", lines, err)
	}
}

// TestSlow: what is listed is there, and says why it is.
func TestSlow(t *testing.T) {
	for dir, s := range slow {
		if _, err := os.Stat(filepath.Join("../..", dir)); err != nil || s.limit <= defaultTime ||
			s.reason == "" {
			t.Errorf("%s: %+v, %v", dir, s, err)
		}
	}
}

// TestFollows: the limit of a test counts from when it began, went on or saw a subtest end, not
// while it waits for its turn or for subtests.
func TestFollows(t *testing.T) {
	at := time.Unix(0, 0)
	tests := newTests(io.Discard, nil)
	for _, c := range []struct {
		after time.Duration
		line  string
		want  stretch
	}{
		{0, "=== RUN   TestA", stretch{"TestA", time.Second}},
		{4 * time.Second, "=== PAUSE TestA", stretch{}},
		{time.Minute, "=== RUN   TestB", stretch{"TestB", time.Second}},
		{0, "=== RUN   TestB/one", stretch{"TestB/one", time.Second}},
		{2 * time.Second, "--- PASS: TestB/one (2.00s)", stretch{"TestB", time.Second}},
		{0, "=== RUN   TestB/two", stretch{"TestB/two", time.Second}},
		{0, "=== PAUSE TestB/two", stretch{}},
		{time.Minute, "=== CONT  TestB/two", stretch{"TestB/two", time.Second}},
		{time.Second, "    --- FAIL: TestB/two (1.00s)", stretch{"TestB", time.Second}},
		{0, "=== RUN   TestB/a/b", stretch{"TestB/a/b", time.Second}},
		{9 * time.Second, "    --- PASS: TestB/a/b (9.00s)", stretch{"TestB", time.Second}},
		{time.Second, "--- FAIL: TestB (63.00s)", stretch{}},
		{time.Second, "=== CONT  TestA", stretch{"TestA", time.Second}},
		{minReported, "--- PASS: TestA (5.00s)", stretch{}},
	} {
		at = at.Add(c.after)
		tests.take("\x16"+c.line+"\n", at)
		if got := tests.longestNow(at.Add(time.Second)); got != c.want {
			t.Errorf("after %q: %+v, want %+v", c.line, got, c.want)
		}
	}
	if got := tests.slow(); len(got) != 1 || got[0] != (stretch{"TestA", minReported}) {
		t.Errorf("the slow tests are %v", got)
	}
}
