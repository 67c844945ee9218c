package images_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// Operators see each file once, at its latest job, in pages of any size, with what was made of it;
// a picture can be opened until the file is deleted.
func TestOperatorFiles(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		shown := w.images.Offer().Files
		if page, next, err := shown.List(t.Context(), 0, 10); len(page) > 0 || next != 0 ||
			err != nil {
			t.Fatalf("without files got %v, %d, %v", page, next, err)
		}
		a, b := w.put(t, pngOf(t, 90, 60)), w.put(t, jpegOf(t, 90, 60))
		c := testkit.DecodeReply[receipt](t, w.send(t, "image/jpeg", []byte("no picture"),
			"").WantStatus(t, 202))
		w.attempt(t, a.JobID)
		w.attempt(t, c.JobID)
		w.attempt(t, w.create(t, "process_file", a.FileID, `"sizes":[32]`).JobID)
		wantFiles(t, shown, []string{a.FileID, c.FileID, b.FileID})
		got := mustGet(t, shown, a.FileID)
		assertEqual(t, "state", got.Status, "ready")
		assertEqual(t, "pixels", got.Width*1000+got.Height, 90_060)
		assertEqual(t, "variants", len(got.Variants), 3)
		assertEqual(t, "not made yet", len(mustGet(t, shown, b.FileID).Pending), 2)
		assertEqual(t, "state", mustGet(t, shown, c.FileID).Status, "failed")
		body, _, mime, err := shown.Open(t.Context(), a.FileID, 32)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := io.ReadAll(body)
		body.Close()
		assertEqual(t, "type", mime, http.DetectContentType(picture))
		if err != nil || int64(len(picture)) != got.Variants[1].Bytes {
			t.Errorf("the picture has %d bytes: %v", len(picture), err)
		}
		for _, id := range []string{"x", "", a.JobID} {
			if _, err := shown.Get(t.Context(), id); !job.IsKind(err, job.NotFound) {
				t.Errorf("the file %q: got %v", id, err)
			}
		}
		w.Do(t, "DELETE", filesPath+"/"+a.FileID, "").WantStatus(t, 202)
		deleted := mustGet(t, shown, a.FileID)
		assertEqual(t, "state", deleted.Status, "deleted")
		assertEqual(t, "variants", len(deleted.Variants), 0)
		for id, size := range map[string]int{a.FileID: 32, b.FileID: 16, "x": 16} {
			if _, _, _, err := shown.Open(t.Context(), id, size); !job.IsKind(err, job.NotFound) {
				t.Errorf("the picture of %s: got %v", id, err)
			}
		}
	})
}

// wantFiles fails unless these are the files, in pages of one and of all.
func wantFiles(t *testing.T, shown contract.Files, want []string) {
	t.Helper()
	for _, limit := range []int{1, len(want)} {
		var got []string
		for before := int64(-1); before != 0; {
			page, next, err := shown.List(context.Background(), max(0, before), limit)
			if err != nil || len(page) > limit {
				t.Fatalf("got %d files: %v", len(page), err)
			}
			for _, f := range page {
				got = append(got, f.ID)
			}
			before = next
		}
		if encoded(got) != encoded(want) {
			t.Errorf("in pages of %d got %v, want %v", limit, got, want)
		}
	}
}

func mustGet(t *testing.T, shown contract.Files, id string) contract.File {
	t.Helper()
	f, err := shown.Get(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
