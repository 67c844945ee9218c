package main

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// producer runs the code of docs/transactions.md as the role shop.
type producer struct {
	*reader
	client *client.Client
}

// newProducer makes one on a node whose role shop may submit, and lets that end runs too.
func newProducer(t *testing.T, node *launchedServer, server *outside.PostgresServer) *producer {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: node.url})
	if err != nil {
		t.Fatal(err)
	}
	server.Exec("millrace", "GRANT millrace_worker TO shop",
		"CREATE TABLE accounts (id int, balance int)", "INSERT INTO accounts VALUES (7, 100)",
		"GRANT SELECT, UPDATE ON accounts TO shop")
	return &producer{reader: &reader{T: t, server: node, root: root, app: t.TempDir(),
		environ: []string{"MILLRACE_SERVER=" + node.url, "SHOP=" + server.URL("shop", "millrace")}},
		client: c}
}

// sqlCall is a call of a driver, whose values are texts: not all drivers take others.
type sqlCall struct {
	SQL    string
	Values []string
}

// row is the answer of the database.
func (c sqlCall) row(db *sql.DB) *sql.Row {
	values := make([]any, len(c.Values))
	for i, value := range c.Values {
		values[i] = value
	}
	return db.QueryRow(c.SQL, values...)
}

// The drivers of the page print what they are called with: none of them is installed for the tests.
var drivers = map[string]string{
	"Python": `import json
request = {"queue": "q", "id": "Python", "timeout": 5, "payload": None}
run = "RUN"

class cursor:
    @staticmethod
    def execute(sql, values):
        print(json.dumps({"sql": sql, "values": values}))

`,
	"TypeScript": `const request = { queue: "q", id: "TypeScript", timeout: 5, payload: null };
const client = {
  query: async (sql, values) => console.log(JSON.stringify({ sql, values })),
};
`}

// call runs a line of a language, and returns what its driver is called with, in the form in which
// drivers send it.
func (p *producer) call(language, line string) (c sqlCall) {
	p.Helper()
	out := p.run(tabbed{"transactions.md", language, drivers[language] + line}, "millrace.", false)
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		p.Fatalf("%s: %v: %s", language, err, out)
	}
	for _, place := range []string{"$1", "$2"} {
		c.SQL = strings.Replace(c.SQL, "%s", place, 1)
	}
	return c
}

// claim stores a job of TaskFlow in a queue of its own, and claims it.
func (p *producer) claim(queue string) client.ClaimedJob {
	p.Helper()
	if _, err := p.client.TaskFlow().Submit(p.Context(), client.TaskFlowSpec{Name: "n",
		Queue: queue}); err != nil {
		p.Fatal(err)
	}
	jobs, err := p.client.WorkerAPI().Claim(p.Context(), client.ClaimQuery{
		Contract: client.ContractTaskFlow, Queues: []string{queue}, Worker: "w"}, 0)
	if err != nil || len(jobs) != 1 {
		p.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return jobs[0]
}

// awaitResult waits until a job is completed, and compares its result.
func (p *producer) awaitResult(id, want string) {
	p.Helper()
	j, err := p.client.TaskFlow().Wait(p.Context(), id)
	if err != nil || j.Status != client.TaskFlowStatusCompleted || string(j.Result) != want {
		p.Errorf("TX-007 the job is %s with %q: %v", j.Status, j.Result, err)
	}
}

// endRuns ends runs by the transaction of the page, and by the line in its text.
func (p *producer) endRuns(shop *sql.DB, transaction string) {
	p.Helper()
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	job := p.claim("charge")
	if _, err := shop.Exec(id.ReplaceAllString(transaction, job.RunID)); err != nil {
		p.Fatal(err)
	}
	p.awaitResult(job.ID, `{"charged": 99}`)
	var balance int
	err := shop.QueryRow("SELECT balance FROM accounts").Scan(&balance)
	if err != nil || balance != 1 {
		p.Errorf("TX-007 the balance is %d: %v", balance, err)
	}
	line := regexp.MustCompile("`(cursor\\.execute[^`]+)`").FindStringSubmatch(
		documents(p.T)["docs/transactions.md"])
	if line == nil {
		p.Fatal("the page has no line of SQL that ends a run")
	}
	job = p.claim("alone")
	call := p.call("Python", strings.Replace(line[1], "[run]", `["`+job.RunID+`"]`, 1))
	if err := call.row(shop).Err(); err != nil {
		p.Fatal(err)
	}
	p.awaitResult(job.ID, "")
}

// transactionsProgram is what a reader has around the Go of the page. SUBMIT and COMPLETE are its
// blocks.
const transactionsProgram = `package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/client/pgtx"
)

var pool *pgxpool.Pool

func storeOrder(ctx context.Context, tx pgx.Tx, order int) error {
	_, err := tx.Exec(ctx, "INSERT INTO orders (id, request) VALUES ($1, gen_random_uuid())", order)
	return err
}

func charge(ctx context.Context, tx pgx.Tx, payload json.RawMessage) error {
	_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1", string(payload))
	return err
}

func submit(ctx context.Context, order int, request json.RawMessage) error {
SUBMIT
	return err
}

func complete(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
COMPLETE
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	var err error
	pool, err = pgxpool.New(ctx, os.Getenv("SHOP"))
	check(err)
	check(submit(ctx, 12, json.RawMessage(` + "`" +
	`{"queue":"q","id":"Go","timeout":5,"payload":null}` + "`" + `)))
	c, err := client.New(client.Config{BaseURL: os.Getenv("MILLRACE_SERVER")})
	check(err)
	job, err := c.TaskFlow().Submit(ctx, client.TaskFlowSpec{Name: "n", Queue: "go",
		Payload: json.RawMessage("5")})
	check(err)
	working, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		done <- (&client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow,
			Handlers: map[string]client.JobHandler{"go": complete}}).Run(working)
	}()
	job, err = c.TaskFlow().Wait(ctx, job.ID)
	check(err)
	stop()
	check(<-done)
	fmt.Println(job.Status)
}
`

// runGo runs a program that is made of the page's blocks of Go.
func (p *producer) runGo(shop *sql.DB) {
	p.Helper()
	blocks := codeBlocks(p.T, "transactions.md", "go")
	if len(blocks) != 2 {
		p.Fatalf("the page has %d blocks of Go, want 2", len(blocks))
	}
	program := strings.NewReplacer("SUBMIT\n", blockWith(p.T, blocks, "pgtx.SubmitTx"),
		"COMPLETE\n", blockWith(p.T, blocks, "pgtx.CompleteTx")).Replace(transactionsProgram)
	p.run(tabbed{"transactions.md", "Go", program}, "COMPLETED", false)
	var balance, order int
	err := shop.QueryRow("SELECT balance, (SELECT count(*) FROM orders WHERE id=12) FROM accounts").
		Scan(&balance, &order)
	if err != nil || balance != 6 || order != 1 {
		p.Errorf("TX-007 the balance is %d, with %d orders: %v", balance, order, err)
	}
	pollUntil(p.Fatalf, "the job of the program", func() bool {
		var submitted bool
		err := shop.QueryRow("SELECT count(*) = 1 FROM millrace.submissions WHERE job_id = 'Go'").
			Scan(&submitted)
		return err == nil && submitted
	})
}
