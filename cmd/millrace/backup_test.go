package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestBackupOfAll: a backup of a server with jobs of all contracts, restored to another directory,
// answers as the server did, and its jobs go on.
func TestBackupOfAll(t *testing.T) {
	w := newKeptWorld(t)
	dir, root := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := w.serve(dir)
	w.fill()
	w.stop(s)
	s = w.serve(dir, "--no-workers")
	want := w.fillWaiting()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	out, _ := w.command(0, "backup", "--to", backup, "--set", "data_dir="+dir)
	if !strings.HasPrefix(out, backup+": ") {
		t.Errorf("the backup says %s", out)
	}
	w.stop(s)
	w.command(0, "restore", "--from", backup, "--data-dir", restored)
	for _, top := range []string{backup, restored} {
		wantPrivate(t, top)
	}
	s = w.serve(restored, "--no-workers")
	w.compare("restored", want)
	w.stop(s)
	w.serve(restored)
	w.goOn()
}

// wantPrivate wants all below a directory to be accessible for its owner alone.
func wantPrivate(t *testing.T, top string) {
	t.Helper()
	if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// backupMode is how a kind of database is backed up and restored.
type backupMode struct {
	dir, restored   string   // the data directories of the server and of the restored one
	store, newStore []string // flags of the server and of the restored one
	backup          func(loaded func())
	restore         func()
}

// TestBackupUnderLoad backs up a server that is given jobs of all contracts all the while, kills
// it, and restores the backup. Everything that was acknowledged before the backup began is there,
// once, and ends as it should; so does what came later and is in the database.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		w, root := newKeptWorld(t), t.TempDir()
		at := func(name string) string { return filepath.Join(root, name) }
		w.backUpUnderLoad(backupMode{dir: at("data"), restored: at("restored"),
			backup: func(func()) {
				w.command(0, "backup", "--to", at("backup"), "--set", "data_dir="+at("data"))
			},
			restore: func() {
				w.command(0, "restore", "--from", at("backup"), "--data-dir", at("restored"))
			}})
	})
	// The commands are those of docs/backup.md.
	t.Run("PostgreSQL", func(t *testing.T) {
		w, root := newKeptWorld(t), t.TempDir()
		w.generate = true // its token is copied
		postgres := outside.NewPostgres(t)
		store, newStore := postgres.Database("mine"), postgres.URL("mine", "restored")
		postgres.Exec("postgres", "CREATE DATABASE restored OWNER mine")
		commands := codeBlocks(t, "backup.md", "sh")
		objects, rest, found := strings.Cut(commands[backupDump], "pg_dump")
		if !found {
			t.Fatalf("there is no pg_dump in %s", commands[backupDump])
		}
		run := func(command string) {
			t.Helper()
			runIn(t, root, command, "STORE="+store, "NEW="+newStore)
		}
		w.backUpUnderLoad(backupMode{dir: filepath.Join(root, "millrace-data"),
			restored: filepath.Join(root, "restored-pg"), store: []string{"--set", "store=" + store},
			newStore: []string{"--set", "store=" + newStore, "--set", "rebind_storage=true"},
			backup: func(loaded func()) {
				run(objects)
				loaded() // so that the first copy does not have all objects
				run("umask 077; pg_dump" + rest)
				wantPrivate(t, filepath.Join(root, "backup-pg"))
			},
			restore: func() { run(commands[backupLoad]) }})
	})
}

// backUpUnderLoad backs a server up in one mode, and looks for what was acknowledged.
func (w *keptWorld) backUpUnderLoad(mode backupMode) {
	w.Helper()
	s := w.serve(mode.dir, append(slices.Clone(underLoad), mode.store...)...)
	l := w.startLoad()
	before := l.until(12)
	mode.backup(func() { l.until(len(l.until(0).pictures) + 4) })
	l.end()
	s.kill()
	mode.restore()
	w.serve(mode.restored, append(slices.Clone(underLoad), mode.newStore...)...)
	l.checkIn(mode.restored, before)
}

// TestBackupIsRefused: what backup and restore refuse, and that a damaged or unfinished backup
// leaves nothing that a server starts on.
func TestBackupIsRefused(t *testing.T) {
	w := newKeptWorld(t)
	dir, root := filepath.Join(t.TempDir(), "data"), t.TempDir()
	w.stop(w.serve(dir, "--set", "contracts=relay"))
	at := func(name string) string { return filepath.Join(root, name) }
	settings := []string{"--set", "data_dir=" + dir}
	w.command(0, append([]string{"backup", "--to", at("good")}, settings...)...)
	w.command(0, append([]string{"backup", "--to", at("bare"), "--no-secrets"}, settings...)...)
	if _, err := os.Stat(filepath.Join(at("bare"), "operator.token")); err == nil {
		t.Error("a backup without secrets has the token")
	}
	for name, damage := range map[string]func(dir string) error{
		"changed": func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, databaseName))
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(filepath.Join(dir, databaseName), text, 0o600)
		},
		"missing":    func(dir string) error { return os.Remove(filepath.Join(dir, databaseName)) },
		"unfinished": func(dir string) error { return os.Remove(filepath.Join(dir, "backup.json")) },
		"shortened":  func(dir string) error { return os.Truncate(filepath.Join(dir, "SHA256SUMS"), 0) },
	} {
		if err := os.CopyFS(at(name), os.DirFS(at("good"))); err != nil {
			t.Fatal(err)
		}
		if err := damage(at(name)); err != nil {
			t.Fatal(err)
		}
		w.command(1, "restore", "--from", at(name), "--data-dir", at(name+"-restored"))
		if _, err := os.Stat(filepath.Join(at(name+"-restored"), databaseName)); err == nil {
			t.Errorf("%s: there is a database", name)
		}
	}
	if _, err := launch(mustMillrace(t), at("changed-restored"), nil); err == nil ||
		!strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a start on half a restore: %v", err)
	}
	w.command(0, "restore", "--from", at("good"), "--data-dir", at("changed-restored"))
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{cli.ExitUnable, append([]string{"backup", "--to", at("good")}, settings...), "is not empty"},
		{cli.ExitUnable, []string{"restore", "--from", at("good"), "--data-dir", dir}, "is not empty"},
		{cli.ExitFailed, []string{"backup", "--to", at("none"), "--set", "data_dir=" + at("nowhere")},
			"there is no database"},
		{cli.ExitUsage, []string{"backup", "--to", at("none"), "--set",
			"store=postgres://u:secret@127.0.0.1:1/a"}, "docs/backup.md"},
		{cli.ExitUsage, []string{"backup"}, `"to"`},
	} {
		if _, text := w.command(c.code, c.args...); !strings.Contains(text, c.says) ||
			strings.Contains(text, "secret") {
			t.Errorf("%v says %s, want %q", c.args, text, c.says)
		}
	}
	if _, err := os.Stat(at("none")); err == nil {
		t.Error("a backup that failed leaves a directory")
	}
}
