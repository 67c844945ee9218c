package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// roundsVariable is how often the server dies at each crash point of both databases. Without it the
// points that are of no database are passed on SQLite alone, once.
const roundsVariable = "MILLRACE_TEST_CRASH_ROUNDS"

// crashShares is how many servers at a time share the points of a database.
const crashShares = 3

// TestPointsApply: the crash points still apply to the source, and there are enough of them.
func TestPointsApply(t *testing.T) {
	t.Parallel()
	points, err := readPoints()
	if err != nil || len(points) < 40 {
		t.Fatalf("%d crash points: %v", len(points), err)
	}
	names := map[string]bool{}
	for _, p := range points {
		if names[p.name] {
			t.Errorf("there are two crash points %s", p.name)
		}
		names[p.name] = true
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	changes, err := withPoints("")
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := changes.apply(root, t.TempDir())
	if err != nil || len(replaced) < 20 {
		t.Errorf("%d files are changed: %v", len(replaced), err)
	}
	stale := crashPoint{name: "stale", folder: "internal/engine", before: "no such text"}
	if _, err := stale.file(root); err == nil {
		t.Error("a point whose text is gone still applies")
	}
	for _, store := range []string{"sqlite", "postgres"} {
		p := plan{Store: store, Points: "all"}
		selected, err := p.selectPoints()
		if err != nil || len(selected) >= len(points) || len(selected) < len(points)-4 {
			t.Errorf("%s has %d of %d points: %v", store, len(selected), len(points), err)
		}
	}
}

// TestCrashPoints: a server under load that dies at each crash point keeps all its promises. A run
// in which it does not come to one of them fails.
func TestCrashPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	t.Parallel()
	rounds := 1
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("%s is %q", roundsVariable, text)
		}
	}
	changes, err := withPoints("")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build(changes, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for store, shares := range sharesOfPoints(t, rounds > 1) {
		for i, share := range shares {
			t.Run(fmt.Sprint(store, i), func(t *testing.T) {
				t.Parallel()
				args := []string{"-seed", fmt.Sprint(31 + 100*i), "-store", store, "-binary",
					binary, "-rounds", strconv.Itoa(rounds), "-points", strings.Join(share, ",")}
				if url := os.Getenv("MILLRACE_TEST_POSTGRES"); url != "" {
					args = append(args, "-postgres", url)
				}
				var output bytes.Buffer
				if code := Main(t.Context(), args, &output); code != exitGood {
					t.Errorf("exit code %d:\n%s", code, &output)
				}
				t.Logf("%s", lastLines(output.String(), 1))
			})
		}
	}
}

// TestPointCatches: a bug for which a server has to die between two statements is caught by one
// death at the point between them.
func TestPointCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	t.Parallel()
	var output bytes.Buffer
	code := Main(t.Context(), []string{"-seed", "7", "-bug", "outbox-emptied-first", "-points",
		"webhook.notified", "-wait", "20s"}, &output) // the event that the bug loses never comes
	if code != exitViolation || !strings.Contains(output.String(), "VIOLATION I11") {
		t.Errorf("exit code %d, want %d and I11:\n%s", code, exitViolation, &output)
	}
}

// sharesOfPoints returns the points at which servers die, by database and by server.
func sharesOfPoints(t *testing.T, isFull bool) map[string][][]string {
	t.Helper()
	shares := map[string][][]string{"sqlite": make([][]string, crashShares)}
	if isFull {
		shares["postgres"] = make([][]string, crashShares)
	} else {
		shares["postgres"] = make([][]string, 1)
	}
	for store, of := range shares {
		p := plan{Store: store, Points: "all"}
		names, err := p.selectPoints()
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if store == "sqlite" || isFull || strings.HasPrefix(name, "postgres.") {
				of[i%len(of)] = append(of[i%len(of)], name)
			}
		}
	}
	return shares
}

// lastLines returns the last lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// TestAuditSchedule: what is wrong with a schedule and with what deletes its jobs is found.
func TestAuditSchedule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*final)
		wrong  bool
	}{
		{"three times, of which one job is deleted", func(*final) {}, false},
		{"a job that is lost", func(f *final) { f.Rows = f.Rows[1:] }, true},
		{"a job that is there twice", func(f *final) { f.Rows = append(f.Rows, f.Rows[0]) }, true},
		{"a time that is left out", func(f *final) {
			f.Schedule.Ticks = append(f.Schedule.Ticks[:1], f.Schedule.Ticks[2])
		}, true},
		{"one job of two times", func(f *final) { f.Schedule.Ticks[0].Job = 2 }, true},
		{"a time that was missed", func(f *final) { f.Schedule.Ticks[1].Outcome = "missed" }, true},
		{"a deletion that has failed", func(f *final) { f.Schedule.Failed = 1 }, true},
		{"an operation that is left", func(f *final) { f.Schedule.Open = []string{"b"} }, true},
		{"a deletion that is counted twice", func(f *final) { f.Schedule.Deleted++ }, true},
	} {
		start := time.Unix(1_000_000, 0)
		f := final{Schedule: finalSchedule{Created: start, Starts: start, Deleted: 1}}
		for i := range 3 {
			f.Schedule.Ticks = append(f.Schedule.Ticks, tick{start.Add(time.Duration(3-i) *
				scheduleInterval), "submitted", int64(3 - i)})
			if i > 0 {
				f.Rows = append(f.Rows, row{taskflow, scheduledQueue, fmt.Sprint(i), "ready", ""})
			}
		}
		c.change(&f)
		var v violations
		check(nil, &f, &v)
		if wrong := len(v.kinds()) > 0; wrong != c.wrong {
			t.Errorf("%s: got %v", c.name, v.counts)
		}
	}
}
