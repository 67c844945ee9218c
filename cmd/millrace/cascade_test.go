package main

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestCascadeCrash kills the real binary with SIGKILL while a job's end spreads to those that wait
// for it, a thousand and more, and looks at the graph after each restart: the cascade has happened
// as a whole or not at all (TF-049), what was not answered can be said again, and at the end every
// job was released or blocked exactly once (TF-046, TF-047, TF-050).
func TestCascadeCrash(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	settings := []string{"--set", "taskflow.max_concurrent=100000", "--set", "taskflow.lease=1h"}
	t.Run("TF-049 sqlite", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		c := &cascade{crashTest: &crashTest{t: t, binary: binary, dir: dir, settings: settings}}
		c.repeatRounds()
		db, err := sql.Open("sqlite", filepath.Join(dir, "millrace.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		c.count(db)
	})
	t.Run("TF-049 postgres", func(t *testing.T) {
		t.Parallel()
		url, name := pgtest.URL(t), rand.Text()
		db := pgtest.DB(t, url)
		c := &cascade{crashTest: &crashTest{t: t, binary: binary,
			dir:      filepath.Join(t.TempDir(), "data"),
			settings: append(settings, "--set", "store="+url+"&application_name="+name)}}
		c.awaitSessionsEnded = func() { awaitNoSessions(t, db, name) }
		c.repeatRounds()
		c.count(db)
	})
}

// The graph of a round: many wait for the root, and each two of them are waited for by one more.
const (
	cascadeWide  = 1200
	cascadeTails = cascadeWide / 2
)

// cascade is a server that is killed while the ends of jobs spread.
type cascade struct {
	*crashTest
	took   time.Duration // how long a cascade takes that nobody cuts
	window time.Duration // a kill comes within so long after the root's end was sent

	graphs, blocked int // graphs stored, those of them whose root failed
	// kills that came before a cascade was on disk, after it, and among many small ones
	before, after, midway int
}

// killsOfASort are the kills that are wanted before a commit, after one, and among many.
const killsOfASort = 3

// repeatRounds kills until the kills have met both sides of the commit often enough.
func (c *cascade) repeatRounds() {
	seed := mathrand.Uint64()
	c.random = mathrand.New(mathrand.NewPCG(seed, 2))
	wanted := killsOfASort
	if testing.Short() {
		wanted = 1
	}
	c.start()
	c.round(false, false)
	for n := 1; (c.before < wanted || c.after < wanted || c.midway < wanted) && !c.t.Failed(); n++ {
		if n == 60 {
			c.t.Errorf("of %d kills %d came before the cascade was on disk, %d after, %d midway "+
				"(seed %d)", n, c.before, c.after, c.midway, seed)
		}
		c.round(true, n%2 == 0)
	}
	if err := c.server.terminate(); err != nil {
		c.t.Error(err)
	}
	c.t.Logf("%d graphs, %d with a root that failed; kills: %d before the cascade was on disk, "+
		"%d after, %d midway; a cascade took %s",
		c.graphs, c.blocked, c.before, c.after, c.midway, c.took)
}

// round stores a graph, ends its root, with a kill meanwhile if that is wanted, and then what
// waited for it.
func (c *cascade) round(kill, fails bool) {
	c.t.Helper()
	ids := c.submit()
	c.graphs++
	root := c.claimRoot(ids["root"])
	verb, body, ended := "complete", `{}`, client.TaskFlowStatusCompleted
	if fails {
		verb, body, ended = "fail", `{"error":"x","retryable":false}`, client.TaskFlowStatusFailed
		c.blocked++
	}
	path := "/worker/v1/runs/" + root + "/" + verb
	started := time.Now()
	if !kill {
		c.request(http.MethodPost, path, body, http.StatusOK, nil)
		c.took = time.Since(started)
		c.window = 2 * c.took
	} else {
		acknowledged := c.endRootAndKill(path, body)
		switch status := c.readStatuses(ids)["root"]; {
		case status == client.TaskFlowStatusRunning && !acknowledged:
			c.before++
			if c.after < killsOfASort {
				c.window *= 2
			}
			c.request(http.MethodPost, path, body, http.StatusOK, nil)
		case status == ended:
			c.after++
			if c.before < killsOfASort {
				c.window = max(c.window/2, time.Millisecond)
			}
			// RUN_LOST: it has been
			c.request(http.MethodPost, path, body, http.StatusConflict, nil)
		default:
			c.t.Errorf("after the kill the root is %s, its end was acknowledged: %v", status, acknowledged)
		}
	}
	if status := c.readStatuses(ids)["root"]; status != ended {
		c.t.Errorf("the root is %s, want %s", status, ended)
	}
	if !fails {
		c.finishWide(ids, kill)
	}
}

func (c *cascade) submit() map[string]string {
	c.t.Helper()
	g := &client.TaskFlowGraphBuilder{}
	g.Add("root", client.TaskFlowSpec{Name: "root", Queue: "root"})
	for i := range cascadeWide {
		ref := fmt.Sprint("wide", i)
		g.Add(ref, client.TaskFlowSpec{Name: ref, Queue: "wide"}, "root")
	}
	for i := range cascadeTails {
		ref := fmt.Sprint("tail", i)
		g.Add(ref, client.TaskFlowSpec{Name: ref, Queue: "tail"}, fmt.Sprint("wide", 2*i),
			fmt.Sprint("wide", 2*i+1))
	}
	ids, err := c.client().TaskFlow().SubmitGraph(c.t.Context(), g)
	if err != nil {
		c.t.Fatal(err)
	}
	return ids
}

func (c *cascade) client() *client.Client {
	api, err := client.New(client.Config{BaseURL: c.server.url})
	if err != nil {
		c.t.Fatal(err)
	}
	return api
}

func (c *cascade) claimRoot(id string) (runID string) {
	j, err := c.client().WorkerAPI().ClaimJob(c.t.Context(), client.ContractTaskFlow, id, "test")
	if err != nil {
		c.t.Fatal(err)
	}
	return j.RunID
}

// endRootAndKill ends the root and kills the server at a random moment of the window, which follows
// the speed of the machine: while kills of one sort are missing, the others move it. It reports
// whether the end was acknowledged.
func (c *cascade) endRootAndKill(path, body string) (acknowledged bool) {
	moment := time.Duration(c.random.Int64N(int64(c.window)))
	process := c.server.cmd.Process
	killer := time.AfterFunc(moment, func() { _ = process.Kill() })
	defer killer.Stop()
	var answer struct {
		Status string `json:"status"`
	}
	status, ok := c.tryRequest(http.MethodPost, path, body, &answer)
	if ok && status != http.StatusOK {
		c.t.Errorf("ending the root: status %d", status)
	}
	c.restart()
	return ok
}

// restart kills the server and starts it again.
func (c *cascade) restart() {
	c.server.kill()
	c.http.CloseIdleConnections()
	c.start()
}

// readStatuses reads the graph and checks that the status of every job follows from those of the
// others. It returns the statuses by name.
func (c *cascade) readStatuses(ids map[string]string) map[string]client.TaskFlowStatus {
	c.t.Helper()
	g, err := c.client().TaskFlow().Graph(c.t.Context(), ids["root"])
	if err != nil {
		c.t.Fatal(err)
	}
	statuses := map[string]client.TaskFlowStatus{}
	for _, n := range g.Jobs {
		statuses[n.Name] = n.Status
	}
	if len(statuses) != 1+cascadeWide+cascadeTails {
		c.t.Fatalf("%d jobs are there", len(statuses))
	}
	wrong := 0
	for name, status := range statuses {
		if name == "root" || c.wantConsistent(statuses, name, status) {
			continue
		}
		if wrong++; wrong <= 5 {
			c.t.Errorf("%s is %s; the root is %s", name, status, statuses["root"])
		}
	}
	if wrong > 0 {
		c.t.Fatalf("%d jobs are not where their dependencies have led them", wrong)
	}
	return statuses
}

// wantConsistent reports whether a job is as its dependencies are.
func (c *cascade) wantConsistent(statuses map[string]client.TaskFlowStatus, name string,
	status client.TaskFlowStatus) bool {
	on := []client.TaskFlowStatus{statuses["root"]}
	var tail int
	if n, _ := fmt.Sscanf(name, "tail%d", &tail); n == 1 {
		on = []client.TaskFlowStatus{statuses[fmt.Sprint("wide", 2*tail)],
			statuses[fmt.Sprint("wide", 2*tail+1)]}
	}
	want := client.TaskFlowStatusReady
	for _, s := range on {
		switch {
		case s == client.TaskFlowStatusFailed || s == client.TaskFlowStatusBlocked:
			want = client.TaskFlowStatusBlocked
		case s != client.TaskFlowStatusCompleted && want != client.TaskFlowStatusBlocked:
			want = client.TaskFlowStatusPending
		}
	}
	released := status == client.TaskFlowStatusRunning || status == client.TaskFlowStatusCompleted
	return status == want || (want == client.TaskFlowStatusReady && released)
}

// finishWide claims what the root has released and completes it, eight at a time, with a kill in
// the middle if that is wanted.
func (c *cascade) finishWide(ids map[string]string, kill bool) {
	c.t.Helper()
	runs := map[string]string{} // by id
	for len(runs) < cascadeWide {
		jobs, err := c.client().WorkerAPI().Claim(c.t.Context(),
			client.ClaimQuery{Contract: client.ContractTaskFlow, Queues: []string{"wide"},
				Max: 1000}, 0)
		if err != nil || len(jobs) == 0 {
			c.t.Fatalf("%d released jobs can be claimed, %v", len(runs), err)
		}
		for _, j := range jobs {
			runs[j.ID] = j.RunID
		}
	}
	var all []string
	for id := range runs {
		all = append(all, id)
	}
	acked := map[string]bool{}
	if kill {
		acked = c.completeUntilKilled(all, runs)
		c.midway++
	}
	var mu sync.Mutex
	c.inParallel(all, func(id string) {
		status, ok := c.tryRequest(http.MethodPost, "/worker/v1/runs/"+runs[id]+"/complete", "{}",
			nil)
		mu.Lock()
		defer mu.Unlock()
		if !ok || (status != http.StatusOK && (!kill || status != http.StatusConflict)) ||
			(acked[id] && status == http.StatusOK) {
			c.t.Errorf("completing %s, acknowledged before: %v: status %d", id, acked[id], status)
		}
	})
	for name, status := range c.readStatuses(ids) {
		if want := map[byte]client.TaskFlowStatus{'r': client.TaskFlowStatusCompleted,
			'w': client.TaskFlowStatusCompleted,
			't': client.TaskFlowStatusReady}[name[0]]; status != want {
			c.t.Fatalf("%s is %s, want %s", name, status, want)
		}
	}
}

// completeUntilKilled completes jobs until the server is killed after some acknowledgements, starts
// it anew, and returns what was acknowledged.
func (c *cascade) completeUntilKilled(all []string, runs map[string]string) map[string]bool {
	acked := map[string]bool{}
	at := 1 + c.random.IntN(cascadeWide*3/4)
	var mu sync.Mutex
	c.inParallel(all, func(id string) {
		mu.Lock()
		reached := len(acked) >= at
		mu.Unlock()
		if reached {
			return
		}
		status, ok := c.tryRequest(http.MethodPost, "/worker/v1/runs/"+runs[id]+"/complete", "{}",
			nil)
		mu.Lock()
		defer mu.Unlock()
		if ok && status != http.StatusOK {
			c.t.Errorf("completing %s: status %d", id, status)
		}
		if ok {
			acked[id] = true
		}
		if len(acked) == at {
			_ = c.server.cmd.Process.Kill()
		}
	})
	c.restart()
	return acked
}

// count reads from the history how often each job was released, blocked and ended.
func (c *cascade) count(db *sql.DB) {
	c.t.Helper()
	good := c.graphs - c.blocked
	want := map[string]int{
		"satisfied":       c.graphs + good*(cascadeWide+cascadeTails), // a root is, as it is stored
		"unsatisfiable":   c.blocked * (cascadeWide + cascadeTails),
		"succeeded":       good * (1 + cascadeWide),
		"failed_for_good": c.blocked,
	}
	got := map[string]int{}
	rows, err := db.QueryContext(c.t.Context(),
		"SELECT cause, count(*), count(DISTINCT seq) FROM events GROUP BY cause")
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var cause string
		var moves, jobs int
		if err := rows.Scan(&cause, &moves, &jobs); err != nil {
			c.t.Fatal(err)
		}
		if moves != jobs {
			c.t.Errorf("%s: %d times, for %d jobs", cause, moves, jobs)
		}
		if _, counted := want[cause]; counted {
			got[cause] = moves
		}
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	gotJSON, _ := json.Marshal(got)
	wantJSON, _ := json.Marshal(want)
	if string(gotJSON) != string(wantJSON) {
		c.t.Errorf("the history holds %s, want %s", gotJSON, wantJSON)
	}
}
