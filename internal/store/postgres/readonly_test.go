package postgres_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// Views run beside nodes and see what they have committed; they make no schema.
func TestViews(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	if _, err := postgres.OpenViews(t.Context(), postgres.Config{URL: url}); err == nil {
		t.Fatal("an empty database passes for one with jobs")
	}
	var tables int
	if err := pgtest.DB(t,
		url).QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname=current_schema()").Scan(
		&tables); err != nil || tables != 0 {
		t.Errorf("%d tables were made, %v", tables, err)
	}
	s := mustOpen(t, postgres.Config{URL: url})
	v, err := postgres.OpenViews(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	id := job.ID{JobType: "relay", Key: "k"}
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		j := &job.Job{ID: id, Queue: "q", State: "queued", Phase: job.Ready}
		return tx.Apply(store.Changes{Insert: []*job.Job{j}})
	}); err != nil {
		t.Fatal(err)
	}
	there := false
	if err := v.View(t.Context(), func(r store.Reader) (err error) {
		there, err = r.Exists(id)
		return err
	}); err != nil || !there {
		t.Errorf("the job is seen: %v, %v", there, err)
	}
	if _, err := pgtest.DB(t,
		url).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)"); err != nil {
		t.Fatal(err)
	}
	if _, err = postgres.OpenViews(t.Context(), postgres.Config{URL: url}); !job.IsKind(err,
		job.ReadOnly) || !strings.Contains(err.Error(), "schema 99999") {
		t.Errorf("got %v", err)
	}
}
