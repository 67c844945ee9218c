package main

import (
	"bytes"
	"database/sql"
	"image"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// TestKilledInItsTerm: a node that is killed while it is elected to publish, and started again on
// its data directory, publishes at once. So that no test has to measure what at once is, the terms
// of the killed one are made to last for a day.
func TestKilledInItsTerm(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "data")
		killDuringTerm(t, dir, func() *sql.DB {
			db, err := sql.Open("sqlite", filepath.Join(dir, "millrace.db"))
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.URL(t)
		killDuringTerm(t, filepath.Join(t.TempDir(), "data"), func() *sql.DB {
			return pgtest.DB(t, url)
		},
			"--set", "store="+url)
	})
}

func killDuringTerm(t *testing.T, dir string, database func() *sql.DB, args ...string) {
	var called sync.Map
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called.Store(r.URL.Path, true)
	}))
	t.Cleanup(receiver.Close)
	start := func() *launchedServer {
		return launchIn(t, dir, append([]string{"--set", "contracts=forgerun,images",
			"--set", "forgerun.duration_scale=0.001", "--set", "log.level=warn"}, args...)...)
	}
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewRGBA(image.Rect(0, 0, 90, 60)), nil); err != nil {
		t.Fatal(err)
	}
	work := func(s *launchedServer, path string) {
		t.Helper()
		submitWithReceiver(t, s.url, receiver.URL+path)
		pollUntil(t.Fatalf, "the webhook", func() bool { _, is := called.Load(path); return is })
		var made struct {
			JobID string `json:"job_id"`
		}
		imageCall(t, s.url, "POST", "/images/v1/files?sizes=50", picture.Bytes(), 202, &made)
		pollUntil(t.Fatalf, "the picture", func() bool {
			var j struct{ Status string }
			imageCall(t, s.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &j)
			return j.Status == "completed"
		})
	}
	first := start()
	work(first, "/first")
	first.kill()
	db := database()
	if _, err := db.Exec("UPDATE leaders SET term_end=term_end+86400000000"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	repeated := start()
	work(repeated, "/again")
	if err := repeated.terminate(); err != nil {
		t.Error(err)
	}
	if output := repeated.stderr.String(); output != "" {
		t.Errorf("the server said %s", output)
	}
}

// submitWithReceiver submits a job of a new client with a callback to a receiver.
func submitWithReceiver(t *testing.T, at, receiver string) {
	t.Helper()
	if _, err := forgeClient(t, at).Submit(t.Context(),
		client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
			Kind: client.ForgeRunWorkSuccessFast, Callback: receiver}); err != nil {
		t.Fatal(err)
	}
}

// TestCopyEndsNoTerms: the node that is named in a copy of a data directory may be running, so a
// node on the copy does not end its terms.
func TestCopyEndsNoTerms(t *testing.T) {
	c := newCopyTest(t)
	dir := filepath.Join(t.TempDir(), "data")
	first := c.start(dir)
	c.process(first, 1)
	copied := c.copyDir(dir)
	db := pgtest.DB(t, c.store)
	defer db.Close()
	terms := func() (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT count(*) FROM leaders WHERE term_end>$1",
			time.Now().Add(time.Hour).UnixMicro()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first.kill() // else it renews its terms
	if _, err := db.Exec("UPDATE leaders SET term_end=term_end+86400000000"); err != nil {
		t.Fatal(err)
	}
	before := terms()
	launchIn(t, copied, "--set", "store="+c.store, "--set", "contracts=relay",
		"--no-workers").kill()
	if after := terms(); before == 0 || after != before {
		t.Errorf("the terms were %d, and after the start on a copy %d", before, after)
	}
	// the line with the address comes after the terms were ended
	launchIn(t, dir, "--set", "store="+c.store, "--set", "contracts=relay").kill()
	if after := terms(); after != 0 {
		t.Errorf("after the start on the directory itself there are %d terms", after)
	}
}
