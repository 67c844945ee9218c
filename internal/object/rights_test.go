package object_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestLeastRights: a store that may only get, put and delete knows what is missing, of which S3
// says no more than that access is denied.
func TestLeastRights(t *testing.T) {
	server := outside.NewS3(t, "millrace", "other")
	rights := server.Restricted(t)
	w := &fixture{mustOpen(t, object.Config{URL: rights.Setting(), Bucket: "millrace"}),
		server.Root}
	first, err := w.CreateID(t.Context(), "id")
	if err != nil || first == "" {
		t.Fatalf("the marker is made: got %q, %v", first, err)
	}
	if repeated, err := w.ID(t.Context()); repeated != first || err != nil {
		t.Errorf("the marker is read: got %q, %v, want %q", repeated, err, first)
	}
	if err := w.Ping(t.Context(), "", "other"); err != nil {
		t.Error(err)
	}
	w.mustPut(t, "a/b", "text")
	if got, _ := w.mustGet(t, "", "a/b"); got != "text" {
		t.Errorf("got %q", got)
	}
	for _, bucket := range []string{"", "other"} {
		if _, _, err := w.Open(t.Context(), bucket, "a/missing"); !job.IsKind(err, job.NotFound) {
			t.Errorf("a missing object in %q: got %v, want %s", bucket, err, job.NotFound)
		}
		if exists, err := w.Exists(t.Context(), bucket, "a/missing"); exists || err != nil {
			t.Errorf("a missing object in %q: got %t, %v", bucket, exists, err)
		}
	}
	if exists, err := w.Exists(t.Context(), "", "a/b"); !exists || err != nil {
		t.Errorf("an object: got %t, %v", exists, err)
	}
	for range 2 {
		if err := w.Delete(t.Context(), "", "a/b"); err != nil {
			t.Error(err)
		}
	}
	if rights.Missing.Load() == 0 {
		t.Error("nothing missing was asked for")
	}
	_, err = w.List(t.Context(), "", "a/", "", 9)
	if !job.IsKind(err, job.Internal) || rights.Listings.Load() == 0 {
		t.Errorf("a listing is refused: got %v", err)
	}
	if _, _, err := w.Open(t.Context(), "third", "a"); job.IsKind(err, job.NotFound) {
		t.Errorf("a bucket that is missing is no object that is missing: %v", err)
	}
	for _, file := range w.fileNames(t) {
		if strings.Contains(file, "health") {
			t.Errorf("%s is left", file)
		}
	}
}
