package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// databaseTest is the state of TestKilledDatabase.
type databaseTest struct {
	*testing.T
	server *outside.PostgresServer
	db     *sql.DB // of the checks
	lossy  *sql.DB // of producers and workers, with answers to COMMIT that are lost
	orders int

	repeated, dropped atomic.Int64 // orders and runs that had committed by a lost answer
	rolledBack        atomic.Int64 // transactions of orders
}

// TestKilledDatabase (TX-001, TX-006): producers submit and workers end runs in transactions of
// their own, while PostgreSQL is killed and every twentieth answer to a COMMIT is lost. They do
// what docs/transactions.md advises: whoever does not know whether a transaction has committed
// runs it again, with the same keys or run. Orders, requests and ended runs agree exactly, and the
// two requests of an order have got their jobs in order. A test that meets none of this fails.
func TestKilledDatabase(t *testing.T) {
	t.Parallel()
	orders, _ := testkit.Size(t, "MILLRACE_TEST_DATABASE_ORDERS", 200)
	kills, _ := testkit.Size(t, "MILLRACE_TEST_DATABASE_KILLS", 3)
	w := &databaseTest{T: t, orders: orders, server: outside.NewPostgres(t)}
	store := w.server.Database("shop")
	w.db = pgtest.DB(t, store)
	dir := t.TempDir()
	mustWriteFile(t, dir, "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
	var nodes []*launchedServer
	for i := range 2 {
		nodes = append(nodes, launchIn(t, filepath.Join(dir, fmt.Sprint("node", i)), "--set",
			"log.level=error", "--set", "contracts=relay", "--set", "store="+store, "--set",
			"secrets.pepper_file="+filepath.Join(dir, "pepper")))
	}
	proxy := newLossyProxy(t, store, 20)
	w.lossy = pgtest.DB(t, proxy.url)
	w.lossy.SetMaxOpenConns(24)
	for _, table := range []string{
		"orders (id int PRIMARY KEY, request uuid NOT NULL, second uuid NOT NULL)",
		"done (job text NOT NULL, run uuid NOT NULL)"} {
		if _, err := w.db.Exec("CREATE TABLE " + table); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*testTimeout+
		time.Duration(orders)*100*time.Millisecond)
	defer stop()
	w.runUnderKills(ctx, stop, nodes, kills)
	if ctx.Err() != context.Canceled {
		t.Fatalf("%d of %d jobs are done: %v", w.count("SELECT count(*) FROM done"),
			2*w.committed(),
			ctx.Err())
	}
	w.check()
	t.Logf("%d answers were lost: %d orders and %d runs had committed", proxy.lost.Load(),
		w.repeated.Load(), w.dropped.Load())
	for what, n := range map[string]*atomic.Int64{"an answer to a COMMIT was lost": &proxy.lost,
		"an order was repeated": &w.repeated, "a run was dropped (MILLRACE_RUN_LOST)": &w.dropped,
		"an order was rolled back": &w.rolledBack} {
		if n.Load() == 0 {
			t.Errorf("the test has not met its danger: %s: never", what)
		}
	}
	for _, n := range nodes {
		if err := n.terminate(); err != nil {
			t.Error(err)
		}
	}
}

// committed is how many orders commit: each third one is rolled back.
func (w *databaseTest) committed() int { return w.orders - (w.orders+2)/3 }

// runUnderKills runs producers and workers until all is done, and kills the database meanwhile.
func (w *databaseTest) runUnderKills(ctx context.Context, stop func(), nodes []*launchedServer,
	kills int) {
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	numbers := make(chan int)
	for i := range 8 {
		c, err := client.New(client.Config{BaseURL: nodes[i%2].url,
			Retry: client.Retry{MaxTries: -1}})
		if err != nil {
			w.Fatal(err)
		}
		running.Go(func() { w.work(ctx, c.Relay()) })
		running.Go(func() {
			for number := range numbers {
				w.until(ctx, "an order", func() bool { return w.produce(ctx, number) })
			}
		})
	}
	running.Go(func() {
		defer close(numbers)
		for i := range w.orders {
			numbers <- i
		}
	})
	done := func() int { return w.count("SELECT count(*) FROM done") }
	for i := range kills {
		w.until(ctx, "runs to end", func() bool {
			return done() >= (i+1)*2*w.committed()/(kills+1)
		})
		w.server.Kill()
		w.server.Start()
	}
	w.until(ctx, "all to be done", func() bool {
		return done() >= 2*w.committed() && w.count(`SELECT (SELECT count(*) FROM jobs)+
			(SELECT count(*) FROM run_ends)+(SELECT count(*) FROM inbox_transactions)`) == 0
	})
}

// until repeats a step until it reports true, or ctx ends.
func (w *databaseTest) until(ctx context.Context, what string, step func() bool) {
	pollWithin(time.Hour, w.Errorf, what, func() bool { return ctx.Err() != nil || step() })
}

// count returns the number that a query has, -1 while the database is unavailable.
func (w *databaseTest) count(query string) (n int) {
	if err := w.db.QueryRow(query).Scan(&n); err != nil {
		return -1
	}
	return n
}

// produce runs the transaction of an order, and reports whether that is done: an order that is
// there already has committed before, and its answer was lost.
func (w *databaseTest) produce(ctx context.Context, number int) (isDone bool) {
	tx, err := w.lossy.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	defer tx.Rollback()
	var ids [2]string
	for i, job := range []string{fmt.Sprint(number), fmt.Sprint(number, "-second")} {
		request, err := json.Marshal(map[string]any{"queue": "q", "id": job, "timeout": 2,
			"payload": number})
		if err != nil {
			w.Error(err)
			return true
		}
		ids[i], err = pgtx.SubmitTx(ctx, pgtx.SQL(tx), pgtx.Submission{Contract: "relay",
			Request: request, IdempotencyKey: "order-" + job})
		if err != nil {
			return false
		}
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1,$2,$3)", number, ids[0], ids[1])
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
		w.repeated.Add(1)
		return true
	}
	switch {
	case err != nil:
		return false
	case number%3 == 0:
		w.rolledBack.Add(1)
		return true
	}
	return tx.Commit() == nil
}

// work claims jobs and ends their runs until ctx ends.
func (w *databaseTest) work(ctx context.Context, relay *client.Relay) {
	for ctx.Err() == nil {
		jobs, err := relay.Claim(ctx, "q", 10, time.Second)
		if err != nil { // unavailable; what it has claimed comes again after its lease
			clock.Sleep(ctx, unreachablePause)
			continue
		}
		for _, j := range jobs {
			w.until(ctx, "the end of a run", func() bool { return w.end(ctx, j.ID, j.RunID) })
		}
	}
}

// end ends a run beside a row of its own, and reports whether the worker is done with it: one that
// was lost has committed before, or belongs to another worker.
func (w *databaseTest) end(ctx context.Context, job, run string) (isDone bool) {
	tx, err := w.lossy.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO done VALUES ($1,$2)", job, run); err != nil {
		return false
	}
	err = pgtx.CompleteTx(ctx, pgtx.SQL(tx), run, nil)
	switch {
	case errors.Is(err, pgtx.ErrRunLost):
		w.dropped.Add(1)
		return true
	case err != nil:
		return false
	}
	return tx.Commit() == nil
}

// check compares orders, requests and what the workers have done.
func (w *databaseTest) check() {
	w.Helper()
	const done = "SELECT job FROM done"
	const ordered = "(SELECT id::text FROM orders UNION ALL SELECT id||'-second' FROM orders)"
	const requested = "(SELECT request FROM orders UNION ALL SELECT second FROM orders)"
	const stored = "SELECT id FROM inbox"
	for what, query := range map[string]string{
		"orders without a request":       requested + " EXCEPT ALL " + stored,
		"requests without an order":      stored + " EXCEPT ALL " + requested,
		"requests that have made no job": "SELECT id FROM inbox WHERE state<>'submitted'",
		"orders that are not done":       ordered + " EXCEPT ALL " + done,
		"runs beyond one for each job":   done + " EXCEPT ALL " + ordered,
		"orders whose jobs are out of order": `SELECT FROM orders AS o JOIN inbox AS a ON a.id=o.request
			JOIN inbox AS b ON b.id=o.second WHERE a.seq>=b.seq`,
	} {
		if n := w.count("SELECT count(*) FROM (" + query + ") AS d"); n != 0 {
			w.Errorf("TX-001 TX-006 %s: %d", what, n)
		}
	}
	if n := w.count("SELECT count(*) FROM orders"); n != w.committed() {
		w.Errorf("TX-001 %d orders are committed, want %d", n, w.committed())
	}
}

// lossyProxy passes connections on to a PostgreSQL and ends one now and then when the server has
// answered a COMMIT, so that the client does not learn what has become of it.
type lossyProxy struct {
	url    string
	target string
	every  int64 // the answer to one COMMIT in so many is lost

	commits, lost atomic.Int64
}

// commitMessage is the simple query by which pgx commits.
var commitMessage = []byte("Q\x00\x00\x00\x0bcommit\x00")

// newLossyProxy starts a proxy for the database of a URL, until the test ends.
func newLossyProxy(t *testing.T, database string, every int64) *lossyProxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{target: u.Host, every: every}
	u.Host = l.Addr().String()
	p.url = u.String()
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait() // the connections have ended with their pool
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn) })
		}
	})
	return p
}

// serve serves a connection until one side ends it, or the answer to a COMMIT is to be lost.
func (p *lossyProxy) serve(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	var loses atomic.Bool
	var asking sync.WaitGroup
	asking.Go(func() {
		defer server.Close()
		pass(conn, server, func(message []byte) bool {
			if bytes.Contains(message, commitMessage) && p.commits.Add(1)%p.every == 0 {
				loses.Store(true)
			}
			return true
		})
	})
	pass(server, conn, func([]byte) bool {
		if loses.Load() {
			p.lost.Add(1)
			return false
		}
		return true
	})
	conn.Close()
	asking.Wait()
}

// pass passes what is read on until an error, or until goesOn reports false of it.
func pass(from, to net.Conn, goesOn func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !goesOn(buffer[:n]) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); errors.Join(err, writeErr) != nil {
			return
		}
	}
}
