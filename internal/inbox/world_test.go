package inbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// contracts are the names of all contracts.
var contracts = []string{"relay", "taskflow", "forgerun", "fetchbox", "images"}

// node is one process with Relay and TaskFlow.
type node struct {
	*inbox.Inbox
	engine  *engine.Engine
	log     *testkit.LogBuffer
	metrics *prometheus.Registry
}

// world is a PostgreSQL database with a node and a connection of producers, on a clock that only
// the test advances.
type world struct {
	testing.TB
	clock *testkit.Clock
	*node
	url string
	db  *sql.DB
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	url := pgtest.URL(tb)
	w := &world{TB: tb, clock: testkit.NewClock(), url: url, db: pgtest.DB(tb, url)}
	w.node = w.newNode(nodeConfig{})
	return w
}

// open opens the database for a node.
func (w *world) open() store.Store {
	w.Helper()
	s, err := postgres.Open(context.Background(), postgres.Config{URL: w.url, Now: w.clock.Now, Conns: 8})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { s.Close() })
	return s
}

// submitFunc submits a request, as Operator.Submit does.
type submitFunc = func(context.Context, contract.Request) (*job.Job, error)

// nodeConfig is how a node differs from one that serves Relay and TaskFlow.
type nodeConfig struct {
	store store.Store // nil opens the database
	// serves names the only contract that it serves; empty is both.
	serves string
	// relay takes the place of the submissions of Relay, which it may call.
	relay func(submitFunc) submitFunc
	// refuses is why the node must not take submissions of TaskFlow, nil for nothing.
	refuses error
}

// newNode makes another node on the database.
func (w *world) newNode(c nodeConfig) *node {
	w.Helper()
	if c.store == nil {
		c.store = w.open()
	}
	n := &node{log: &testkit.LogBuffer{}, metrics: prometheus.NewRegistry()}
	n.engine = w.newEngine(c.store)
	log := slog.New(slog.NewJSONHandler(n.log, nil))
	r, err := relay.New(relay.Config{Engine: n.engine, Log: log, Registry: prometheus.NewRegistry(),
		Settings: relay.Settings{MaxNumJobs: 1000, BodyLimit: 1 << 20, RetryableStatus: 429}})
	if err != nil {
		w.Fatal(err)
	}
	tf, err := taskflow.New(taskflow.Config{Engine: n.engine, Log: log,
		Registry: prometheus.NewRegistry(), Now: w.clock.Now, Random: testkit.RandomBytes,
		BodyLimit: 1 << 20, GraphBodyLimit: 1 << 20,
		Settings: taskflow.Settings{Lease: time.Minute, MaxConcurrent: 100_000}})
	if err != nil {
		w.Fatal(err)
	}
	var offers []*contract.Contract
	for _, o := range []*contract.Contract{r.Offer(), tf.Offer()} {
		testkit.Register(w, n.engine, o.JobTypes...)
		if c.serves == "" || c.serves == o.Name {
			offers = append(offers, o)
		}
		if o.Name == "relay" && c.relay != nil {
			o.Operators[0].Submit = c.relay(o.Operators[0].Submit)
		}
		if o.Name == "taskflow" && c.refuses != nil {
			o.Workers.Check = func() error { return c.refuses }
			o.Operators[0].Submit = func(context.Context, contract.Request) (*job.Job, error) {
				return nil, c.refuses
			}
		}
	}
	n.Inbox, err = inbox.New(inbox.Config{Engine: n.engine, Log: log, Contracts: offers,
		Known: contracts, Registry: n.metrics, Elapsed: w.clock.Monotonic,
		Retention: 168 * time.Hour})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// newSlowNode makes a node whose requests with the word slow wait until they are released.
func (w *world) newSlowNode() (n *node, release func()) {
	w.Helper()
	goOn := make(chan struct{})
	n = w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			if strings.Contains(string(r.Body), "slow") {
				<-goOn
			}
			return submit(ctx, r)
		}
	}})
	return n, sync.OnceFunc(func() { close(goOn) })
}

// newEngine makes the engine of a node. The store may be wrapped.
func (w *world) newEngine(s store.Store) *engine.Engine {
	w.Helper()
	e, err := engine.New(engine.Config{Store: s, Node: rand.Text(), Random: testkit.RandomBytes,
		Monotonic: w.clock.Monotonic,
		Inbox:     func(r store.Reader) engine.Inbox { return postgres.InboxOf(r) }})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(e.Close)
	return e
}

// run takes over all that is due.
func (n *node) run(w *world) {
	w.Helper()
	for more := true; more; {
		var err error
		if more, err = n.Step(context.Background()); err != nil {
			w.Fatal(err)
		}
	}
}

// runUntilItFails is run up to the first failure.
func (n *node) runUntilItFails() {
	var err error
	for more := true; more && err == nil; {
		more, err = n.Step(context.Background())
	}
}

// querier is a database or a transaction.
type querier interface {
	QueryRow(query string, args ...any) *sql.Row
}

// submit submits a request by SQL and returns its id.
func (w *world) submit(q querier, contract, request string, more ...any) (id string) {
	w.Helper()
	id, err := w.trySubmit(q, contract, request, more...)
	if err != nil {
		w.Fatal(err)
	}
	return id
}

// trySubmit is submit for a request of which the function may say an error. more are an idempotency
// key, an owner and a job type.
func (w *world) trySubmit(q querier, contract, request any, more ...any) (id string, err error) {
	args := append([]any{contract, request}, more...)
	for len(args) < 5 {
		args = append(args, nil)
	}
	return id, q.QueryRow("SELECT submit($1,$2,$3,$4,$5)", args...).Scan(&id)
}

// begin begins a transaction of a producer.
func (w *world) begin() *sql.Tx {
	w.Helper()
	tx, err := w.db.Begin()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// seen is what a producer sees of a request.
type seen struct{ state, contract, jobID, reason string }

// see returns what the producer sees of a request, none if it sees nothing.
func (w *world) see(id string) (s seen) {
	w.Helper()
	var jobID, reason sql.NullString
	err := w.db.QueryRow("SELECT state,contract,job_id,error FROM submissions WHERE id=$1", id).
		Scan(&s.state, &s.contract, &jobID, &reason)
	if err != nil && err != sql.ErrNoRows {
		w.Fatal(err)
	}
	s.jobID, s.reason = jobID.String, reason.String
	return s
}

// jobs returns the ids of the jobs of a contract in the order in which they were stored.
func (w *world) jobs(contract string) (ids []string) {
	w.Helper()
	found, err := w.engine.List(context.Background(), store.Filter{JobType: contract})
	if err != nil {
		w.Fatal(err)
	}
	for _, j := range found {
		ids = append(ids, j.ID.Key)
	}
	return ids
}

// request returns a request in the inbox as operators see it.
func (w *world) request(id string) *job.InboxRequest {
	w.Helper()
	r, err := w.engine.InboxRequest(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return r
}
