package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// built is where the server of the tests is built, which do not change it.
var built string

// TestMain removes that server after all tests. The process of a NATS server begins here, too.
func TestMain(m *testing.M) {
	serveNATS()
	dir, err := os.MkdirTemp("", "torture-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitNoVerdict)
	}
	built = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// buildOnce builds the server for all tests that do not change it.
var buildOnce = sync.OnceValues(func() (string, error) { return build(nil, built) })

// serverBinary is the path of that server.
func serverBinary(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
