package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// The commands of docs/backup.md, by their place on the page.
const (
	backupSQLite = iota
	backupRestore
	backupDump
	backupLoad
	backupMove
	backupMoveBack
	backupMoveAgain
	backupCommands
)

// runIn runs the commands of a document in a directory.
func runIn(t *testing.T, dir, commands string, environ ...string) {
	t.Helper()
	c := boundedCommand(t, "sh", "-ec", commands)
	c.Dir, c.Env = dir, append(os.Environ(), environ...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", commands, err, out)
	}
}

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
	if len(commands) != backupCommands {
		t.Fatalf("the page has %d commands, want %d", len(commands), backupCommands)
	}
	run := func(command string) {
		t.Helper()
		runIn(t, dir, command, "STORE="+store, "NEW="+restoredStore,
			"SUPERUSER="+postgres.URL("postgres", "postgres"))
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	s := w.serve(at("millrace-data"), "--no-workers")
	for _, check := range outageChecks(0)[:2] {
		if status, body := check.send(t, s.url); status >= 300 {
			t.Fatalf("%s answers %d %s", check.name, status, body)
		}
	}
	imageCall(t, s.url, "POST", "/images/v1/files", []byte(strings.Repeat("no picture", 9)), 202, nil)
	jobs := queuedJobs(t, s.url)
	run(commands[backupSQLite])
	w.stop(s)
	same := func(name string, args ...string) {
		t.Helper()
		s := w.serve(at(name), append(args, "--no-workers")...)
		if now := queuedJobs(t, s.url); now != jobs || now == "" {
			t.Errorf("%s has %q, want %q", name, now, jobs)
		}
		w.stop(s)
	}
	run(commands[backupRestore])
	same("restored-data")
	run(commands[backupMove])
	same("millrace-data", "--set", "store="+store)
	run(commands[backupDump])
	run(inlineCommand(t, "docs/backup.md", "pg_dumpall ") +
		` -d "$SUPERUSER" | grep '^CREATE ROLE mine;'`)
	run(commands[backupLoad])
	same("restored-pg", "--set", "store="+restoredStore, "--set", "rebind_storage=true")
	run(commands[backupMoveBack])
	same("new-data")
	run(commands[backupMoveAgain])
	same("millrace-data")
}
