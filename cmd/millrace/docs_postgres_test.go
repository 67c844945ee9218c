package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// codeBlocks are the blocks of a language on a page of docs.
func codeBlocks(t *testing.T, page, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range strings.Split(string(text), "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		all = append(all, block)
	}
	return all
}

// statements are the statements of a snippet of SQL, each on lines of its own.
func statements(snippet string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(snippet), ";"), ";\n")
}

// TestPostgresOfTheDocs: a role, a database, rights and a pooler as docs/postgresql.md has them are
// all that nodes need, with the schema made by the owner or by a node.
func TestPostgresOfTheDocs(t *testing.T) {
	t.Parallel()
	sql, ini := codeBlocks(t, "postgresql.md", "sql"), codeBlocks(t, "postgresql.md", "ini")
	if len(sql) != 2 || len(ini) != 1 {
		t.Fatalf("%d snippets of SQL and %d of pgbouncer.ini, want 2 and 1", len(sql), len(ini))
	}
	server := outside.NewPostgres(t)
	server.Exec("postgres", statements(sql[0])...)
	binary := mustMillrace(t)
	owner := server.URL("millrace", "millrace")
	if out, err := boundedCommand(t, binary, "migrate", "--config", os.DevNull, "--set",
		"store="+owner).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server.Exec("millrace", statements(sql[1])...)
	pooler := outside.NewPgBouncerFromFiles(t, server, ini[0],
		"\"millrace\" \"secret\"\n\"millrace_node\" \"secret\"\n")
	data := filepath.Join(t.TempDir(), "data") // of all nodes, one after the other
	for i, store := range []string{owner, server.URL("millrace_node", "millrace"),
		pooler.URL("millrace:secret", "millrace"),
		pooler.URL("millrace_node:secret", "millrace")} {
		s := launchIn(t, data, "--no-workers", "--set", "store="+store)
		awaitReady(t, s.url)
		for _, a := range outageChecks(i) {
			if status, body := a.send(t, s.url); status >= 300 {
				t.Errorf("%s: %s answers %d %s", store, a.name, status, body)
			}
		}
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
	}
	endLongTransaction(t, server)
}

// endLongTransaction runs the command of the page that shows long transactions, here of any length,
// and ends the one that it shows as the page says.
func endLongTransaction(t *testing.T, server *outside.PostgresServer) {
	t.Helper()
	shell := codeBlocks(t, "postgresql.md", "sh")
	if len(shell) != 1 || strings.Count(shell[0], "'1 minute'") != 1 {
		t.Fatalf("the page has %q", shell)
	}
	tx, err := pgtest.DB(t, server.URL("millrace", "millrace")).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT 4711"); err != nil {
		t.Fatal(err)
	}
	c := boundedCommand(t, "sh", "-ec", strings.Replace(shell[0], "'1 minute'", "'0 minutes'", 1))
	c.Env = append(os.Environ(), "STORE="+server.URL("postgres", "millrace"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shown := regexp.MustCompile(`(?m)^ *(\d+) \|.*\| idle in transaction +\| SELECT 4711`).
		FindSubmatch(out)
	end := regexp.MustCompile(`# then (SELECT .*)`).FindStringSubmatch(shell[0])
	if shown == nil || end == nil {
		t.Fatalf("the transaction is not shown: %s", out)
	}
	server.Exec("postgres", strings.Replace(end[1], "PID", string(shown[1]), 1))
	if err := tx.Commit(); err == nil {
		t.Error("the transaction goes on")
	}
}
