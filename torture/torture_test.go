package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs real servers for a few seconds under kills, and finds nothing wrong with them.
// TestRunsOfThePage has a run with a seeded bug, so that a harness that sees nothing fails.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	t.Parallel()
	var output bytes.Buffer
	dir := t.TempDir()
	code := Main(t.Context(), []string{"-seed", "7", "-load", "6s", "-batch", "40", "-dir", dir,
		"-binary", serverBinary(t)}, &output)
	if code != exitGood || !strings.Contains(output.String(), "no violation") {
		t.Errorf("exit code %d:\n%s", code, &output)
	}
	ledger, err := os.ReadFile(filepath.Join(dir, "ledger.jsonl"))
	if err != nil || bytes.Count(ledger, []byte("\n")) < 100 {
		t.Errorf("the ledger has %d bytes: %v", len(ledger), err)
	}
}

// s3Program returns the S3 server that the tests of the module use, in the cache of the user where
// MILLRACE_TEST_BIN names no other directory. It is built where no test may be skipped.
func s3Program(t *testing.T) string {
	t.Helper()
	const version, module = "v1.8.0", "github.com/versity/versitygw/cmd/versitygw"
	cache := os.Getenv("MILLRACE_TEST_BIN")
	if home, err := os.UserCacheDir(); err == nil && cache == "" {
		cache = filepath.Join(home, "millrace-test")
	}
	dir := filepath.Join(cache, "versitygw-"+version)
	program := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		t.Skip("skipped: there is no", program)
	}
	cmd := exec.Command("go", "install", module+"@"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if cmd.Dir = os.TempDir(); cmd.Run() != nil { // outside of this module
		t.Fatalf("%s cannot be built", cmd)
	}
	return program
}

// postgresURL is the PostgreSQL of the tests. It skips a test where there is none.
func postgresURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("MILLRACE_TEST_POSTGRES")
	if url == "" {
		t.Skip("skipped: MILLRACE_TEST_POSTGRES is not set")
	}
	return url
}

// sharedArgs are the flags of a run of two nodes that share streams and objects. It skips a test
// where what they need is not there.
func sharedArgs(t *testing.T, more ...string) (args []string, dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	dir = t.TempDir()
	return append([]string{"-dir", dir, "-store", "postgres", "-postgres", postgresURL(t), "-nodes",
		"2", "-s3", s3Program(t), "-binary", serverBinary(t)}, more...), dir
}

// TestSharedObjects runs two nodes on one PostgreSQL with FetchBox and Images, which share streams
// and objects, and finds nothing wrong with them.
func TestSharedObjects(t *testing.T) {
	t.Parallel()
	args, dir := sharedArgs(t, "-seed", "9", "-load", "6s", "-only", faultKill)
	var output bytes.Buffer
	code := Main(t.Context(), args, &output)
	if code != exitGood || !strings.Contains(output.String(), "no violation") {
		t.Errorf("exit code %d:\n%s", code, &output)
	}
	stored, err := filepath.Glob(filepath.Join(dir, "s3", sharedBucket, "*", "*"))
	if err != nil || len(stored) < 3 { // manifests, resources and pictures
		t.Errorf("the nodes have stored %q: %v", stored, err)
	}
}
