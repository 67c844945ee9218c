package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/job"
)

// TX-002: a node that has enough to do gives back what it has taken beside that, and another node
// submits it within the lease.
func TestBusyNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	busy, release := w.newSlowNode()
	defer release()
	const slowOnes = inbox.MaxRunningRequests / inbox.MaxRequests
	for i := range slowOnes {
		_, err := w.db.Exec(`SELECT submit('relay', format($1, $2 || n)::json)
			FROM generate_series(1, $3) AS n`, relayJob, fmt.Sprintf("slow-%d-", i), inbox.MaxRequests)
		w.must(err)
	}
	w.submit(w.db, "relay", fmt.Sprintf(relayJob, "quick"))
	for range slowOnes + 2 {
		_, err := busy.Step(context.Background())
		w.must(err)
	}
	w.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"quick"}) {
		t.Errorf("TX-002 beside a busy node the jobs are %v", got)
	}
	release()
	busy.run(w)
	var submitted int
	w.must(w.db.QueryRow("SELECT count(*) FROM inbox WHERE state='submitted'").Scan(&submitted))
	if submitted != slowOnes*inbox.MaxRequests+1 {
		t.Errorf("TX-002 %d requests are submitted", submitted)
	}
}

// TX-003: what has become of the first requests of a transaction that takes long is stored before
// the last of them are submitted.
func TestRefusalInALongTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused string
	n := w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			switch body := string(r.Body); {
			case strings.Contains(body, "slow"):
				w.clock.Advance(5 * time.Second)
			case strings.Contains(body, "last"):
				if s := w.see(refused); s.state != "refused" {
					t.Errorf("TX-003 the refused request is %+v", s)
				}
			}
			return submit(ctx, r)
		}
	}})
	tx := w.begin()
	refused = w.submit(tx, "relay", "{}")
	for _, name := range []string{"slow", "last"} {
		w.submit(tx, "relay", fmt.Sprintf(relayJob, name))
	}
	w.must(tx.Commit())
	n.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"slow", "last"}) {
		t.Errorf("TX-002 the jobs are %v", got)
	}
}

// TX-002: a request with a key of its contract that a job has does not make those of other
// transactions have transactions of their own in the store.
func TestRepeatedKeyAmongOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var n *node
	var stored atomic.Int64
	once := engine.Idempotency{Window: time.Minute, Alias: job.AliasOf("relay", "", "key")}
	submit := func(ctx context.Context, name string, once engine.Idempotency) (*job.Job, error) {
		made, err := n.engine.SubmitOnce(ctx, once, []engine.Submission{{
			Job: job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: name}, Queue: "q",
				Lease: time.Minute, Payload: []byte("{}")}}})
		return made.Job, err
	}
	n = w.newNode(nodeConfig{
		store: &updates{w.open(), func(update func() error) error {
			stored.Add(1)
			return update()
		}},
		relay: func(submitFunc) submitFunc {
			return func(ctx context.Context, r contract.Request) (*job.Job, error) {
				var spec struct{ ID string }
				if err := json.Unmarshal(r.Body, &spec); err != nil {
					return nil, err
				}
				if spec.ID == "again" {
					return submit(ctx, spec.ID, once)
				}
				return submit(ctx, spec.ID, engine.Idempotency{})
			}
		}})
	_, err := submit(context.Background(), "first", once)
	w.must(err)
	const others = 100
	var again string
	for i := range others {
		if i == others/2 {
			again = w.submit(w.db, "relay", fmt.Sprintf(relayJob, "again"))
		}
		w.submit(w.db, "relay", fmt.Sprintf(relayJob, fmt.Sprint(i)))
	}
	stored.Store(0)
	n.run(w)
	if got := len(w.jobs("relay")); got != others+1 {
		t.Errorf("TX-002 there are %d jobs", got)
	}
	if s := w.see(again); s.state != "submitted" || s.jobID != "first" {
		t.Errorf("TX-002 the repeated request is %+v", s)
	}
	if got := stored.Load(); got > others/4 {
		t.Errorf("TX-002 %d requests took %d transactions", others+1, got)
	}
}
