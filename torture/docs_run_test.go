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
	{"-only failover ", "TestFailover"},
	{"-only failover-async -load", "the same with a shorter load runs"},
	{"-only patroni-async", "not run: TestPatroni has its servers, and failover-async its losses"},
	{"-only patroni", "TestPatroni"},
	{"-store postgres -nodes 2 -only power-cut", "TestPowerCut"},
	{"-pgbouncer", "TestPooled"},
	{"-prove -s3 ", "not run: all bugs take an hour; the command that follows has one of them"},
	{"-s3 ", "TestServicesFail"},
	{"-points ", "TestCrashPoints"},
	{"-older ", "not run: the older server is the reader's; TestOlderNode has two versions together"},
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
	ran, seen, named := 0, map[string]bool{}, map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(
		string(page), -1) {
		for line := range strings.Lines(block[1]) {
			command, isRun := strings.CutPrefix(line, "go run ./torture ")
			if !isRun {
				continue
			}
			command, _, _ = strings.Cut(command, "#")
			command = strings.Join(strings.Fields(command), " ")
			named[onlyOf(command)] = true
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
	for _, kind := range namedFaults {
		if !named[kind] {
			t.Errorf("no command of a block has the fault %s, which no run draws unless it is named", kind)
		}
	}
}

// onlyOf returns the kind of fault to which a command confines its run; "" without one.
func onlyOf(command string) string {
	_, rest, _ := strings.Cut(command, "-only ")
	kind, _, _ := strings.Cut(rest, " ")
	return kind
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
	only := onlyOf(command)
	args, want := append(strings.Fields(command), "-dir", t.TempDir()), "no violation"
	args = append(args, serversOf(t, command, only)...)
	switch {
	case strings.Contains(command, "-recovery "):
		args, want = append(args, "-recovery", "300", "-rounds", "1"), "300 jobs queued"
	case strings.Contains(command, "-prove"):
		want = "order-lost"
	default:
		args = append(args, "-load", "4s")
	}
	var output bytes.Buffer
	code := Main(t.Context(), args, &output)
	isRecovery := strings.Contains(command, "-recovery ") // whose times are not checked
	hasFault := (only == "") || strings.Contains(output.String(), " × "+only)
	if (code != exitGood && !isRecovery) || code == exitNoVerdict || !hasFault ||
		!strings.Contains(output.String(), want) {
		t.Errorf("%q: exit code %d, without %q or a fault:\n%s", args, code, want, &output)
	}
}

// serversOf returns the flags for the servers that a run needs, and skips the test where this
// machine does not have its programs.
func serversOf(t *testing.T, command, only string) (flags []string) {
	t.Helper()
	if !strings.Contains(command, "-prove") {
		flags = append(flags, "-binary", serverBinary(t))
	}
	if _, isInjected := injections[only]; isInjected {
		requirePrograms(t, "strace")
	}
	if slices.Contains(mountFaults, only) {
		skipUnlessRoot(t)
	}
	switch {
	case slices.Contains(serverFaults, only) || isFailover(only):
		requirePrograms(t, "initdb", "postgres", "pg_basebackup")
	case strings.Contains(command, "-store postgres"):
		flags = append(flags, "-postgres", postgresURL(t))
	}
	return flags
}
