package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// TestKilledCompletions (TX-006): workers claim jobs over HTTP, change a table of their own and end
// their runs in one transaction, while the two nodes are killed ten times. Some roll back, some
// fail their runs, some stall until their lease has ended, before or after they have recorded the
// end, and some until they have lost the run. The rows of the table and the runs that have ended
// agree exactly, and a run that was lost has committed nothing. A test that meets none of these
// dangers fails: the first claims of each contract meet all of them.
func TestKilledCompletions(t *testing.T) {
	t.Parallel()
	jobs, _ := testkit.Size(t, "MILLRACE_TEST_COMPLETIONS", 150) // of each contract
	w := &completionTest{killedNodes: startNodes(t, 2, nil, "--set", "contracts=relay,taskflow",
		"--set", "taskflow.lease=2s", "--set", "taskflow.max_concurrent=1000"), jobs: jobs}
	w.db = pgtest.DB(t, w.store)
	w.db.SetMaxOpenConns(24)
	w.mustExec("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)")
	w.mustExec("INSERT INTO accounts SELECT n, 0 FROM generate_series(0,9) n")
	w.mustExec("CREATE TABLE ledger (contract text, job text, run uuid, outcome text)")
	if err := w.db.QueryRow("SELECT current_schema()").Scan(&w.schema); err != nil {
		t.Fatal(err)
	}
	w.submitAll()
	w.workUnderKills()
	w.checkLedger()
	w.stop()
}

// completionTest is the state of TestKilledCompletions.
type completionTest struct {
	*killedNodes
	db     *sql.DB
	schema string
	jobs   int // of each contract

	completed  atomic.Int64 // transactions that have completed a run
	counts     [finishModes]atomic.Int64
	rolledBack atomic.Int64
	lost       atomic.Int64 // runs that could not commit, as they were lost
	repeated   atomic.Int64 // second completions, which were refused

	relayClaims, taskClaims atomic.Int64
}

func (w *completionTest) mustExec(statement string) {
	w.Helper()
	if _, err := w.db.Exec(statement); err != nil {
		w.Fatalf("%s: %v", statement, err)
	}
}

func (w *completionTest) submitAll() {
	for from := 0; from < w.jobs; from += 500 {
		var specs []client.RelaySpec
		g := &client.TaskFlowGraphBuilder{}
		for i := from; i < min(w.jobs, from+500); i++ {
			name := fmt.Sprint(i)
			specs = append(specs, client.RelaySpec{Queue: "q", ID: name, Timeout: 2 * time.Second})
			g.Add(name, client.TaskFlowSpec{Name: name, Queue: "q",
				Retry: client.TaskFlowRetryPolicy{
					MaxAttempts: 10, Strategy: client.TaskFlowBackoffFixed,
					BaseDelay: time.Second}})
		}
		if err := w.client().Relay().Enqueue(w.Context(), specs, client.RelayUnique); err != nil {
			w.Fatal(err)
		}
		if _, err := w.client().TaskFlow().SubmitGraph(w.Context(), g); err != nil {
			w.Fatal(err)
		}
	}
}

// workUnderKills runs workers until no job is left, and kills nodes meanwhile.
func (w *completionTest) workUnderKills() {
	const workers, kills = 8, 10
	ctx, cancel := context.WithTimeout(w.Context(), max(4*testTimeout,
		time.Duration(w.jobs)*50*time.Millisecond))
	defer cancel()
	var working sync.WaitGroup
	for i := range workers {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		working.Go(func() { w.work(ctx, w.clients[i%2], rnd) })
	}
	for i := range kills {
		w.await(ctx, int64((i+1)*2*w.jobs/(kills+2)))
		w.kill(i)
	}
	working.Wait()
	if ctx.Err() != nil {
		w.Fatalf("%d runs were completed: %v", w.completed.Load(), ctx.Err())
	}
	dangers := map[string]int64{"transactions that were rolled back": w.rolledBack.Load(),
		"runs that were lost (MILLRACE_RUN_LOST)": w.lost.Load(),
		"completions that were refused as second": w.repeated.Load()}
	for i := range w.counts {
		dangers[finishMode(i).String()] = w.counts[i].Load()
	}
	for what, n := range dangers {
		if w.Logf("%s: %d", what, n); n == 0 {
			w.Errorf("the test has not met its danger: %s: 0", what)
		}
	}
}

// await waits until n runs are completed.
func (w *completionTest) await(ctx context.Context, n int64) {
	pollWithin(time.Hour, w.Fatalf, "completions", func() bool {
		return w.completed.Load() >= n || ctx.Err() != nil
	})
}

// claimed is a run of a job of either contract.
type claimed struct{ contract, job, run string }

// work claims jobs and ends their runs until there are none, not even in other hands.
func (w *completionTest) work(ctx context.Context, c *client.Client, rnd *rand.Rand) {
	for ctx.Err() == nil {
		jobs, err := claimBoth(ctx, c)
		if err != nil { // the node was killed; what it has claimed comes again after its lease
			clock.Sleep(ctx, unreachablePause)
			continue
		}
		for _, j := range jobs {
			w.end(ctx, j, w.finishModeOf(j, rnd))
		}
		if len(jobs) > 0 {
			continue
		}
		var open int
		err = w.db.QueryRow(`SELECT (SELECT count(*) FROM ready)+(SELECT count(*) FROM waiting)+
			(SELECT count(*) FROM leases)`).Scan(&open)
		if err != nil {
			w.Error(err)
			return
		}
		if open == 0 {
			return
		}
		clock.Sleep(ctx, unreachablePause) // others have what is left
	}
}

func claimBoth(ctx context.Context, c *client.Client) (all []claimed, err error) {
	jobs, err := c.WorkerAPI().Claim(ctx, client.ClaimQuery{Contract: client.ContractTaskFlow,
		Max: 4}, 0)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		all = append(all, claimed{"taskflow", j.ID, j.RunID})
	}
	entries, err := c.Relay().Claim(ctx, "q", 4, 0)
	for _, j := range entries {
		all = append(all, claimed{"relay", j.ID, j.RunID})
	}
	if len(all) > 0 {
		err = nil
	}
	return all, err
}

// finishMode is what a worker does with a run.
type finishMode int

const (
	commits finishMode = iota
	rollsBackFirst
	fails
	stallsBefore // records the end when the lease has ended
	stallsOpen   // stalls with the end recorded and the transaction open
	losesRun     // stalls until the run is lost, and must not commit
	endsTwice    // completes over HTTP what it has completed by SQL
	finishModes
)

var finishModeNames = [finishModes]string{"commits", "rolls back first", "fails",
	"stalls before it records the end", "stalls after it has recorded the end",
	"stalls until the run is lost", "ends twice"}

// finishModeOf returns one of the modes for a run: for the first ones of each contract one after
// another, and then some. Most commit at once, as a stall takes as long as a lease.
func (w *completionTest) finishModeOf(j claimed, rnd *rand.Rand) finishMode {
	claims := &w.relayClaims
	if j.contract == "taskflow" {
		claims = &w.taskClaims
	}
	if n := claims.Add(1); n <= int64(finishModes) {
		return finishMode(n - 1)
	}
	switch n := rnd.IntN(100); {
	case n < 1:
		return losesRun
	case n < 3:
		return stallsBefore
	case n < 6:
		return stallsOpen
	case n < 16:
		return fails
	case n < 26:
		return rollsBackFirst
	case n < 36:
		return endsTwice
	}
	return commits
}

func (m finishMode) String() string { return finishModeNames[m] }

// end ends a run in one of the modes. A run that was lost is left alone.
func (w *completionTest) end(ctx context.Context, j claimed, how finishMode) {
	w.counts[how].Add(1)
	var err error
	switch how {
	case rollsBackFirst:
		if err = w.transaction(ctx, j, "completed", sleepNever, true); err == nil {
			w.rolledBack.Add(1)
			err = w.transaction(ctx, j, "completed", sleepNever, false)
		}
	case fails:
		err = w.transaction(ctx, j, "failed", sleepNever, false)
	case stallsBefore:
		w.awaitLeaseEnd(ctx, j)
		err = w.transaction(ctx, j, "completed", sleepNever, false)
	case losesRun:
		awaitLost(ctx, w.T, w.db, j.run)
		err = w.transaction(ctx, j, "completed", sleepNever, false)
	case stallsOpen:
		err = w.transaction(ctx, j, "completed", func() { w.awaitLeaseEnd(ctx, j) }, false)
	default:
		err = w.transaction(ctx, j, "completed", sleepNever, false)
	}
	switch {
	case errors.Is(err, pgtx.ErrRunLost):
		w.lost.Add(1)
	case (err != nil || how == losesRun) && ctx.Err() == nil:
		w.Errorf("TX-006 %s: %v", how, err)
	case how == endsTwice && j.contract == "taskflow" && err == nil:
		again := w.client().WorkerAPI().Complete(ctx, j.run, nil)
		w.repeated.Add(1)
		if !errors.Is(again, client.ErrRunLost) && ctx.Err() == nil {
			w.Errorf("a second completion over HTTP: got %v, want that the run is lost", again)
		}
	}
}

func sleepNever() {}

// transaction changes the tables of the test and ends a run. stall is called before the end of the
// transaction.
func (w *completionTest) transaction(ctx context.Context, j claimed, outcome string, stall func(),
	rollsBack bool) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES ($1,$2,$3,$4)", j.contract, j.job,
		j.run, outcome); err != nil {
		return err
	}
	in := pgtx.SQL(tx).InSchema(w.schema)
	if outcome == "failed" {
		err = pgtx.FailTx(ctx, in, j.run, errors.New("once more"), true)
	} else {
		err = pgtx.CompleteTx(ctx, in, j.run, json.RawMessage(`{"by": "sql"}`))
	}
	if err != nil {
		return err
	}
	stall()
	if rollsBack {
		return tx.Rollback()
	}
	if outcome == "failed" {
		return tx.Commit()
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance=balance+1 WHERE id=$1",
		rand.IntN(10)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.completed.Add(1)
	return nil
}

// awaitLeaseEnd waits until the lease of a run has ended: a node may expire it from then on.
func (w *completionTest) awaitLeaseEnd(ctx context.Context, j claimed) {
	const valid = `SELECT count(*) FROM leases WHERE run_id=uuid_send($1::uuid)
		AND lease_until>=date_part('epoch',clock_timestamp())*1000000`
	pollWithin(testTimeout, w.Fatalf, "the end of a lease", func() bool {
		var n int
		err := w.db.QueryRowContext(ctx, valid, j.run).Scan(&n)
		return err != nil || n == 0
	})
}

// checkLedger compares the tables of the test with what has become of the jobs.
func (w *completionTest) checkLedger() {
	w.Helper()
	count := func(what string, want int, query string) {
		w.Helper()
		var got int
		if err := w.db.QueryRow(query).Scan(&got); err != nil || got != want {
			w.Errorf("TX-006 %s: %d, want %d: %v", what, got, want, err)
		}
	}
	// The history of TaskFlow has each run that has ended, and how.
	const ended = `SELECT e.run_id AS run, CASE e.cause WHEN 'succeeded' THEN 'completed'
		ELSE e.cause END AS outcome FROM events AS e WHERE e.cause IN ('succeeded','failed')`
	const entries = `SELECT uuid_send(run), outcome FROM ledger WHERE contract='taskflow'`
	count("runs that have ended without a row", 0,
		"SELECT count(*) FROM ("+ended+" EXCEPT ALL "+entries+") AS d")
	count("rows without a run that has ended", 0,
		"SELECT count(*) FROM ("+entries+" EXCEPT ALL "+ended+") AS d")
	count("rows of runs that were lost", 0, `SELECT count(*) FROM ledger JOIN events AS e
		ON e.run_id=uuid_send(run) AND e.cause IN ('expired','expired_for_good')`)
	count("jobs of TaskFlow that are completed", w.jobs,
		"SELECT count(*) FROM finished WHERE state='COMPLETED'")
	count("jobs that are left besides", 0, "SELECT (SELECT count(*) FROM jobs)-"+
		"(SELECT count(*) FROM finished WHERE state='COMPLETED')")
	count("jobs with a row of their completion", 2*w.jobs,
		"SELECT count(DISTINCT (contract,job)) FROM ledger WHERE outcome='completed'")
	count("rows of completions", 2*w.jobs, "SELECT count(*) FROM ledger WHERE outcome='completed'")
	count("the sum of the accounts", 2*w.jobs, "SELECT sum(balance) FROM accounts")
	count("recorded ends that wait", 0, "SELECT count(*) FROM run_ends")
}
