package object_test

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
)

// TestCopy copies a bucket to another storage and back: every object has its bytes and attributes,
// a second copy copies what is new or has changed alone, and each storage keeps its own marker.
func TestCopy(t *testing.T) {
	forEachBackend(t, func(t *testing.T, to *fixture) {
		from := mustOpenDirectory(t)
		back := &fixture{mustOpen(t, object.Config{Dir: filepath.Join(t.TempDir(), "back"),
			Bucket: "millrace"}), ""}
		attributes := object.Attributes{ContentType: "text/plain",
			Metadata: map[string]string{"by": "a"}}
		for i, key := range []string{"a/b/c", "a.b", "d", "empty"} {
			text := strings.Repeat("x", 1000*i)
			if key == "empty" {
				text = ""
			}
			if _, err := from.Put(t.Context(), "", key, strings.NewReader(text),
				attributes); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range []*fixture{from, to} {
			if _, err := w.CreateID(t.Context(), w.dir); err != nil {
				t.Fatal(err)
			}
		}
		copied := func(a, b *fixture) (isNew, present int64) {
			t.Helper()
			var counts [2]atomic.Int64
			if err := object.Copy(t.Context(), a.Objects, b.Objects, "millrace",
				func(_ int64, isNew bool) {
					if isNew {
						counts[0].Add(1)
					} else {
						counts[1].Add(1)
					}
				}); err != nil {
				t.Fatal(err)
			}
			return counts[0].Load(), counts[1].Load()
		}
		if isNew, present := copied(from, to); isNew != 4 || present != 0 {
			t.Errorf("%d objects were copied, %d were there", isNew, present)
		}
		if isNew, present := copied(to, back); isNew != 4 || present != 0 {
			t.Errorf("back: %d objects were copied, %d were there", isNew, present)
		}
		for key, size := range map[string]int{"a/b/c": 0, "a.b": 1000, "d": 2000, "empty": 0} {
			text, info := back.mustGet(t, "", key)
			if text != strings.Repeat("x", size) || info.ContentType != "text/plain" ||
				info.Metadata["by"] != "a" {
				t.Errorf("%s has %d bytes and %+v", key, len(text), info)
			}
		}
		from.mustPut(t, "d", strings.Repeat("y", 2000))
		from.mustPut(t, "new", "z")
		if isNew, present := copied(from, back); isNew < 2 || isNew+present != 5 {
			t.Errorf("later %d objects were copied, %d were there", isNew, present)
		}
		if text, _ := back.mustGet(t, "", "d"); !strings.HasPrefix(text, "y") {
			t.Error("an object that has changed was not copied")
		}
		if id, err := to.ID(t.Context()); err != nil || id != to.dir {
			t.Errorf("the marker is %q, %v", id, err)
		}
		if id, err := back.ID(t.Context()); err != nil || id != "" {
			t.Errorf("the marker was copied: %q, %v", id, err)
		}
	})
}

// TestCopyFails: an object that cannot be stored ends the copy with an error that names it.
func TestCopyFails(t *testing.T) {
	t.Parallel()
	from, to := mustOpenDirectory(t), mustOpenDirectory(t)
	from.mustPut(t, "a", "x")
	to.mustPut(t, "a/b", "y") // in a directory no key can be a folder of another
	err := object.Copy(t.Context(), from.Objects, to.Objects, "millrace", func(int64, bool) {})
	if !job.IsKind(err, job.Conflict) || !strings.Contains(err.Error(), "s3://millrace/a") {
		t.Errorf("got %v", err)
	}
}
