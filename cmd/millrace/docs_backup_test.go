package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestBackupOfTheDocs runs the commands of docs/backup.md in their order: a backup of SQLite and
// its restore, the recipe for PostgreSQL, and a move there and back.
func TestBackupOfTheDocs(t *testing.T) {
	w := newKeptWorld(t)
	w.generate = true
	postgres := outside.NewPostgres(t)
	store, restoredStore := postgres.Database("mine"), postgres.URL("mine", "restored")
	postgres.Exec("postgres", "CREATE DATABASE restored OWNER mine")
	dir := t.TempDir()
	commands := codeBlocks(t, "backup.md", "sh")
	if len(commands) != 7 {
		t.Fatalf("the page has %d commands, want 7", len(commands))
	}
	run := func(command string) {
		t.Helper()
		c := boundedCommand(t, "sh", "-ec", command)
		c.Dir = dir
		c.Env = append(os.Environ(), "STORE="+store, "NEW="+restoredStore)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	const backup, restore, dump, load, move, back, again = 0, 1, 2, 3, 4, 5, 6
	at := func(name string) string { return filepath.Join(dir, name) }
	s := w.serve(at("millrace-data"), "--no-workers")
	for _, check := range outageChecks(0)[:2] {
		if status, body := check.send(t, s.url); status >= 300 {
			t.Fatalf("%s answers %d %s", check.name, status, body)
		}
	}
	imageCall(t, s.url, "POST", "/images/v1/files", []byte(strings.Repeat("no picture", 9)), 202, nil)
	jobs := queuedJobs(t, s.url)
	run(commands[backup])
	w.stop(s)
	same := func(name string, args ...string) {
		t.Helper()
		s := w.serve(at(name), append(args, "--no-workers")...)
		if now := queuedJobs(t, s.url); now != jobs || now == "" {
			t.Errorf("%s has %q, want %q", name, now, jobs)
		}
		w.stop(s)
	}
	run(commands[restore])
	same("restored-data")
	run(commands[move])
	same("millrace-data", "--set", "store="+store)
	run(commands[dump])
	run(commands[load])
	same("restored-pg", "--set", "store="+restoredStore, "--set", "rebind_storage=true")
	run(commands[back])
	same("new-data")
	run(commands[again])
	same("millrace-data")
}
