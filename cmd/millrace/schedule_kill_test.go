package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

const (
	// killedSchedules is how many schedules have a time every two seconds, so that one is mostly
	// being submitted when a node is killed.
	killedSchedules = 20
	scheduleKills   = 20
	schedulePeriod  = 2 * time.Second
)

// killedNodes are the nodes of a store with TaskFlow, of which one after the other is killed.
type killedNodes struct {
	*testing.T
	nodes []*launchedServer
	dirs  []string
	args  []string
	last  *client.Client // of the last node
	url   string         // of that node
}

// onKilledNodes runs a test with one node on SQLite and with several on PostgreSQL.
func onKilledNodes(t *testing.T, several int, test func(*killedNodes)) {
	t.Parallel()
	for name, nodes := range map[string]int{"sqlite": 1, "postgres": several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &killedNodes{T: t, args: []string{"--set", "contracts=taskflow", "--set",
				"taskflow.max_concurrent=1000", "--set", "log.level=error"}}
			if nodes > 1 {
				dir := t.TempDir()
				mustWriteFile(t, dir, "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
				w.args = append(w.args, "--set", "store="+pgtest.URL(t), "--set",
					"secrets.pepper_file="+filepath.Join(dir, "pepper"))
			}
			for i := range nodes {
				w.dirs = append(w.dirs, filepath.Join(w.TempDir(), fmt.Sprint("node", i)))
				w.nodes = append(w.nodes, launchIn(w.T, w.dirs[i], w.args...))
			}
			test(w)
			for _, n := range w.nodes {
				if err := n.terminate(); err != nil {
					w.Error(err)
				}
			}
		})
	}
}

// kill kills a node, in turn, and starts it again.
func (w *killedNodes) kill(turn int) {
	w.Helper()
	at := turn % len(w.nodes)
	w.nodes[at].kill()
	w.nodes[at] = launchIn(w.T, w.dirs[at], w.args...)
}

// TestKilledSchedules (SC-004): three nodes, twenty of which are killed and started again while
// schedules are due, submit exactly one job for each time, and no time is left out. On SQLite it is
// one node.
func TestKilledSchedules(t *testing.T) {
	onKilledNodes(t, 3, (*killedNodes).checkSchedules)
}

func (w *killedNodes) checkSchedules() {
	admin := w.admin()
	every, contract, catchUp := "2s", "taskflow", "none"
	for i := range killedSchedules {
		_, err := admin.CreateSchedule(w.Context(), scheduleName(i), client.AdminScheduleSpec{
			Every: &every, Contract: &contract, CatchUp: &catchUp,
			Request: fmt.Appendf(nil, `{"name":"n","queue":%q}`, scheduleName(i))})
		if err != nil {
			w.Fatal(err)
		}
	}
	var latest time.Time
	for kill := range scheduleKills {
		before := latest
		pollUntil(w.Fatalf, "a job to be submitted", func() bool {
			latest = w.latest()
			return latest.After(before)
		})
		w.kill(kill)
	}
	over := time.Now()
	for i := range killedSchedules {
		w.checkTimes(scheduleName(i), over)
	}
}

func scheduleName(i int) string { return fmt.Sprintf("s%02d", i) }

// client returns a client of the last node as its operator.
func (w *killedNodes) client() *client.Client {
	w.Helper()
	url := w.nodes[len(w.nodes)-1].url
	if w.url == url {
		return w.last
	}
	token, err := os.ReadFile(filepath.Join(w.dirs[0], "operator.token"))
	if err != nil {
		w.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: url, Token: strings.TrimSpace(string(token))})
	if err != nil {
		w.Fatal(err)
	}
	w.url, w.last = url, c
	return c
}

func (w *killedNodes) admin() *client.Admin { w.Helper(); return w.client().Admin() }

// latest returns when the latest job was submitted, by whichever schedule.
func (w *killedNodes) latest() (at time.Time) {
	w.Helper()
	for s, err := range w.admin().Schedules(w.Context(), killedSchedules) {
		if err != nil {
			w.Fatal(err)
		}
		if s.Latest != nil && s.Latest.At.After(at) {
			at = s.Latest.At
		}
	}
	return at
}

// countJobs returns how many jobs a queue has.
func (w *killedNodes) countJobs(queue string) (n int) {
	w.Helper()
	flow := w.client().TaskFlow()
	for _, err := range flow.Search(w.Context(), client.TaskFlowFilter{Queue: queue,
		PageSize: 100}) {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}

// checkTimes waits until a schedule has gone beyond a moment, and fails unless each of its times up
// to then has one job, which is the only one of the time.
func (w *killedNodes) checkTimes(name string, over time.Time) {
	w.Helper()
	admin := w.admin()
	var ticks []client.AdminScheduleTick
	read := func() {
		ticks = ticks[:0]
		for tick, err := range admin.ScheduleTicks(w.Context(), name) {
			if err != nil {
				w.Fatal(err)
			}
			ticks = append(ticks, tick)
		}
	}
	pollUntil(w.Fatalf, name+" to go on", func() bool {
		read()
		return len(ticks) > 0 && ticks[0].Time.After(over)
	})
	paused, err := admin.PauseSchedule(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	pollUntil(w.Fatalf, "a job for each time of "+name, func() bool {
		read() // a time that was being submitted when the schedule was paused
		return w.countJobs(name) == len(ticks)
	})
	slices.Reverse(ticks)
	jobs := map[int64]bool{}
	for i, tick := range ticks {
		want := paused.CreatedAt.Add(time.Duration(i+1) * schedulePeriod)
		if !tick.Time.Equal(want) || tick.Outcome != "submitted" || jobs[tick.Job] {
			shown, _ := json.Marshal(tick)
			w.Errorf("SC-004 %s: time %d is %s, want %v", name, i, shown, want)
		}
		jobs[tick.Job] = true
	}
}
