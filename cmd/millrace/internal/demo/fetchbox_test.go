package demo

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/client"
)

// The account of the demo's downloads must be able not to balance.
func TestDemoFetch(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for name, size := range map[string]int{"a": 3, "b": 0, "c": maxDownloadSize + 1} {
		if err := os.WriteFile(filepath.Join(tree, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := listFiles(tree)
	if err != nil {
		t.Fatal(err)
	}
	type world struct {
		o           *origin
		job         client.FetchBoxJob
		deadLetters []client.FetchBoxDeadLetter
		folder      string
	}
	for name, corrupt := range map[string]func(w *world){
		"":                    func(*world) {},
		"a download too many": func(w *world) { w.o.requests["file-02"]++ },
		"never tried again":   func(w *world) { w.o.requests[flakyID]-- },
		"not redirected":      func(w *world) { mustWrite(t, w.folder, movedID, nil) },
		"it is completed":     func(w *world) { w.job.Status = client.FetchBoxStatusCompleted },
		"one counted twice":   func(w *world) { w.job.Completed++ },
		"no dead letter":      func(w *world) { w.deadLetters = nil },
		"another's dead letter": func(w *world) {
			w.deadLetters[0].Task = []byte(`{"resource_id":"once"}`)
		},
		"another failure":   func(w *world) { w.deadLetters[0].Code = "HTTP_500" },
		"one is torn":       func(w *world) { mustWrite(t, w.folder, "file-01", []byte{0}) },
		"one is not there":  func(w *world) { os.Remove(filepath.Join(w.folder, "file-02")) },
		"what is not there": func(w *world) { mustWrite(t, w.folder, missingID, nil) },
	} {
		w := &world{o: newOrigin(files), folder: t.TempDir(),
			job: client.FetchBoxJob{Status: client.FetchBoxStatusFailed, Total: 5, Completed: 4,
				Failed: 1},
			deadLetters: []client.FetchBoxDeadLetter{{Task: []byte(`{"resource_id":"missing"}`),
				Code: "HTTP_404", Attempts: 1}}}
		for _, id := range []string{"file-01", "file-02", movedID, flakyID, flakyID,
			missingID} {
			path := "/" + id
			for range 2 { // a redirect is followed
				got := httptest.NewRecorder()
				w.o.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
				if got.Code == http.StatusOK {
					mustWrite(t, w.folder, id, got.Body.Bytes())
				}
				if path = got.Header().Get("Location"); path == "" {
					break
				}
			}
		}
		corrupt(w)
		if wrong := w.o.audit(w.job, w.deadLetters, w.folder); (len(wrong) == 0) != (name == "") {
			t.Errorf("%q: %v", name, wrong)
		}
	}
}

func mustWrite(t *testing.T, folder, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
