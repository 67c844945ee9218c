package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// All of it runs, small: a job of each contract leaves something, but for those of Relay, which
// are removed.
func TestSizes(t *testing.T) {
	t.Parallel()
	// The user postgres has no way into folders of the test.
	args := []string{"-n", "100", "-clients", "4", "-dir", os.TempDir()}
	onWorlds(t, "sizes", args, func(t *testing.T, out string) {
		found := 0
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) != 10 || fields[9] != "MB" {
				continue
			}
			found++
			if fields[1] == "0" || fields[2] == "0" || (fields[3] == "0" && fields[0] != "relay") ||
				fields[8] == "0" {
				t.Errorf("a job leaves nothing: %s", line)
			}
		}
		if found != len(sizedContracts) {
			t.Errorf("%d contracts of %d have a line:\n%s", found, len(sizedContracts), out)
		}
	})
}

func TestSizesFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"other"}, {"-n", "0"}, {"-clients", "0"}, {"-on", "mysql"},
		{"-max-time", "0s"}} {
		if _, err := parseSizes(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
	s, err := parseSizes([]string{"images", "relay"}, io.Discard)
	if err != nil || len(s.chosen) != 2 {
		t.Errorf("got %+v, %v", s, err)
	}
}

// All of it runs, small: every line has a rate, and times of both sides.
func TestNodes(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := []string{"nodes", "-nodes", "1,2", "-n", "300", "-clients", "4", "-rounds", "1"}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, &stderr, &stdout)
	}
	out := stdout.String()
	if strings.Contains(out, "skipped: ") || strings.Contains(stderr.String(), "pgbouncer") {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(out, stderr.String())
		}
		t.Skip(out, stderr.String())
	}
	squeezed := regexp.MustCompile(` +`).ReplaceAllString(out, " ")
	for _, want := range []string{"\n 1 1 ", "\n 2 100 ", " 1 behind PgBouncer 100 ",
		" 2 with a PostgreSQL each 100 "} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("there is no line %q in:\n%s", want, out)
		}
	}
}

// Both contracts run at the same time, small, on one PostgreSQL and with one each.
func TestNodesContracts(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	args := []string{"nodes", "-contracts", "-n", "300", "-clients", "4", "-rounds", "1"}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, &stderr, &stdout)
	}
	out := stdout.String()
	if strings.Contains(out, "skipped: ") {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(out)
		}
		t.Skip(out)
	}
	lines := regexp.MustCompile(`(?m)^ *([12]) +(1|100)(?: +[1-9]\d*){5}$`).FindAllString(out, -1)
	if len(lines) != 4 {
		t.Errorf("there are %d lines with numbers, want 4:\n%s", len(lines), out)
	}
}

func TestNodesFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-n", "0"}, {"-rounds", "0"}, {"-nodes", "0"},
		{"-nodes", "1,x"}, {"-max-time", "0s"}} {
		if _, err := parseNodes(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}

// The time of a family has that of children that run.
func TestFamilyTime(t *testing.T) {
	t.Parallel()
	own, err := processorTime(os.Getppid())
	if err != nil {
		t.Skip("this system has no /proc: ", err)
	}
	if family, err := familyTime(os.Getppid()); err != nil || family < own {
		t.Errorf("%v of a process that has used %v itself, %v", family, own, err)
	}
}
