package main

import (
	"database/sql"
	"encoding/json"
	"go/format"
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
	for _, language := range []string{"python", "ts"} {
		line := regexp.MustCompile(`"(SELECT [^"]*)"`).FindStringSubmatch(
			blockWith(t, codeBlocks(t, "transactions.md", language), "millrace.submit"))
		if line == nil {
			t.Fatalf("TX-007 the page has no line for %s", language)
		}
		query := strings.Replace(strings.Replace(line[1], "%s", "$1", 1), "%s", "$2", 1)
		request, err := json.Marshal(map[string]any{"queue": "q", "id": language, "timeout": 5,
			"payload": nil})
		if err != nil {
			t.Fatal(err)
		}
		if err := shop.QueryRow(query, "relay", string(request)).Scan(&id); err != nil {
			t.Fatalf("TX-007 %s: %v", language, err)
		}
		awaitSubmitted(strings.Replace(see, regexp.MustCompile(`'[0-9a-f-]{36}'`).FindString(see),
			"'"+id+"'", 1))
	}
	for _, block := range codeBlocks(t, "transactions.md", "go") {
		if _, err := format.Source([]byte("package p\n\nfunc f() error {\n" + block + "}\n")); err != nil {
			t.Errorf("TX-007 %v: %s", err, block)
		}
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

// runInboxCommands runs the commands of operators on the page, with requests that were refused.
func runInboxCommands(t *testing.T, node *launchedServer, shop *sql.DB) {
	t.Helper()
	binary := mustMillrace(t)
	for line := range strings.Lines(blockWith(t, codeBlocks(t, "transactions.md", "sh"),
		"millrace inbox")) {
		var id string
		if err := shop.QueryRow("SELECT millrace.submit('relay', '{}')").Scan(&id); err != nil {
			t.Fatal(err)
		}
		pollUntil(t.Fatalf, "a refused request", func() bool {
			var refused bool
			err := shop.QueryRow("SELECT state='refused' FROM millrace.submissions WHERE id=$1",
				id).Scan(&refused)
			return err == nil && refused
		})
		command, _, _ := strings.Cut(strings.Replace(line, "REQUEST", id, 1), "#")
		c := boundedCommand(t, binary, strings.Fields(command)[1:]...)
		c.Env = append(os.Environ(), "MILLRACE_SERVER="+node.url, "MILLRACE_TOKEN=secret")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), id) {
			t.Errorf("%s: %v: %s", command, err, out)
		}
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
