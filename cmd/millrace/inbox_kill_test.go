package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// submissionTest is the state of TestKilledSubmissions.
type submissionTest struct {
	*killedNodes
	db         *sql.DB
	schema     string
	owner      string // of the jobs of ForgeRun
	n          int    // transactions of producers, besides that of killHolders
	takenAgain int    // the number of that one

	rolledBack, repeated, lost atomic.Int64
	stalled                    atomic.Bool // a worker has stalled until its run was lost
}

// kills is how often a node is killed.
const kills = 10

// unreachablePause is how long a worker pauses that has not reached its node, so that the node may
// start.
const unreachablePause = 20 * time.Millisecond

// TestKilledSubmissions (TX-001, TX-002): producers write a table of their own and submit to all
// contracts that take requests in the same transactions, of which a third is rolled back, while the
// two nodes are killed ten times. Exactly what was committed is submitted, and once, in the order
// of each transaction: workers end what Relay has, so that a second submission would be found
// although the job of the first is gone. A test that meets none of the dangers fails.
func TestKilledSubmissions(t *testing.T) {
	t.Parallel()
	n, _ := testkit.Size(t, "MILLRACE_TEST_SUBMISSIONS", 400)
	nats, s3 := outside.NewNATS(t, ""), outside.NewS3(t, "millrace")
	w := &submissionTest{n: n, killedNodes: startNodes(t, 2, nil, "--no-workers", "--set",
		"contracts=relay,taskflow,forgerun,fetchbox", "--set", "stream.url="+nats.URL, "--set",
		"objects.url="+s3.Setting())}
	w.db = pgtest.DB(t, w.store)
	w.db.SetMaxOpenConns(24)
	for _, statement := range []string{
		`CREATE TABLE orders (number int NOT NULL, place int NOT NULL, contract text NOT NULL,
			job text NOT NULL, request uuid NOT NULL)`,
		"CREATE TABLE done (job text NOT NULL)",
		"CREATE TABLE taken_again (transaction bigint NOT NULL)",
		`CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT
			AS $$ BEGIN INSERT INTO taken_again VALUES (NEW.number); RETURN NULL; END $$`,
		// A node takes what another one had taken whose lease has ended.
		`CREATE TRIGGER taken_again AFTER UPDATE ON inbox_transactions FOR EACH ROW
			WHEN (OLD.due_at>0 AND OLD.tries=0 AND OLD.due_at<NEW.due_at
				AND OLD.due_at<=date_part('epoch',now())*1000000) EXECUTE FUNCTION note_taken()`,
	} {
		w.exec(statement)
	}
	if err := w.db.QueryRow("SELECT current_schema()").Scan(&w.schema); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.owner, err = w.client().ForgeRun().CreateClient(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	ctx, stopWork := context.WithTimeout(t.Context(), 4*testTimeout+
		time.Duration(w.n)*20*time.Millisecond)
	defer stopWork()
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() { w.work(ctx, w.clients[i%2].Relay()) })
	}
	w.produceUnderKills(ctx)
	w.awaitSubmitted(ctx)
	w.killHolders(ctx)
	w.awaitSubmitted(ctx)
	pollWithin(time.Hour, w.Fatalf, "everything to be done", func() bool {
		return ctx.Err() != nil || w.count("SELECT count(*) FROM jobs WHERE contract='relay'") == 0
	})
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	stopWork()
	working.Wait()
	w.check()
	w.checkOrder()
	w.checkDangers()
	w.stop()
}

func (w *submissionTest) exec(statement string) {
	w.Helper()
	if _, err := w.db.Exec(statement); err != nil {
		w.Fatalf("%s: %v", statement, err)
	}
}

func (w *submissionTest) count(query string, args ...any) (n int) {
	w.Helper()
	if err := w.db.QueryRow(query, args...).Scan(&n); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return n
}

// awaitSubmitted waits until no request waits.
func (w *submissionTest) awaitSubmitted(ctx context.Context) {
	w.Helper()
	pollWithin(time.Hour, w.Fatalf, "everything to be submitted", func() bool {
		return ctx.Err() != nil || w.count("SELECT count(*) FROM inbox WHERE state='waiting'") == 0
	})
}

// produceUnderKills runs the transactions of producers, and kills a node in each tenth of them:
// once some of these are submitted, and while others are.
func (w *submissionTest) produceUnderKills(ctx context.Context) {
	orders := make(chan int)
	var producing sync.WaitGroup
	for range 8 {
		producing.Go(func() {
			for i := range orders {
				w.produce(ctx, i)
			}
		})
	}
	for kill := range kills {
		var feeding sync.WaitGroup
		feeding.Go(func() {
			for i := kill * w.n / kills; i < (kill+1)*w.n/kills; i++ {
				orders <- i
			}
		})
		before := w.count("SELECT count(*) FROM inbox WHERE state='submitted'")
		pollWithin(time.Hour, w.Fatalf, "some submissions", func() bool {
			return ctx.Err() != nil ||
				w.count("SELECT count(*) FROM inbox WHERE state='submitted'") > before
		})
		w.kill(kill)
		feeding.Wait()
	}
	close(orders)
	producing.Wait()
}

// killHolders kills both nodes while one of them has taken a transaction and cannot submit what is
// in it, as the table of jobs is locked. So it is taken again, whatever the other kills have met.
func (w *submissionTest) killHolders(ctx context.Context) {
	w.Helper()
	w.takenAgain = w.n
	for isRolledBack(w.takenAgain) {
		w.takenAgain++
	}
	lock, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		w.Fatal(err)
	}
	defer lock.Rollback()
	if _, err := lock.Exec("LOCK TABLE jobs IN SHARE MODE"); err != nil {
		w.Fatal(err)
	}
	w.produce(ctx, w.takenAgain)
	pollUntil(w.Fatalf, "a node to take the transaction", func() bool {
		return ctx.Err() != nil || w.count(`SELECT count(*) FROM inbox_transactions
			WHERE due_at>0 AND number=`+transactionOf, w.takenAgain) > 0
	})
	w.killNode(0)
	w.killNode(1)
	if err := lock.Rollback(); err != nil {
		w.Fatal(err)
	}
	w.start(0)
	w.start(1)
}

// transactionOf selects the transaction in the inbox of the order with a number.
const transactionOf = `(SELECT max(i.transaction) FROM inbox AS i
	JOIN orders AS o ON o.request=i.id WHERE o.number=$1)`

// isRolledBack reports whether the transaction of an order is rolled back, as each third one is.
func isRolledBack(number int) bool { return number%3 == 0 }

// orderContracts returns the contracts to which an order submits two requests each.
func orderContracts(number int) []string {
	return []string{"relay", []string{"taskflow", "forgerun", "taskflow", "fetchbox"}[number%4]}
}

// hasKey reports whether an order submits a request with an idempotency key, too.
func hasKey(number int) bool { return number%5 == 0 }

// produce runs the transaction of an order.
func (w *submissionTest) produce(ctx context.Context, number int) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		w.Error(err)
		return
	}
	defer tx.Rollback()
	place := 0
	submit := func(contract, job, key string) {
		place++
		id, submitErr := w.submit(ctx, tx, contract, job, key)
		_, insertErr := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1,$2,$3,$4,$5)", number, place,
			contract, job, id)
		err = errors.Join(err, submitErr, insertErr)
	}
	for part := range 2 {
		for _, contract := range orderContracts(number) {
			job := fmt.Sprintf("%d-%d", number, part)
			if contract == "forgerun" { // whose jobs have no payload but their time
				at := time.Date(2090, 1, 1, 0, 0, 2*number+part, 0, time.UTC)
				job = at.Format("2006-01-02T15:04:05")
			}
			submit(contract, job, "")
		}
	}
	if hasKey(number) {
		submit("relay", fmt.Sprint(number, "-key"), fmt.Sprint("key-", number))
	}
	if err != nil {
		w.Error(err)
		return
	}
	if isRolledBack(number) {
		err = tx.Rollback()
		w.rolledBack.Add(1)
	} else {
		err = tx.Commit()
	}
	if err != nil {
		w.Error(err)
	}
}

// submit submits a request, and one with a key twice.
func (w *submissionTest) submit(ctx context.Context, tx *sql.Tx, contract, job,
	key string) (id string, err error) {
	s := pgtx.Submission{Contract: contract, IdempotencyKey: key}
	switch contract {
	case "relay":
		s.Request, err = json.Marshal(map[string]any{"queue": "q", "id": job, "timeout": 5,
			"payload": job})
	case "taskflow":
		s.Request, err = json.Marshal(map[string]any{"name": "n", "queue": "q", "payload": job})
	case "forgerun":
		s.Owner = w.owner
		s.Request, err = json.Marshal(map[string]any{"type": "DEFERRED", "execution_at": job + "Z"})
	case "fetchbox":
		s.JobType = "default"
		s.Request, err = client.FetchBoxManifest{Resources: []client.FetchBoxResource{{ID: "r",
			URL: "http://127.0.0.1:1/" + job}}}.Encode()
	}
	if err != nil {
		return "", err
	}
	in := pgtx.SQL(tx).InSchema(w.schema)
	if id, err = pgtx.SubmitTx(ctx, in, s); err != nil || key == "" {
		return id, err
	}
	again, err := pgtx.SubmitTx(ctx, in, s)
	if err == nil && again != id {
		err = errors.New("TX-003 the same key has the ids " + id + " and " + again)
	}
	w.repeated.Add(1)
	return id, err
}

// work ends jobs of Relay, each beside a row of its own. One worker stalls until it has lost a run,
// which it must not be able to end.
func (w *submissionTest) work(ctx context.Context, relay *client.Relay) {
	for ctx.Err() == nil {
		jobs, err := relay.Claim(ctx, "q", 10, time.Second)
		if err != nil { // a node was killed; what it has claimed comes again after its lease
			clock.Sleep(ctx, unreachablePause)
			continue
		}
		for _, j := range jobs {
			stalls := w.stalled.CompareAndSwap(false, true)
			if stalls {
				awaitLost(ctx, w.T, w.db, j.RunID)
			}
			err := w.done(ctx, j.ID, j.RunID)
			switch isLost := errors.Is(err, pgtx.ErrRunLost); {
			case isLost:
				w.lost.Add(1)
			case ctx.Err() != nil:
			case err != nil || stalls:
				w.Errorf("TX-006 the end of a run, which was lost: %v: %v", stalls, err)
			}
		}
	}
}

// awaitLost waits until a run is not the current one of its job any longer.
func awaitLost(ctx context.Context, t *testing.T, db *sql.DB, run string) {
	t.Helper()
	pollWithin(testTimeout, t.Errorf, "a run to be lost", func() bool {
		var n int
		err := db.QueryRowContext(ctx,
			"SELECT count(*) FROM leases WHERE run_id=uuid_send($1::uuid)", run).Scan(&n)
		return ctx.Err() != nil || (err == nil && n == 0)
	})
}

// done ends a run and notes the job, or neither.
func (w *submissionTest) done(ctx context.Context, job, run string) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO done VALUES ($1)", job); err != nil {
		return err
	}
	if err := pgtx.CompleteTx(ctx, pgtx.SQL(tx).InSchema(w.schema), run, nil); err != nil {
		return err
	}
	return tx.Commit()
}

// check compares the orders with what has become of them.
func (w *submissionTest) check() {
	w.Helper()
	const relay = "SELECT job FROM orders WHERE contract='relay'"
	const marked = `SELECT i.seq FROM inbox AS i JOIN orders AS o ON o.request=i.id
		WHERE o.contract<>'relay'`
	const made = "SELECT seq FROM jobs WHERE contract IN ('taskflow','forgerun','fetchbox')"
	const manifests = "SELECT seq FROM jobs WHERE contract='fetchbox'"
	const resources = "SELECT parent FROM jobs WHERE contract='fetchbox.task'"
	for what, query := range map[string]string{
		"orders without a job of Relay":           relay + " EXCEPT ALL SELECT job FROM done",
		"jobs of Relay that are of no order":      "SELECT job FROM done EXCEPT ALL " + relay,
		"orders without a job":                    marked + " EXCEPT ALL " + made,
		"jobs that are of no order":               made + " EXCEPT ALL " + marked,
		"manifests without their resource":        manifests + " EXCEPT ALL " + resources,
		"resources of no manifest":                resources + " EXCEPT ALL " + manifests,
		"requests that are of no order":           "SELECT id FROM inbox EXCEPT SELECT request FROM orders",
		"requests without a mark":                 "SELECT id FROM submissions WHERE state<>'submitted'",
		"marks with another job":                  markedWrongly,
		"transactions of producers that are left": "SELECT number FROM inbox_transactions",
	} {
		if n := w.count("SELECT count(*) FROM (" + query + ") AS d"); n != 0 {
			w.Errorf("TX-001 TX-002 %s: %d", what, n)
		}
	}
	want := 0
	for i := range w.takenAgain + 1 {
		if isRolledBack(i) || (i >= w.n && i != w.takenAgain) {
			continue
		}
		if want += 2 * len(orderContracts(i)); hasKey(i) {
			want++
		}
	}
	if n := w.count("SELECT count(*) FROM orders"); n != want {
		w.Errorf("TX-001 %d orders are committed, want %d", n, want)
	}
}

// markedWrongly selects the requests whose mark names another job than the order has.
const markedWrongly = `SELECT i.id FROM inbox AS i JOIN orders AS o ON o.request=i.id
	LEFT JOIN jobs AS j ON j.seq=i.seq
	WHERE CASE o.contract WHEN 'relay' THEN i.job_id<>o.job
		ELSE j.key IS DISTINCT FROM i.job_id OR j.contract<>o.contract END
	OR CASE o.contract WHEN 'relay' THEN false
		WHEN 'taskflow' THEN convert_from(j.payload,'UTF8')<>'"'||o.job||'"'
		WHEN 'forgerun' THEN convert_from(j.payload,'UTF8') NOT LIKE '%"'||o.job||'%'
		ELSE NOT EXISTS (SELECT FROM jobs AS r WHERE r.parent=j.seq
			AND convert_from(r.payload,'UTF8') LIKE '%/'||o.job||'"%') END`

// checkOrder checks that the requests of one transaction to one contract have got jobs in their
// order: by number, and as far as the jobs are there by when they were created.
func (w *submissionTest) checkOrder() {
	w.Helper()
	const pairs = ` FROM orders AS o JOIN inbox AS i ON i.id=o.request
		JOIN orders AS p ON p.number=o.number AND p.contract=o.contract AND p.place>o.place
		JOIN inbox AS k ON k.id=p.request
		LEFT JOIN jobs AS a ON a.seq=i.seq LEFT JOIN jobs AS b ON b.seq=k.seq WHERE `
	for _, contract := range []string{"relay", "taskflow", "forgerun", "fetchbox"} {
		if n := w.count("SELECT count(*)"+pairs+"o.contract=$1", contract); n == 0 {
			w.Errorf("TX-002 no transaction has two requests to %s", contract)
		}
	}
	if n := w.count("SELECT count(*)" + pairs +
		"k.number<=i.number OR k.seq<=i.seq OR b.created_at<a.created_at"); n != 0 {
		w.Errorf("TX-002 %d pairs of requests were submitted out of order", n)
	}
}

// checkDangers fails the test unless what it is about has happened.
func (w *submissionTest) checkDangers() {
	w.Helper()
	again := w.count("SELECT count(DISTINCT transaction) FROM taken_again")
	w.Logf("%d transactions were rolled back, %d keys repeated, %d runs lost, %d transactions "+
		"taken again", w.rolledBack.Load(), w.repeated.Load(), w.lost.Load(), again)
	for what, n := range map[string]int{
		"a transaction of a producer was rolled back": int(w.rolledBack.Load()),
		"a key was repeated":                          int(w.repeated.Load()),
		"a run was lost (MILLRACE_RUN_LOST)":          int(w.lost.Load()),
		"the transaction of killHolders was taken again": w.count(
			"SELECT count(*) FROM taken_again WHERE transaction="+transactionOf, w.takenAgain),
	} {
		if n == 0 {
			w.Errorf("the test has not met its danger: %s: never", what)
		}
	}
}
