package main

import (
	"bytes"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 0, "seed of the crash test; 0 draws one")
	crashKills = flag.Int("crash.kills", 0,
		"kills of the crash test; 0 is 30 (12 on PostgreSQL), or 6 with -short")
)

// TestCrash kills the real binary with SIGKILL right after an acknowledgement, again and again, and
// holds what is there after each restart against a ledger kept outside: no acknowledged job is lost
// (RL-034), none is claimed or done twice, requests that were cut off happened as a whole or not
// at all, and runs claimed before the kill go on.
func TestCrash(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	t.Run("kills", func(t *testing.T) {
		t.Parallel()
		c := &crashTest{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "data")}
		c.repeatKills(30)
	})
	t.Run("kills on postgres", func(t *testing.T) {
		t.Parallel()
		url, name := pgtest.URL(t), rand.Text()
		db := pgtest.DB(t, url)
		c := &crashTest{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "data"),
			settings: []string{"--set", "store=" + url + "&application_name=" + name}}
		c.awaitSessionsEnded = func() { awaitNoSessions(t, db, name) }
		c.repeatKills(12)
	})
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		c := &crashTest{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "data")}
		c.checkLeaseExpires()
	})
}

// awaitNoSessions waits until the database has ended what a killed process began: a commit that was
// sent is carried out although nobody reads the answer.
func awaitNoSessions(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	pollUntil(t.Fatalf, "the sessions of a killed process to end", func() bool {
		n := -1
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1",
			name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

func (c *crashTest) repeatKills(kills int) {
	t, seed := c.t, *crashSeed
	if seed == 0 {
		seed = mathrand.Uint64()
	}
	if testing.Short() {
		kills = 6
	}
	if *crashKills > 0 {
		kills = *crashKills
	}
	defer func() {
		if t.Failed() {
			t.Logf("again with: go test ./cmd/millrace -run TestCrash -crash.seed=%d "+
				"-crash.kills=%d", seed, kills)
		}
	}()
	c.ledger, c.random = newLedger(), mathrand.New(mathrand.NewPCG(seed, 1))
	for round := range kills {
		c.start()
		c.audit()
		c.continueRuns()
		c.loadUntilKilled(round)
		if t.Failed() {
			return
		}
	}
	c.start()
	c.audit()
	c.drain()
	if err := c.server.terminate(); err != nil {
		t.Error(err)
	}
	t.Logf("%d kills, %d acknowledgements, %d jobs", kills, c.ledger.acks, c.ledger.made)
}

// checkLeaseExpires: a lease that was running when the process was killed ends in its time; its run
// is dead then (RL-085, RL-091).
func (c *crashTest) checkLeaseExpires() {
	t := c.t
	c.start()
	if !c.request(http.MethodPost, "/v2/queues/jobs",
		`[{"queue":"q","id":"j","timeout":1,"max_retries":5,"payload":1}]`, 202, nil) {
		t.Fatal("not stored")
	}
	var first, second []wireJob
	c.request(http.MethodGet, "/v2/queues/q/jobs", "", 200, &first)
	c.server.kill()
	c.start()
	c.request(http.MethodGet, "/v2/queues/q/jobs", "", 200, &second) // waits for it
	if len(first) != 1 || len(second) != 1 || first[0].RunID == second[0].RunID ||
		*second[0].Left != 4 {
		t.Fatalf("before the kill %+v, after it %+v", first, second)
	}
	for run, want := range map[string]int{first[0].RunID: 404, second[0].RunID: 202} {
		if !c.request(http.MethodPatch, "/v2/queues/q/jobs/j/run-id/"+run, "", want, nil) {
			t.Errorf("heartbeat of run %s failed", run)
		}
	}
	if err := c.server.terminate(); err != nil {
		t.Error(err)
	}
}

// crashTest is a server that is killed, and what was agreed with it.
type crashTest struct {
	t        *testing.T
	binary   string
	dir      string
	settings []string
	// waits until nothing of a killed process is left; nil where nothing can be
	awaitSessionsEnded func()

	ledger *ledger
	random *mathrand.Rand
	server *launchedServer
	http   *http.Client
}

// wireJob is a job in an answer, as far as the test cares.
type wireJob struct {
	ID    string
	RunID string
	State json.RawMessage
	Left  *int
}

func (w *wireJob) UnmarshalJSON(b []byte) error {
	var raw struct {
		ID    string          `json:"id"`
		RunID *string         `json:"run_id"`
		State json.RawMessage `json:"state"`
		Left  *int            `json:"retries_remaining"`
	}
	err := json.Unmarshal(b, &raw)
	w.ID, w.Left = raw.ID, raw.Left
	if raw.RunID != nil {
		w.RunID = *raw.RunID
	}
	if string(raw.State) != "null" {
		w.State = raw.State
	}
	return err
}

func (c *crashTest) start() {
	c.t.Helper()
	if c.awaitSessionsEnded != nil {
		c.awaitSessionsEnded()
	}
	s, err := launch(c.binary, c.dir, nil, append(c.settings, "--set", "log.level=warn")...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = s
	c.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: testTimeout}
	c.t.Cleanup(s.kill)
}

// request makes a request. False is a request that was cut off; any answer but the wanted one is a
// failure.
func (c *crashTest) request(method, path, body string, want int, into any) bool {
	status, ok := c.tryRequest(method, path, body, into)
	if ok && status != want {
		c.t.Errorf("%s %s: status %d, want %d", method, path, status, want)
	}
	return ok
}

func (c *crashTest) tryRequest(method, path, body string, into any) (status int, ok bool) {
	req, err := http.NewRequest(method, c.server.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, false
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodGet {
		req.Header.Set("Prefer", "wait=10")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, false
	}
	if into != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			c.t.Errorf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return resp.StatusCode, true
}

const crashQueue = "/v2/queues/crash/jobs"

func runPath(j *ledgerJob) string { return crashQueue + "/" + j.id + "/run-id/" + j.run }

func jobsBody(ids []string) string {
	jobs := make([]string, len(ids))
	for i, id := range ids {
		jobs[i] = fmt.Sprintf(`{"queue":"crash","id":%q,"timeout":3600,"payload":{"of":%q}}`, id, id)
	}
	return "[" + strings.Join(jobs, ",") + "]"
}

// audit reads every job that should be there, some that should not, and decides what was in doubt.
func (c *crashTest) audit() {
	c.t.Helper()
	found := map[string]*wireJob{}
	var mu sync.Mutex
	var known []string
	for _, id := range c.ledger.order {
		// what is gone is looked at now and then
		if c.ledger.jobs[id].status != statusGone || c.random.IntN(20) == 0 {
			known = append(known, id)
		}
	}
	c.inParallel(known, func(id string) {
		w := &wireJob{}
		status, ok := c.tryRequest(http.MethodGet, crashQueue+"/"+id, "", w)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ok && status == http.StatusOK:
			found[id] = w
		case !ok || status != http.StatusNotFound:
			c.t.Errorf("reading %s: status %d", id, status)
		}
	})
	c.ledger.resolve(found)
	c.ledger.compare(found)
	c.report()
}

func (c *crashTest) report() {
	c.t.Helper()
	for _, p := range c.ledger.problems {
		c.t.Error(p)
	}
	if len(c.ledger.problems) > 0 {
		c.t.Fatalf("the books do not agree after %d acknowledgements", c.ledger.acks)
	}
}

// inParallel does something for each id, eight at a time.
func (c *crashTest) inParallel(ids []string, fn func(id string)) {
	work := make(chan string)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for id := range work {
				fn(id)
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	all.Wait()
}

// continueRuns uses runs that were claimed before the kill: each sends heartbeats, and some are
// completed.
func (c *crashTest) continueRuns() {
	c.t.Helper()
	c.inParallel(idsOf(c.ledger.withStatus(statusClaimed)), func(id string) {
		j := c.ledger.jobs[id]
		if !c.request(http.MethodPatch, runPath(j), "", http.StatusAccepted, nil) {
			c.t.Errorf("heartbeat of %s was not answered", id)
		}
	})
	claimed := c.ledger.withStatus(statusClaimed)
	for _, j := range claimed[:len(claimed)*3/4] {
		j.status = statusFinishing
		c.ledger.recordEnd("complete", j, nil,
			c.request(http.MethodDelete, runPath(j), "", http.StatusOK, nil))
	}
}

func idsOf(jobs []*ledgerJob) []string {
	all := make([]string, len(jobs))
	for i, j := range jobs {
		all[i] = j.id
	}
	return all
}

// loadUntilKilled has a crowd of clients do everything at once until the server is killed under
// them.
func (c *crashTest) loadUntilKilled(round int) {
	l := c.ledger
	l.mu.Lock()
	l.kill = func() { _ = c.server.cmd.Process.Kill() }
	l.killAt = l.acks + 1 + c.random.IntN(150)
	l.mu.Unlock()
	var all sync.WaitGroup
	for client := range 12 {
		r := mathrand.New(mathrand.NewPCG(c.random.Uint64(), uint64(round*100+client)))
		all.Go(func() {
			for c.sendRandomRequest(r) && !c.t.Failed() {
			}
		})
	}
	all.Wait()
	c.server.kill()
	c.http.CloseIdleConnections()
}

// sendRandomRequest does one thing; false when the server is gone.
func (c *crashTest) sendRandomRequest(r *mathrand.Rand) bool {
	l := c.ledger
	switch n := r.IntN(100); {
	case n < 30 && l.count(statusQueued) < 200:
		fresh := l.newIDs(1 + r.IntN(8))
		ok := c.request(http.MethodPost, "/v2/queues/jobs", jobsBody(fresh), http.StatusAccepted,
			nil)
		l.recordEnqueued(fresh, ok)
		return ok
	case n < 60:
		return c.next(1 + r.IntN(8))
	case n < 75:
		if j := l.pick(r, statusFinishing); j != nil {
			state := fmt.Sprintf(`{"heartbeat": %d}`, r.IntN(1000))
			ok := c.request(http.MethodPatch, runPath(j), state, http.StatusAccepted, nil)
			l.recordHeartbeats([]*ledgerJob{j}, state, ok)
			return ok
		}
	case n < 79:
		some := l.pickSome(r, 1+r.IntN(8), statusFinishing)
		state := fmt.Sprintf(`{"heartbeats": %d}`, r.IntN(1000))
		ok := c.sendRuns("/v2/queues/heartbeats", some, state)
		l.recordHeartbeats(some, state, ok)
		return ok
	case n < 85:
		some := l.pickSome(r, 1+r.IntN(8), statusFinishing)
		ok := c.sendRuns("/v2/queues/completions", some, "null")
		l.recordEnds("complete", some, nil, ok)
		return ok
	case n < 92:
		if j := l.pick(r, statusFinishing); j != nil {
			fresh := l.newIDs(r.IntN(3))
			ok := c.request(http.MethodPut, runPath(j), requeueBody(fresh), http.StatusAccepted,
				nil)
			l.recordEnd("requeue", j, fresh, ok)
			return ok
		}
	default:
		if j := l.pick(r, statusFinishing); j != nil {
			ok := c.request(http.MethodDelete, runPath(j), "", http.StatusOK, nil)
			l.recordEnd("complete", j, nil, ok)
			return ok
		}
	}
	return true
}

// sendRuns sends the current runs of jobs in one request, all of which the server must know. False
// is a request that was cut off.
func (c *crashTest) sendRuns(path string, jobs []*ledgerJob, state string) bool {
	var b bytes.Buffer
	for _, j := range jobs {
		fmt.Fprintf(&b, `,{"queue":"crash","id":%q,"run_id":%q,"state":%s}`, j.id, j.run, state)
	}
	body := "[" + strings.TrimPrefix(b.String(), ",") + "]"
	var answers []struct {
		RunID string `json:"run_id"`
		Known bool
	}
	if !c.request(http.MethodPost, path, body, http.StatusOK, &answers) {
		return false
	}
	if len(answers) != len(jobs) {
		c.t.Errorf("%s of %d runs: %d answers", path, len(jobs), len(answers))
		return true
	}
	for i, a := range answers {
		if a.RunID != jobs[i].run || !a.Known {
			c.t.Errorf("%s of run %s of %s: got %+v", path, jobs[i].run, jobs[i].id, a)
		}
	}
	return true
}

func requeueBody(ids []string) string {
	if len(ids) == 0 {
		return "[]"
	}
	return jobsBody(ids)
}

func (c *crashTest) next(n int) bool {
	var jobs []wireJob
	status, ok := c.poll(n, &jobs)
	switch {
	case !ok:
		c.ledger.recordLostAnswer(n)
	case status == http.StatusOK:
		c.ledger.recordClaimed(jobs)
	case status != http.StatusNoContent:
		c.t.Errorf("next: status %d", status)
	}
	return ok
}

// poll asks for jobs without waiting for them.
func (c *crashTest) poll(n int, jobs *[]wireJob) (status int, ok bool) {
	resp, err := c.http.Get(fmt.Sprintf("%s%s?num_jobs=%d", c.server.url, crashQueue, n))
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, jobs)
	}
	return resp.StatusCode, err == nil
}

// drain takes out all that is left: each acknowledged job once, and then nothing.
func (c *crashTest) drain() {
	c.t.Helper()
	left := c.ledger.count(statusQueued)
	for {
		var jobs []wireJob
		status, ok := c.poll(100, &jobs)
		if !ok || status != http.StatusOK {
			if status != http.StatusNoContent {
				c.t.Fatalf("next: status %d", status)
			}
			break
		}
		c.ledger.recordClaimed(jobs)
		left -= len(jobs)
	}
	c.report()
	if left != 0 || c.ledger.count(statusQueued) != 0 {
		c.t.Errorf("%d acknowledged jobs were not claimed", left)
	}
	for _, j := range c.ledger.withStatus(statusClaimed) {
		j.status = statusFinishing
		c.ledger.recordEnd("complete", j, nil,
			c.request(http.MethodDelete, runPath(j), "", http.StatusOK, nil))
	}
	c.inParallel(c.ledger.order, func(id string) {
		c.request(http.MethodHead, crashQueue+"/"+id, "", http.StatusNotFound, nil)
	})
	c.request(http.MethodGet, "/health/ready", "", http.StatusOK, nil)
}
