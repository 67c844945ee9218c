package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestOlderAlternates: of two nodes that are started one after the other one is older, and each
// start of a node is of the other version than the one before.
func TestOlderAlternates(t *testing.T) {
	t.Parallel()
	for number, want := range [][]string{{"old", "new", "old"}, {"new", "old", "new"}} {
		n := &node{number: number, binary: "new", older: "old"}
		got := []string{n.nextBinary(), n.nextBinary(), n.nextBinary()}
		if !slices.Equal(got, want) || n.starts.All != 3 || n.starts.Older != 2-number {
			t.Errorf("node %d: %v, %+v", number, got, n.starts)
		}
	}
	if _, _, err := readPlan([]string{"-older", "x", "-store", "postgres", "-nodes", "2", "-only",
		faultFreeze}, io.Discard); err == nil {
		t.Error("an older server is frozen")
	}
}

// TestOlderRefused: a node whose older server does not know the schema goes on with the other one.
func TestOlderRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	dir := t.TempDir()
	older := filepath.Join(dir, "older")
	if err := os.WriteFile(older, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &plan{Dir: dir, Binary: serverBinary(t), Older: older, Nodes: 1}
	if err := os.WriteFile(filepath.Join(dir, "pepper"), make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := newNode(0, p, "sqlite", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.kill()
	r := &run{plan: p, output: io.Discard}
	if err := r.restart(t.Context(), n); err != nil || n.older != "" || n.starts.All != 2 {
		t.Errorf("%+v: %v", n.starts, err)
	}
}
