package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// endWorld is a server with all contracts and no workers, on a PostgreSQL that workers use too.
type endWorld struct {
	*killedNodes
	db     *sql.DB
	schema string
	jobs   int // that were submitted
}

// startForEnds starts a server with some contracts.
func startForEnds(t *testing.T, contracts string) *endWorld {
	t.Helper()
	t.Parallel()
	url := pgtest.URL(t)
	w := &endWorld{killedNodes: startNodes(t, 1, nil, "--no-workers", "--set", "store="+url, "--set",
		"contracts="+contracts, "--set", "images.sizes=100", "--set", "forgerun.max_run_time=1s",
		"--set", "images.backoff_base=1ms", "--set", "fetchbox.backoff_base=1ms")}
	w.db = pgtest.DB(t, url)
	if err := w.db.QueryRow("SELECT current_schema()").Scan(&w.schema); err != nil {
		t.Fatal(err)
	}
	return w
}

// endContract is how the test uses a contract.
type endContract struct {
	name   string
	submit func(w *endWorld, name string) // makes a job that can be claimed
	claim  func(w *endWorld) claimed
	result func(w *endWorld, j claimed) string
	// What has come of the job, by its state in the admin API; "" where it is gone, and "gone"
	// where it has left a dead letter.
	completed, retried, failed string
	// verbs may end the run, or take the job from it.
	verbs map[string]func(w *endWorld, ctx context.Context, j claimed) error
}

// workerVerbs are the verbs of the worker API and of operators.
func workerVerbs(actions ...client.AdminAction) map[string]func(*endWorld, context.Context,
	claimed) error {
	verbs := map[string]func(*endWorld, context.Context, claimed) error{
		"fail": func(w *endWorld, ctx context.Context, j claimed) error {
			return w.client().WorkerAPI().Fail(ctx, j.run, client.JobFailure{Error: "no"})
		},
		"release": func(w *endWorld, ctx context.Context, j claimed) error {
			return w.client().WorkerAPI().Release(ctx, j.run)
		},
		"batch of outcomes": func(w *endWorld, ctx context.Context, j claimed) error {
			done, err := w.client().WorkerAPI().Finish(ctx, []client.RunOutcome{{RunID: j.run,
				Failure: &client.JobFailure{Error: "no"}}})
			if err != nil {
				return err
			}
			return done[0].Err
		},
	}
	for _, action := range actions {
		verbs["operator's "+string(action)] = func(w *endWorld, ctx context.Context,
			j claimed) error {
			_, err := w.admin().ActOnJob(ctx, numberOf(j), action)
			return err
		}
	}
	return verbs
}

// with adds a verb.
func with(verbs map[string]func(*endWorld, context.Context, claimed) error, name string,
	verb func(*endWorld, context.Context, claimed) error) map[string]func(*endWorld,
	context.Context, claimed) error {
	verbs[name] = verb
	return verbs
}

// numberOf returns the number of the job of a run, with which the run id begins.
func numberOf(j claimed) int64 {
	n, _ := strconv.ParseInt(j.run[:8]+j.run[9:13], 16, 64)
	return n
}

// claimRun claims a job of a contract by the worker API.
func claimRun(contract string) func(w *endWorld) claimed {
	return func(w *endWorld) (j claimed) {
		w.Helper()
		pollUntil(w.Fatalf, "a job of "+contract, func() bool {
			jobs, err := w.client().WorkerAPI().Claim(w.Context(),
				client.ClaimQuery{Contract: contract}, time.Second)
			if err != nil {
				w.Fatal(err)
			}
			if len(jobs) == 1 {
				j = claimed{contract, jobs[0].ID, jobs[0].RunID}
			}
			return len(jobs) == 1
		})
		return j
	}
}

func anyResult(*endWorld, claimed) string { return `{"n": 1.0}` }

var endContracts = []endContract{{
	name: "taskflow",
	submit: func(w *endWorld, name string) {
		w.must(errOf(w.client().TaskFlow().Submit(w.Context(),
			client.TaskFlowSpec{Name: name, Queue: "q"})))
	},
	claim: claimRun(client.ContractTaskFlow), result: anyResult,
	completed: "COMPLETED", retried: "READY", failed: "FAILED",
	verbs: with(with(workerVerbs(client.AdminActionCancel, client.AdminActionRelease,
		client.AdminActionDelete),
		"cancel", func(w *endWorld, ctx context.Context, j claimed) error {
			return errOf(w.client().TaskFlow().Cancel(ctx, j.job))
		}), "complete", func(w *endWorld, ctx context.Context, j claimed) error {
		return w.client().WorkerAPI().Complete(ctx, j.run, nil)
	}),
}, {
	name: "relay",
	submit: func(w *endWorld, name string) {
		retries := 5
		w.must(w.client().Relay().Enqueue(w.Context(), []client.RelaySpec{{Queue: "q", ID: name,
			Timeout: time.Minute, MaxRetries: &retries}}, client.RelayUnique))
	},
	claim: func(w *endWorld) claimed {
		jobs, err := w.client().Relay().Claim(w.Context(), "q", 1, time.Second)
		if err != nil || len(jobs) != 1 {
			w.Fatal(jobs, err)
		}
		return claimed{"relay", jobs[0].ID, jobs[0].RunID}
	},
	result: anyResult, completed: "", retried: "queued", failed: "gone",
	verbs: relayVerbs,
}, {
	name: "forgerun",
	submit: func(w *endWorld, _ string) {
		w.must(errOf(w.forgeClient().Submit(w.Context(),
			client.ForgeRunSpec{Type: client.ForgeRunTypeExecute})))
	},
	claim: claimRun(client.ContractForgeRun), result: anyResult,
	completed: "SUCCEEDED", retried: "FAILED", failed: "FAILED",
	verbs: workerVerbs(client.AdminActionCancel, client.AdminActionRelease),
}, {
	name: "fetchbox",
	submit: func(w *endWorld, name string) {
		manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{{ID: "r",
			URL: "http://127.0.0.1:1/"}}}.Encode()
		w.must(err)
		w.must(errOf(w.client().FetchBox().Submit(w.Context(), client.FetchBoxSpec{Type: "default",
			IdempotencyKey: name, Manifest: manifest})))
	},
	claim: claimRun(client.ContractFetchBox), result: anyResult,
	completed: "done", retried: "queued", failed: "dead",
	verbs: with(workerVerbs(client.AdminActionRelease), "complete",
		func(w *endWorld, ctx context.Context, j claimed) error {
			return w.client().WorkerAPI().Complete(ctx, j.run, nil)
		}),
}, {
	name: "images",
	submit: func(w *endWorld, _ string) {
		w.must(errOf(w.client().Images().Upload(w.Context(), client.ImageUpload{
			Body: bytes.NewReader(stripedJPEG(200, 100)), Type: "image/jpeg"})))
	},
	claim: claimRun(client.ContractImages), result: variantOf,
	completed: "completed", retried: "failed_retryable", failed: "failed",
	verbs: with(workerVerbs(client.AdminActionCancel, client.AdminActionRelease), "complete",
		func(w *endWorld, ctx context.Context, j claimed) error {
			return w.client().WorkerAPI().Complete(ctx, j.run, json.RawMessage(variantOf(w, j)))
		}),
}}

var relayVerbs = map[string]func(*endWorld, context.Context, claimed) error{
	"complete": func(w *endWorld, ctx context.Context, j claimed) error {
		return w.client().Relay().Complete(ctx, j.relayRun())
	},
	"completions": func(w *endWorld, ctx context.Context, j claimed) error {
		known, err := w.client().Relay().CompleteAll(ctx, []client.RelayRun{j.relayRun()})
		if err == nil && !known[0] {
			err = client.ErrRunLost
		}
		return err
	},
	"requeue": func(w *endWorld, ctx context.Context, j claimed) error {
		return w.client().Relay().Requeue(ctx, j.relayRun(), []client.RelaySpec{{Queue: "other",
			ID: j.job}}, client.RelayUnique)
	},
	"replace": func(w *endWorld, ctx context.Context, j claimed) error {
		return w.client().Relay().Enqueue(ctx, []client.RelaySpec{{Queue: "q", ID: j.job,
			RunAt: time.Now().Add(time.Hour)}}, client.RelayReplace)
	},
	"delete": func(w *endWorld, ctx context.Context, j claimed) error {
		return w.client().Relay().Delete(ctx, "q", j.job)
	},
	"operator's release": func(w *endWorld, ctx context.Context, j claimed) error {
		return errOf(w.admin().ActOnJob(ctx, numberOf(j), client.AdminActionRelease))
	},
	"operator's delete": func(w *endWorld, ctx context.Context, j claimed) error {
		return errOf(w.admin().ActOnJob(ctx, numberOf(j), client.AdminActionDelete))
	},
}

func (j claimed) relayRun() client.RelayRun {
	return client.RelayRun{Queue: "q", ID: j.job, RunID: j.run}
}

// variantOf makes the variant of a job of Images, and returns the result.
func variantOf(w *endWorld, j claimed) string {
	w.Helper()
	var file string
	w.must(w.db.QueryRow("SELECT owner FROM jobs WHERE seq=$1", numberOf(j)).Scan(&file))
	key := "images/" + file + "/100.jpg"
	path := filepath.Join(w.dirs[0], "objects", "millrace", filepath.FromSlash(key))
	w.must(os.WriteFile(path, []byte("variant"), 0o600))
	return fmt.Sprintf(`{"width":200,"height":100,"variants":[{"size":100,"width":100,"height":50,`+
		`"bytes":7,"key":%q}]}`, key)
}

func (w *endWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// next submits a job and claims it.
func (w *endWorld) next(c *endContract) claimed {
	w.Helper()
	w.jobs++
	c.submit(w, fmt.Sprint("job", w.jobs))
	return c.claim(w)
}

// complete records in a transaction that a run has succeeded.
func (w *endWorld) complete(tx *sql.Tx, c *endContract, j claimed) error {
	return pgtx.CompleteTx(w.Context(), pgtx.SQL(tx).InSchema(w.schema), j.run,
		json.RawMessage(c.result(w, j)))
}

// begin begins a transaction.
func (w *endWorld) begin() *sql.Tx {
	w.Helper()
	tx, err := w.db.BeginTx(w.Context(), nil)
	w.must(err)
	return tx
}

// state returns the state of the job of a run, with its failure; "" where it is gone.
func (w *endWorld) state(j claimed) string {
	w.Helper()
	detail, err := w.admin().Job(w.Context(), numberOf(j))
	if errors.Is(err, client.ErrNotFound) {
		return ""
	}
	w.must(err)
	return detail.State
}

// awaitCarriedOut waits until no recorded end is left.
func (w *endWorld) awaitCarriedOut() {
	w.Helper()
	pollUntil(w.Fatalf, "the recorded ends", func() bool {
		var n int
		w.must(w.db.QueryRow("SELECT count(*) FROM run_ends").Scan(&n))
		return n == 0
	})
}

// TestEndsOfContracts (TX-006): in every contract with workers outside, what a worker has recorded
// becomes what a request would have made of it.
func TestEndsOfContracts(t *testing.T) {
	t.Parallel()
	for _, c := range endContracts {
		t.Run(c.name, func(t *testing.T) {
			w := startForEnds(t, c.name)
			for _, tt := range []struct {
				name, want string
				end        func(tx pgtx.Tx, j claimed) error
			}{
				{"complete", c.completed, func(tx pgtx.Tx, j claimed) error {
					return pgtx.CompleteTx(t.Context(), tx, j.run, json.RawMessage(c.result(w, j)))
				}},
				{"fail", c.retried, func(tx pgtx.Tx, j claimed) error {
					return pgtx.FailTx(t.Context(), tx, j.run, errors.New("once more"), true)
				}},
				{"fail for good", c.failed, func(tx pgtx.Tx, j claimed) error {
					return pgtx.FailTx(t.Context(), tx, j.run, errors.New("never"), false)
				}},
			} {
				j := w.next(&c)
				tx := w.begin()
				w.must(tt.end(pgtx.SQL(tx).InSchema(w.schema), j))
				w.must(tx.Commit())
				w.awaitCarriedOut()
				if got := w.state(j); got != tt.want {
					t.Errorf("%s: the job is %q, want %q", tt.name, got, tt.want)
				}
				w.wantOver(j)
				if tt.want == c.retried && c.name != "forgerun" {
					w.claimAgain(&c, j)
				}
			}
			w.checkMetrics(&c)
			w.stop()
		})
	}
}

// checkMetrics checks what is counted of the ends of a contract: three, and one for each job that
// was claimed again. None waits.
func (w *endWorld) checkMetrics(c *endContract) {
	w.Helper()
	completed := 2.0
	if c.name == "forgerun" { // a failed job waits for its client
		completed = 1
	}
	outcome := func(name string) string {
		return fmt.Sprintf(`millrace_recorded_ends_total{outcome=%q,target=%q}`, name, c.name)
	}
	for name, want := range map[string]float64{
		outcome("completed"): completed, outcome("failed"): 2, outcome("refused"): 0,
		"millrace_recorded_ends_waiting":                  0,
		"millrace_recorded_ends_oldest_timestamp_seconds": 0,
	} {
		if got := w.metric("core", name); got != want {
			w.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// metric returns the value of a metric of a registry, 0 if there is none.
func (w *endWorld) metric(registry, name string) float64 {
	w.Helper()
	answer, err := http.Get(w.nodes[0].url + "/metrics/" + registry)
	w.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == name {
			value, err := strconv.ParseFloat(fields[1], 64)
			w.must(err)
			return value
		}
	}
	return 0
}

// claimAgain claims the job of a run that is to be retried, and ends it.
func (w *endWorld) claimAgain(c *endContract, j claimed) {
	w.Helper()
	if _, err := w.db.Exec("UPDATE waiting SET due_at=0 WHERE seq=$1", numberOf(j)); err != nil {
		w.Fatal(err)
	}
	again := c.claim(w)
	if again.job != j.job || again.run == j.run {
		w.Errorf("claimed %+v after %+v", again, j)
	}
	tx := w.begin()
	w.must(w.complete(tx, c, again))
	w.must(tx.Commit())
	w.awaitCarriedOut()
}

// wantOver checks that a run has ended for its worker, by HTTP and by SQL.
func (w *endWorld) wantOver(j claimed) {
	w.Helper()
	tx := w.begin()
	lost := map[string]error{"by SQL": pgtx.CompleteTx(w.Context(),
		pgtx.SQL(tx).InSchema(w.schema), j.run, nil)}
	w.must(tx.Rollback())
	if j.contract == "relay" {
		lost["heartbeat"] = w.client().Relay().Heartbeat(w.Context(), j.relayRun(), nil)
	} else {
		_, lost["heartbeat"] = w.client().WorkerAPI().Heartbeat(w.Context(), j.run, nil)
		lost["complete"] = w.client().WorkerAPI().Complete(w.Context(), j.run, nil)
	}
	for name, err := range lost {
		if !errors.Is(err, client.ErrRunLost) {
			w.Errorf("%s: got %v, want that the run is lost", name, err)
		}
	}
}

// TestEndsBesideOthers (TX-006): whatever else would end a run, or take its job, waits while the
// transaction of its worker is open. After the commit the run has succeeded; after a rollback the
// other has its way.
func TestEndsBesideOthers(t *testing.T) {
	t.Parallel()
	for _, c := range endContracts {
		t.Run(c.name, func(t *testing.T) {
			w := startForEnds(t, c.name)
			for name, verb := range c.verbs {
				j, before := w.next(&c), w.metric("relay", completedOfRelay)
				err := w.beside(&c, j, verb, true)
				w.awaitCarriedOut()
				// What names the job and no run finds it done, or makes it anew.
				ofJob := name == "replace" || strings.HasSuffix(name, "delete")
				if got := w.state(j); got != c.completed && !ofJob {
					t.Errorf("%s, committed: the job is %q, want %q; %v", name, got, c.completed, err)
				}
				// Relay does nothing for a run that is lost, and says so only where it must.
				if err == nil && !ofJob && c.name != "relay" {
					t.Errorf("%s has succeeded after the commit", name)
				}
				isGone := c.completed == "" && errors.Is(err, client.ErrNotFound)
				if err != nil && !isGone && !errors.Is(err, client.ErrConflict) &&
					!errors.Is(err, client.ErrRunLost) {
					t.Errorf("TX-006 %s: %v after the commit, want a conflict", name, err)
				}
				w.wantSucceeded(j, before)

				j = w.next(&c)
				err = w.beside(&c, j, verb, false)
				tx := w.begin()
				again := errors.Join(w.complete(tx, &c, j), tx.Commit())
				if lost := errors.Is(again, client.ErrRunLost); lost != (err == nil) {
					t.Errorf("%s, rolled back: %v; then the run: %v", name, err, again)
				}
				w.awaitCarriedOut()
				w.dropAll()
			}
			w.stop()
		})
	}
}

// beside calls a verb while the transaction that ends a run is open.
func (w *endWorld) beside(c *endContract, j claimed, verb func(*endWorld, context.Context,
	claimed) error, commits bool) error {
	w.Helper()
	tx := w.begin()
	defer tx.Rollback()
	w.must(w.complete(tx, c, j))
	var pid int
	w.must(tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
	done := make(chan error, 1)
	go func() { done <- verb(w, w.Context(), j) }()
	var err error
	returned := false
	// Ends over HTTP wait on the node, not in PostgreSQL: all that is seen of it is that they have
	// not returned for a while.
	aWhile := time.After(time.Second)
	pollUntil(w.Fatalf, "a verb to wait", func() bool {
		select {
		case err = <-done:
			returned = true
			return true
		case <-aWhile:
			return true
		default:
		}
		var n int
		w.must(w.db.QueryRow("SELECT count(*) FROM pg_stat_activity "+
			"WHERE $1 = ANY(pg_blocking_pids(pid))", pid).Scan(&n))
		return n > 0
	})
	if returned && err == nil {
		w.Errorf("it did not wait")
	}
	if commits {
		w.must(tx.Commit())
	} else {
		w.must(tx.Rollback())
	}
	if !returned {
		err = <-done
	}
	return err
}

const completedOfRelay = `relay_completed_total{queue="q"}`

// wantSucceeded checks that a run has succeeded once: by its history or, in Relay, by what the
// counter was before, and there nothing was put in the place of the job.
func (w *endWorld) wantSucceeded(j claimed, before float64) {
	w.Helper()
	if j.contract == "relay" {
		got := before
		pollUntil(func(string, ...any) {
			w.Errorf("%v jobs of Relay are completed, want %v", got, before+1)
		}, "", func() bool { // a node counts after its commit
			got = w.metric("relay", completedOfRelay)
			return got == before+1
		})
		if there, err := w.client().Relay().Exists(w.Context(), "other", j.job); there || err != nil {
			w.Errorf("the job was requeued: %v", err)
		}
		return
	}
	var kept, got int
	w.must(w.db.QueryRow("SELECT count(*) FROM events WHERE seq=$1", numberOf(j)).Scan(&kept))
	w.must(w.db.QueryRow("SELECT count(*) FROM events WHERE run_id=uuid_send($1::uuid) "+
		"AND cause='succeeded'", j.run).Scan(&got))
	if kept > 0 && got != 1 {
		w.Errorf("the run has succeeded %d times, want once", got)
	}
}

// dropAll takes all jobs that are left out of the way of the next claims.
func (w *endWorld) dropAll() {
	w.Helper()
	for _, table := range []string{"ready", "waiting"} {
		_, err := w.db.Exec("WITH gone AS (DELETE FROM " + table + " RETURNING seq) " +
			"DELETE FROM jobs USING gone WHERE jobs.seq=gone.seq")
		w.must(err)
	}
}
