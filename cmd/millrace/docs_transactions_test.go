package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestTransactionsOfTheDocs (TX-005, TX-007): what docs/transactions.md has works as it stands: the
// roles where the migration could not make them, and a program that submits with the rights of one,
// by the lines of SQL of each language. The database has the role and the name of the other pages,
// so the schema of the functions comes first in the search_path of the server.
func TestTransactionsOfTheDocs(t *testing.T) {
	t.Parallel()
	server := outside.NewPostgres(t)
	server.Exec("postgres", "CREATE ROLE millrace LOGIN", "CREATE DATABASE millrace OWNER millrace",
		"CREATE ROLE shop LOGIN")
	data := filepath.Join(t.TempDir(), "data")
	start := func() *launchedServer {
		return launchIn(t, data, "--set", "contracts=relay,taskflow", "--set", "operator.token=secret",
			"--set", "store="+server.URL("millrace", "millrace"))
	}
	node := start()
	shop := pgtest.DB(t, server.URL("shop", "millrace"))
	if _, err := shop.Exec("SELECT millrace.submit('relay', '{}')"); err == nil {
		t.Error("TX-005 a role without a grant submits")
	}
	for _, block := range codeBlocks(t, "transactions.md", "sql") {
		if strings.HasPrefix(block, "CREATE ROLE") {
			server.Exec("millrace", statements(block)...)
		}
	}
	snippets := codeBlocks(t, "transactions.md", "sql")
	grant, submit, see := blockWith(t, snippets, "GRANT millrace_producer"),
		blockWith(t, snippets, "INSERT INTO orders"), blockWith(t, snippets, "SELECT state, job_id")
	server.Exec("millrace", append(statements(grant), `CREATE TABLE orders (id int, total int,
		request uuid, made_at timestamptz DEFAULT now())`, "GRANT INSERT, SELECT ON orders TO shop")...)
	server.Exec("millrace", statements(blockWith(t, snippets, "ALTER ROLE shop"))...)
	if _, err := shop.Exec(submit); err != nil {
		t.Fatal(err)
	}
	var id string
	if err := shop.QueryRow("SELECT id FROM millrace.submissions").Scan(&id); err != nil {
		t.Fatal(err)
	}
	see = regexp.MustCompile(`'[0-9a-f-]{36}'`).ReplaceAllString(see, "'"+id+"'")
	awaitSubmitted := func(query string) (jobID string) {
		t.Helper()
		pollUntil(t.Fatalf, "the submission", func() bool {
			var state string
			var job, reason sql.NullString
			if err := shop.QueryRow(query).Scan(&state, &job, &reason); err != nil ||
				state == "refused" {
				t.Fatalf("TX-007 it is %s: %s, %v", state, reason.String, err)
			}
			jobID = job.String
			return state == "submitted"
		})
		return jobID
	}
	if job := awaitSubmitted(see); job != "order-4711" {
		t.Errorf("TX-007 the job of the page is %s", job)
	}
	checkOrders(t, shop, blockWith(t, snippets, "s.id IS NULL"))
	p := newProducer(t, node, server)
	for language, code := range map[string]string{"Python": "python", "TypeScript": "ts"} {
		blocks := codeBlocks(t, "transactions.md", code)
		call := p.call(language, blockWith(t, blocks, "millrace.submit"))
		if err := call.row(shop).Scan(&id); err != nil {
			t.Fatalf("TX-007 %s: %v", language, err)
		}
		query := regexp.MustCompile(`'[0-9a-f-]{36}'`).ReplaceAllString(see, "'"+id+"'")
		job := awaitSubmitted(query)
		if job != language {
			t.Errorf("TX-007 the job of %s is %s", language, job)
		}
	}
	p.endRuns(shop, blockWith(t, snippets, "SELECT millrace.complete"))
	p.runGo(shop)
	server.Exec("millrace", "GRANT CREATE ON SCHEMA public TO PUBLIC")
	server.Exec("millrace", statements(blockWith(t, snippets, "REVOKE CREATE"))...)
	if _, err := shop.Exec("CREATE TABLE public.other (id int)"); err == nil {
		t.Error("TX-005 everybody may make tables in the schema of the store")
	}
	runInboxCommands(t, node, shop)
	if err := node.terminate(); err != nil {
		t.Error(err)
	}
	// The store is found again, although the schema of its functions comes first.
	awaitReady(t, start().url)
	var schemas string
	if err := pgtest.DB(t, server.URL("millrace", "millrace")).QueryRow(`SELECT string_agg(DISTINCT
		schemaname, ',') FROM pg_tables WHERE tablename IN ('jobs','inbox','goose_db_version')`).Scan(
		&schemas); err != nil || schemas != "public" {
		t.Errorf("the tables are in %s: %v", schemas, err)
	}
}

// checkOrders runs the page's query for orders without a request: it finds one that has none, and
// not the others.
func checkOrders(t *testing.T, shop *sql.DB, query string) {
	t.Helper()
	_, err := shop.Exec("INSERT INTO orders (id, request) VALUES (1, gen_random_uuid())")
	if err != nil {
		t.Fatal(err)
	}
	var ids string
	err = shop.QueryRow("SELECT string_agg(id::text,',') FROM (" +
		strings.TrimSuffix(strings.TrimSpace(query), ";") + ") AS lost").Scan(&ids)
	if err != nil || ids != "1" {
		t.Errorf("TX-007 orders without a request are %q: %v", ids, err)
	}
}

// runInboxCommands runs the commands of operators on the page, with requests that were refused, and
// the one in its text with one that waits, as the node does not serve its contract.
func runInboxCommands(t *testing.T, node *launchedServer, shop *sql.DB) {
	t.Helper()
	binary := mustMillrace(t)
	run := func(command, contract, state string) {
		t.Helper()
		var id string
		if err := shop.QueryRow("SELECT millrace.submit($1, '{}')", contract).Scan(&id); err != nil {
			t.Fatal(err)
		}
		pollUntil(t.Fatalf, "a request that is "+state, func() bool {
			var reached bool
			err := shop.QueryRow("SELECT state=$2 FROM millrace.submissions WHERE id=$1",
				id, state).Scan(&reached)
			return err == nil && reached
		})
		command, _, _ = strings.Cut(strings.Replace(command, "REQUEST", id, 1), "#")
		c := boundedCommand(t, binary, strings.Fields(command)[1:]...)
		c.Env = append(os.Environ(), "MILLRACE_SERVER="+node.url, "MILLRACE_TOKEN=secret")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), id) {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	for line := range strings.Lines(blockWith(t, codeBlocks(t, "transactions.md", "sh"),
		"millrace inbox")) {
		run(line, "relay", "refused")
	}
	for _, beginning := range []string{"millrace inbox list", "millrace inbox discard"} {
		run(inlineCommand(t, "docs/transactions.md", beginning), "fetchbox", "waiting")
	}
}

// blockWith returns the only block that has a text.
func blockWith(t *testing.T, blocks []string, text string) (found string) {
	t.Helper()
	for _, block := range blocks {
		if strings.Contains(block, text) {
			if found != "" {
				t.Fatalf("two blocks have %s", text)
			}
			found = block
		}
	}
	if found == "" {
		t.Fatalf("no block has %s", text)
	}
	return found
}
