package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// coveredRuns are the runs of docs/reliability.md that need other programs, or minutes, by what
// their commands have: the test that carries out the same for seconds, or why none does.
var coveredRuns = []struct{ has, test string }{
	{"-only failover-async", "not run: what it measures takes a primary away again and again"},
	{"-only failover", "TestFailover"},
	{"-only patroni", "TestPatroni"},
	{"-store postgres -nodes 2 -only power-cut", "TestPowerCut"},
	{"-pgbouncer", "TestPooled"},
	{"-s3 ", "TestServicesFail"},
	{"-points ", "TestCrashPoints"},
	{"-older ", "not run: the older server is the reader's; TestOlderNode has two versions together"},
	{"-prove ;", "not run: all bugs take an hour; the command that follows has one of them"},
}

// TestRunsOfThePage carries out the commands of docs/reliability.md for seconds: those of
// coveredRuns are carried out by other tests.
func TestRunsOfThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	page, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	ran, seen := 0, map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(
		string(page), -1) {
		for line := range strings.Lines(block[1]) {
			command, isRun := strings.CutPrefix(line, "go run ./torture ")
			if !isRun {
				continue
			}
			command, _, _ = strings.Cut(command, "#")
			command = strings.Join(strings.Fields(command), " ")
			if !isCovered(seen, command+" ;") {
				ran++
				t.Run(command, func(t *testing.T) { runSmall(t, command) })
			}
		}
	}
	if ran < 7 || len(seen) != len(coveredRuns) {
		t.Errorf("%d commands are carried out, and others by %d of %d tests", ran, len(seen),
			len(coveredRuns))
	}
}

// isCovered reports whether another test carries out a command, and notes by which entry.
func isCovered(seen map[string]bool, command string) bool {
	i := slices.IndexFunc(coveredRuns, func(one struct{ has, test string }) bool {
		return strings.Contains(command, one.has)
	})
	if i >= 0 {
		seen[coveredRuns[i].has] = true
	}
	return i >= 0
}

// runSmall carries out a command with a short load and few jobs.
func runSmall(t *testing.T, command string) {
	t.Parallel()
	args := append(strings.Fields(command), "-dir", t.TempDir())
	want := "no violation"
	switch {
	case strings.Contains(command, "-recovery "):
		args, want = append(args, "-recovery", "300", "-rounds", "1"), "300 jobs queued"
	case strings.Contains(command, "-prove"):
		want = "order-lost"
	default:
		args = append(args, "-load", "4s")
	}
	if !strings.Contains(command, "-prove") {
		args = append(args, "-binary", serverBinary(t))
	}
	if strings.Contains(command, "-only power-cut") {
		skipUnlessRoot(t)
	}
	if strings.Contains(command, "-store postgres") {
		args = append(args, "-postgres", postgresURL(t))
	}
	var output bytes.Buffer
	code := Main(t.Context(), args, &output)
	isRecovery := strings.Contains(command, "-recovery ") // whose times are not checked
	if (code != exitGood && !isRecovery) || code == exitNoVerdict ||
		!strings.Contains(output.String(), want) {
		t.Errorf("%q: exit code %d, without %q:\n%s", args, code, want, &output)
	}
}
