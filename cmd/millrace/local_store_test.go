package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestLocalStore: a start on PostgreSQL in a directory with a SQLite database names the jobs that
// stay behind, before anything is made, also while the server that has them still runs.
func TestLocalStore(t *testing.T) {
	t.Parallel()
	binary := mustMillrace(t)
	dir := filepath.Join(t.TempDir(), "data")
	start := func(args ...string) (*launchedServer, error) {
		s, err := launch(binary, dir, nil,
			append([]string{"--set", "contracts=relay", "--set", "log.level=warn"}, args...)...)
		if err == nil {
			t.Cleanup(s.kill)
		}
		return s, err
	}
	launchServer := func(args ...string) *launchedServer {
		t.Helper()
		s, err := start(args...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	other := "store=" + pgtest.URL(t)
	local := launchServer()
	refused := func(jobs string) {
		t.Helper()
		files, _ := os.ReadDir(dir)
		_, err := start("--set", other)
		if err == nil || !strings.Contains(err.Error(),
			fmt.Sprintf("data_dir: %q holds a SQLite database with %s", dir, jobs)) ||
			!strings.Contains(err.Error(), "--set ignore_local_store=true") {
			t.Errorf("with %s: got %v", jobs, err)
		}
		if after, _ := os.ReadDir(dir); len(after) != len(files) {
			t.Errorf("%d files became %d", len(files), len(after))
		}
	}
	post := func(body string) {
		t.Helper()
		if status, text := sendRequest(t, "POST", local.url+"/v2/queues/jobs", body, "Content-Type",
			"application/json"); status != 202 {
			t.Fatalf("got %d %s", status, text)
		}
	}
	post(`[{"queue":"q","id":"1","timeout":9,"payload":1}]`)
	refused("1 job")
	post(`[{"queue":"q","id":"2","timeout":9,"payload":1},{"queue":"q","id":"3","timeout":9,"payload":1}]`)
	if err := local.terminate(); err != nil {
		t.Fatal(err)
	}
	refused("3 jobs")
	// What a contract has beside its jobs, such as deliveries of webhooks, is none.
	setContract := func(to string) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(dir, "millrace.db"))
		if err == nil {
			_, err = db.Exec("UPDATE jobs SET contract=$1 WHERE key IN ('1','2')", to)
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	setContract("webhook")
	refused("1 job, which")
	setContract("relay")
	s := launchServer("--set", other, "--set", "ignore_local_store=true")
	awaitReady(t, s.url)
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}
	repeated := launchServer()
	if status, _ := sendRequest(t, "HEAD", repeated.url+"/v2/queues/q/jobs/3", ""); status != 200 {
		t.Errorf("the job that stayed behind: got %d", status)
	}
}
