package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// FB-093: export reads a ledger on PostgreSQL too, beside the node that writes it.
func TestExportPostgres(t *testing.T) {
	t.Parallel()
	store := "store=" + pgtest.URL(t)
	s := launchNode(t, "data", "--set", store)
	origin := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(origin.Close)
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 3 {
		manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{
			{ID: "001", URL: origin.URL}}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := c.FetchBox().Submit(t.Context(),
			client.FetchBoxSpec{Type: "default", Manifest: manifest})
		if err != nil {
			t.Fatal(err)
		}
		ids = append([]string{receipt.JobID}, ids...)
		if _, err := c.FetchBox().Wait(t.Context(), receipt.JobID); err != nil {
			t.Fatal(err)
		}
	}
	export := func(args ...string) string {
		binary := mustMillrace(t)
		var errs bytes.Buffer
		cmd := boundedCommand(t, binary, append([]string{"export"}, args...)...)
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, &errs)
		}
		return string(text)
	}
	dir := filepath.Join(t.TempDir(), "none")
	var lines []string
	// the server records the end of each job a moment after its last download
	pollUntil(t.Fatalf, "the ledger to come to rest", func() bool {
		lines = strings.Split(strings.TrimSpace(export("--config", os.DevNull, "--set", store,
			"--set", "data_dir="+dir)), "\n")
		return !strings.Contains(strings.Join(lines, ""), `"finished_at":null`)
	})
	for i, id := range ids {
		if len(lines) != len(ids) || !strings.HasPrefix(lines[i],
			`{"job_id":"`+id+`","job_type":"default","status":"failed",`) {
			t.Fatalf("got %q, want %v", lines, ids)
		}
	}
	if asked := export("--server", s.url); asked != strings.Join(lines, "\n")+"\n" {
		t.Errorf("the server says\n%s, the store\n%s", asked, strings.Join(lines, "\n"))
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a data directory was made")
	}
}

func TestParseTimeOrAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"": "0001-01-01T00:00:00Z",
		"36h": "2026-03-01T00:00:00Z", "2026-03-01": "2026-03-01T00:00:00Z",
		"2026-03-01T10:00:00+02:00": "2026-03-01T08:00:00Z", "yesterday": "error", "-": "error"} {
		at, err := cli.ParseTimeOrAge(now, "--since", text)
		got := at.UTC().Format(time.RFC3339Nano)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
