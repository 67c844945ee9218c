package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// statements are those of a snippet of SQL, each on lines of its own.
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
}
