package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPooled runs three nodes behind a PgBouncer that is killed and frozen, and finds nothing wrong
// with them.
func TestPooled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts servers under load")
	}
	t.Parallel()
	url := os.Getenv("MILLRACE_TEST_POSTGRES")
	_, err := exec.LookPath("pgbouncer")
	if err != nil && os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	if err != nil || url == "" {
		t.Skip("skipped: there is no PgBouncer, or MILLRACE_TEST_POSTGRES is not set")
	}
	var output bytes.Buffer
	code := Main(t.Context(), []string{"-seed", "24", "-store", "postgres", "-postgres", url,
		"-nodes", "3", "-pgbouncer", "-only", faultPooler, "-load", "6s", "-dir", t.TempDir(),
		"-binary", serverBinary(t)}, &output)
	for _, text := range []string{"no violation", "with 3 node(s)", " × pgbouncer: "} {
		if code != exitGood || !strings.Contains(output.String(), text) {
			t.Errorf("exit code %d, without %q:\n%s", code, text, &output)
		}
	}
}

// TestPooledPlans: PgBouncer is before one PostgreSQL server, and is harmed where it is.
func TestPooledPlans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags string
		want  bool
	}{
		{"-store postgres -pgbouncer -only restart", true},
		{"-store postgres -pgbouncer -only pgbouncer -mode frozen", true},
		{"-store postgres -only pgbouncer", false},
		{"-store postgres -pgbouncer -only failover", false},
		{"-pgbouncer", false},
	} {
		if _, _, err := readPlan(strings.Fields(c.flags), io.Discard); (err == nil) != c.want {
			t.Errorf("%s: %v", c.flags, err)
		}
	}
}
