package main

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
)

// onWorlds runs a subcommand on each database and returns what it has written.
func onWorlds(t *testing.T, command string, args []string, check func(t *testing.T, out string)) {
	for _, db := range worldDatabases {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			out := runOn(t, command, append([]string{"-on", db.name}, args...)...)
			check(t, out)
		})
	}
}

// runOn runs a subcommand and returns what it has written. The test is skipped where that lacks
// something.
func runOn(t *testing.T, command string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	all := append([]string{command, "-dir", t.TempDir()}, args...)
	if code := run(t.Context(), all, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, &stderr, &stdout)
	}
	out := stdout.String()
	if strings.Contains(out, "skipped: ") {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(out)
		}
		t.Skip(out)
	}
	return out
}

// All pages are asked for, over few jobs of each sort: each answers 200, and none is left out.
func TestAdminAsksForEveryPage(t *testing.T) {
	t.Parallel()
	onWorlds(t, "admin", []string{"-n", "2000", "-rate", "40", "-clients", "4", "-rounds", "1",
		"-past", "20s", "-warm", "0s", "-time", "2m"}, func(t *testing.T, out string) {
		for _, want := range []string{"\n/admin/v1/jobs?parent=", "\n/admin/v1/jobs, two filters ",
			"\n/admin/v1/jobs, two filters with a text ", "\n/admin/v1/queues?order=depth ",
			"\n/admin/v1/jobs/{number}/why (ready) ", "\n/admin/v1/jobs/{number}/failure (dead) ",
			"\n/admin/v1/dead-letters/groups ", "\n/admin/v1/series?metric=depth",
			"\n/admin/v1/bulk/{id} ", "\n/console ", "\n/console/queues ", "\n/console/audit ",
			" lines are over their goal\n", "beside: ", "slowest of "} {
			if !strings.Contains(out, want) {
				t.Errorf("the report lacks %q", want)
			}
		}
		if strings.Contains(out, "not asked for") {
			t.Errorf("pages are left out")
		}
		if t.Failed() {
			t.Log(out)
		}
	})
}

func TestAdminFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-n", "0"}, {"-rate", "-1"}, {"-only", "("},
		{"-on", "mysql"}, {"-past", "-1s"}, {"-time", "0s"}} {
		if _, err := parseAdmin(args, io.Discard); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
	if _, err := parseAdmin([]string{"-rate", "0", "-on", "sqlite"}, io.Discard); err != nil {
		t.Error(err)
	}
}

// Two filters of one member do not go together, and a list with a text may take longer.
func TestJobQuestions(t *testing.T) {
	t.Parallel()
	f := &dataset{now: time.Unix(1e9, 0), owner: "o", file: "f", jobID: "i",
		jobs: map[string]int64{"manifest": 7}}
	alone, pairs := map[string]bool{}, 0
	for _, q := range f.jobQuestions() {
		_, query, _ := strings.Cut(q.path, "?")
		filters := strings.Split(query, "&")
		names := map[string]bool{}
		for _, filter := range filters {
			name, _, _ := strings.Cut(filter, "=")
			names[name] = true
		}
		if len(names) != len(filters) {
			t.Errorf("%s has one member twice", q.path)
		}
		if isText := names["text"] || names["error"]; isText != (q.goal == textGoal) {
			t.Errorf("%s has the goal %d", q.path, q.goal)
		}
		if len(filters) == 2 {
			pairs++
		} else if !q.next {
			alone[query] = true
		}
	}
	if n := len(f.jobFilters()); len(alone) != n || pairs < n*(n-1)/2*9/10 {
		t.Errorf("%d of %d filters alone and %d pairs", len(alone), n, pairs)
	}
}

// Members of paths are filled in; what is not known is reported.
func TestQuestions(t *testing.T) {
	t.Parallel()
	f := &dataset{jobs: map[string]int64{"ready": 1, "dead": 2, "manifest": 3},
		members: map[string]string{"/admin/v1/bulk": "b"},
		routes: []string{"/admin/v1/bulk/{id}", "/admin/v1/jobs/{number}/why",
			"/admin/v1/jobs/{number}/payload", "/admin/v1/events", "/admin/v1/series",
			"/admin/v1/things/{thing}", "/admin/v1/bulk/{id}/{other}"}}
	all, unknown := f.questions()
	if want := []string{"/admin/v1/things/{thing}",
		"/admin/v1/bulk/{id}/{other}"}; !slices.Equal(unknown, want) {
		t.Errorf("unknown are %q, want %q", unknown, want)
	}
	paths := map[string]bool{}
	for _, q := range all {
		paths[q.path] = true
	}
	for path, want := range map[string]bool{"/admin/v1/bulk/b": true, "/admin/v1/jobs/1/why": true,
		"/admin/v1/jobs/3/why": true, "/admin/v1/jobs/1/payload": true,
		"/admin/v1/jobs/2/payload": false, "/admin/v1/events": false,
		"/admin/v1/series": false} {
		if paths[path] != want {
			t.Errorf("%s is asked for: %t", path, paths[path])
		}
	}
}

func TestPageLabels(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/console":                 "/console",
		"/console?range=7d":        "/console?range=7d",
		"/console/jobs/17/graph":   "/console/jobs/{}/graph",
		"/console/queues/relay/r7": "/console/queues/relay/{}",
	} {
		if got := pageLabel(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if a, b := pageKind("/console/jobs/1?a=1&b=2"), pageKind("/console/jobs/2?b=3&a=4"); a != b {
		t.Errorf("%s and %s are of one sort", a, b)
	}
}

func TestGoals(t *testing.T) {
	t.Parallel()
	g := goals{admin: 50 * time.Millisecond, page: 100 * time.Millisecond, search: time.Second}
	ms := func(n ...int) (all []time.Duration) {
		for _, n := range n {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	lines := []*answers{
		{label: "/quick", took: ms(1, 2, 50)},
		{label: "/slow", took: ms(1, 2, 51)},
		{label: "/text", goal: textGoal, took: ms(1050)},
		{label: "/slow text", goal: textGoal, took: ms(1051)},
		{label: "/page", goal: pageGoal, took: ms(101), by: map[string][]time.Duration{
			"/page/1": ms(99), "/page/2": ms(101)}},
	}
	var out bytes.Buffer
	if err := g.report(&out, lines); err != nil {
		t.Fatal(err)
	}
	var order []string
	over := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		if label, _, _ := strings.Cut(line, "  "); strings.HasPrefix(label, "/") {
			order = append(order, label)
			over[label] = strings.HasSuffix(strings.TrimSpace(line), "OVER")
		}
	}
	if want := []string{"/slow text", "/text", "/page", "/slow", "/quick"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
	if want := map[string]bool{"/slow text": true, "/text": false, "/page": true, "/slow": true, "/quick": false}; !maps.Equal(over, want) {
		t.Errorf("over are %v, want %v", over, want)
	}
	for _, want := range []string{`slowest of "/page" by their median: /page/2 101ms, /page/1 99ms`,
		"all 6 answers of the API: p50 2ms p95 51ms p99 51ms max 51ms, goal p99 50ms\n",
		"3 of 5 lines are over"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// A job that waits counts by what it waits for, and a dead letter beside its job.
func TestCountsOf(t *testing.T) {
	t.Parallel()
	of := func(jobType, queue string, phase job.Phase, state job.State) *job.Job {
		return &job.Job{ID: job.ID{JobType: jobType}, Queue: queue, Phase: phase, State: state}
	}
	jobs := []*job.Job{of(relay.Name, "a", job.Waiting, "queued"),
		of(relay.Name, "a", job.Ready, "queued"), of(taskflow.Name, "a", job.Waiting, "PENDING"),
		of(taskflow.Name, "a", job.Leased, "RUNNING"), of(taskflow.Name, "a", job.Done, "FAILED")}
	got := countsOf(jobs, deadLettersOf(jobs))
	slices.SortFunc(got, func(a, b job.QueueCount) int { return cmp.Compare(a.JobType, b.JobType) })
	want := []job.QueueCount{{JobType: relay.Name, Queue: "a", Delayed: 1, Ready: 1},
		{JobType: taskflow.Name, Queue: "a", Waiting: 1, Leased: 1, Done: 1,
			Dead: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPastSteps(t *testing.T) {
	t.Parallel()
	steps := pastSteps(7 * 24 * time.Hour)
	if want := 359 + 23*60 + 6*24 + 1; len(steps) != want || steps[0] < 6*24*time.Hour ||
		steps[len(steps)-1] != 10*time.Second || !slices.IsSortedFunc(steps,
		func(a, b time.Duration) int { return cmp.Compare(b, a) }) {
		t.Errorf("%d steps from %s to %s, want %d", len(steps), steps[0], steps[len(steps)-1], want)
	}
	if steps := pastSteps(0); len(steps) != 0 {
		t.Errorf("no past has %d steps", len(steps))
	}
}
