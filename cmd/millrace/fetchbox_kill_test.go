package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// killedFetchBox is a server of FetchBox that is killed and started again on the same directory.
type killedFetchBox struct {
	*launchedServer
	dir string
}

func (k *killedFetchBox) start(t *testing.T, args ...string) {
	t.Helper()
	k.launchedServer = launchFetchBox(t, k.dir, args...)
}

func (k *killedFetchBox) bucket() string { return filepath.Join(k.dir, "objects", "millrace") }

// TestFetchBoxKilledAfterAccepting kills the server the moment it has accepted a manifest, twenty
// times.
func TestFetchBoxKilledAfterAccepting(t *testing.T) {
	t.Parallel()
	const kills, n = 20, 8
	site := newOrigin(t, nil)
	k := &killedFetchBox{dir: filepath.Join(t.TempDir(), "data")}
	jobs := map[string]string{} // id to the name of its manifest
	last := ""
	for kill := range kills {
		k.start(t)
		if last != "" {
			awaitFetched(t, k.url, last, n)
		}
		name := fmt.Sprint("m", kill)
		last = mustPost(t, k.url, name, site.resources(name, n))
		k.kill()
		jobs[last] = name
	}
	k.start(t)
	awaitFetched(t, k.url, last, n)
	t.Run("FB-034 every resource is fetched", func(t *testing.T) {
		wantObjects(t, filesBelow(t, "resources", k.bucket()), jobs, n)
		if manifests := filesBelow(t, "manifests", k.bucket()); len(manifests) != kills {
			t.Errorf("%d manifests are stored, want %d", len(manifests), kills)
		}
	})
	t.Run("FB-056 counters are exact", func(t *testing.T) {
		for id := range jobs {
			awaitFetched(t, k.url, id, n)
		}
	})
	t.Run("FB-046 the keys are known", func(t *testing.T) {
		for id, name := range jobs {
			if repeated := mustPost(t, k.url, name, site.resources("another", 1)); repeated != id {
				t.Errorf("%s gave %s, then %s", name, id, repeated)
			}
		}
	})
	t.Run("FB-059 logs are whole, and each resource is stored once", func(t *testing.T) {
		for id := range jobs {
			pollUntil(t.Fatalf, "the log of "+id, func() bool {
				lines := logOf(t, k.url, id)
				return len(lines) > 0 &&
					strings.HasPrefix(lines[len(lines)-1].Message, "the job is completed")
			})
			stored, before := map[string]int{}, uint64(0)
			for i, l := range logOf(t, k.url, id) {
				if l.Offset <= before || (l.Message == "the job is accepted") != (i == 0) {
					t.Errorf("%s: %+v comes after offset %d", id, l, before)
				}
				if before = l.Offset; l.Message == "the resource is stored" {
					stored[l.ResourceID]++
				}
			}
			for i := range n {
				if r := fmt.Sprint("r", i); stored[r] != 1 {
					t.Errorf("%s: %s is stored %d times", id, r, stored[r])
				}
			}
		}
	})
	if err := k.terminate(); err != nil {
		t.Error(err)
	}
}

// partialBodies are the bodies that are being written; attributes that objects share lie beside
// them.
func (k *killedFetchBox) partialBodies(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(k.dir, "objects", ".temp", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool {
		return filepath.Ext(name) == ".attrs"
	})
}

// TestFetchBoxKilledInMidDownload kills the server while resources are half there.
func TestFetchBoxKilledInMidDownload(t *testing.T) {
	t.Parallel()
	const n = 4
	var hold atomic.Bool
	hold.Store(true)
	half := make(chan struct{}, n)
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		text := strings.Repeat(bodyOf(r.URL.Path), 10_000)
		if hold.Load() {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = io.WriteString(w, text[:len(text)/2])
			_ = http.NewResponseController(w).Flush()
			half <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, text)
	})
	k := &killedFetchBox{dir: filepath.Join(t.TempDir(), "data")}
	k.start(t)
	id := mustPost(t, k.url, "", site.resources("big", n))
	for range n {
		<-half
	}
	started := func() bool { // a part of it is on disk, in a temporary file
		return len(k.partialBodies(t)) == n
	}
	pollUntil(t.Fatalf, "halves on the disk", started)
	k.kill()
	t.Run("FB-087 nothing torn is left", func(t *testing.T) {
		if files := filesBelow(t, "resources", k.bucket()); len(files) != 0 {
			t.Errorf("%d objects are stored", len(files))
		}
	})
	hold.Store(false)
	k.start(t)
	awaitFetched(t, k.url, id, n)
	t.Run("FB-087 all are taken up again", func(t *testing.T) {
		for i := range n {
			key, want := fmt.Sprintf("resources/default/%s/r%d", id, i),
				strings.Repeat(bodyOf(fmt.Sprint("/big/", i)), 10_000)
			if got := filesBelow(t, "resources", k.bucket())[key]; got != want {
				t.Errorf("%s has %d bytes, want %d", key, len(got), len(want))
			}
			if asked := site.times(fmt.Sprint("/big/", i)); asked != 2 {
				t.Errorf("r%d was asked for %d times", i, asked)
			}
		}
		if left := k.partialBodies(t); len(left) != 0 {
			t.Errorf("halves are left: %v", left)
		}
	})
	if err := k.terminate(); err != nil {
		t.Error(err)
	}
}
