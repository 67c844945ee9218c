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

// TestHangs hangs where it plays a part.
func TestHangs(t *testing.T) {
	if os.Getenv(play) == "hangs" {
		select {}
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
	within := bounds{memory: defaultMemory, report: report}
	for _, c := range []struct {
		part, says string
		bounds     bounds
		code       int
	}{
		{"passes", "PASS", within, 0},
		{"fails", "", within, 3},
		{"eats", "the tests of .ci/bounds used", bounds{memory: 64}, 1},
		{"hangs", "TestHangs (1s)", bounds{memory: defaultMemory, time: time.Second}, 2},
	} {
		code, said := under(t, c.part, c.bounds, "-test.timeout=30m0s", "-test.run=^TestHangs$",
			"-test.paniconexit0")
		if code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, want %d; it says:\n%s", c.part, code, c.code, said)
		}
	}
	lines, err := os.ReadFile(report)
	if err != nil || strings.Count(string(lines), " .ci/bounds\n") != 2 {
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
