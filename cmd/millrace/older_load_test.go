package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkUpgradesUnderLoad has an older binary under load when this one comes, with jobs of all
// contracts. Everything that was acknowledged is there then, once, and ends as it should.
func checkUpgradesUnderLoad(t *testing.T, name, older string) {
	t.Helper()
	t.Run(name+", killed on SQLite", func(t *testing.T) { checkKilledUpgrade(t, older) })
	t.Run(name+", replaced on PostgreSQL", func(t *testing.T) { checkReplacedNode(t, older) })
}

// checkKilledUpgrade kills the older server, and starts this version on its directory, which brings
// the schema up to date.
func checkKilledUpgrade(t *testing.T, older string) {
	w, dir := newKeptWorld(t), filepath.Join(t.TempDir(), "data")
	w.binary = older
	s := w.serve(dir, underLoad...)
	l := w.startLoad()
	l.until(12)
	l.kill(s)
	w.binary = ""
	w.serve(dir, underLoad...)
	l.checkIn(dir, l.acked)
}

// checkReplacedNode starts a node of this version beside the older one, which is stopped then.
func checkReplacedNode(t *testing.T, older string) {
	w, shared := newKeptWorld(t), newFetchShared(t)
	mustWriteFile(t, shared.dir, "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
	settings := append(slices.Concat(underLoad, shared.args), "--set", "secrets.pepper_file="+
		filepath.Join(shared.dir, "pepper"), "--set", "operator.token="+operatorSecret)
	w.binary = older
	former := w.serve(filepath.Join(shared.dir, "older"), settings...)
	l := w.startLoad()
	l.until(6)
	current, err := launch(mustMillrace(t), filepath.Join(shared.dir, "current"), nil,
		append(settings, worldSettings...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(current.kill)
	awaitReady(t, current.url)
	l.until(len(l.until(0).graphs) + 6)
	l.end()
	w.stop(former)
	w.url = current.url
	l.check(filepath.Join(shared.s3.Root, "millrace"), operatorSecret, l.acked)
}
