package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// sharedFetchBox is what two nodes of FetchBox have in common: a database, a NATS server and an S3
// server.
type sharedFetchBox struct {
	nats  *outside.NATSServer
	s3    *outside.S3Server
	args  []string
	dir   string
	nodes int
}

func newFetchShared(t *testing.T) *sharedFetchBox {
	t.Helper()
	s := &sharedFetchBox{nats: outside.NewNATS(t, ""), s3: outside.NewS3(t, "millrace"),
		dir: t.TempDir()}
	s.args = []string{"--set", "store=" + pgtest.URL(t), "--set", "stream.url=" + s.nats.URL,
		"--set", "objects.url=" + s.s3.Setting()}
	return s
}

func (s *sharedFetchBox) node(t *testing.T, args ...string) *launchedServer {
	t.Helper()
	s.nodes++
	return launchFetchBox(t, filepath.Join(s.dir, fmt.Sprint("node", s.nodes)),
		append(s.args, args...)...)
}

func (s *sharedFetchBox) objects(t *testing.T, prefix string) map[string]string {
	t.Helper()
	return filesBelow(t, prefix, filepath.Join(s.s3.Root, "millrace"))
}

// TestFetchBoxCrowd gives two nodes 50 manifests of 100 resources and a limit of 8, and kills one
// of them in the middle.
func TestFetchBoxCrowd(t *testing.T) {
	t.Parallel()
	const manifests, n, limit = 50, 100, 8
	site := newOrigin(t, nil)
	s := newFetchShared(t)
	config := filepath.Join(s.dir, "limit.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil,
		"[job_types.default.options]\nmax_parallel_downloads = %d\n", limit), 0o600); err != nil {
		t.Fatal(err)
	}
	limited := []string{"--config", config, "--set", "fetchbox.tries=10"}
	doomed, other := s.node(t, limited...), s.node(t, limited...)
	jobs := map[string]string{} // id to the name of its manifest
	var mu sync.Mutex
	var all sync.WaitGroup
	for client := range 5 {
		all.Go(func() {
			for i := client; i < manifests; i += 5 {
				name := fmt.Sprint("m", i)
				url := other.url
				if i%2 == 0 {
					url = doomed.url
				}
				status, id := postManifest(t, url, name, site.resources(name, n))
				if status == 0 { // that node is gone: the key makes it one job
					status, id = postManifest(t, other.url, name, site.resources(name, n))
				}
				if status != http.StatusAccepted {
					t.Errorf("%s: got status %d", name, status)
				}
				mu.Lock()
				jobs[id] = name
				mu.Unlock()
				if i == manifests/2 {
					doomed.kill()
				}
			}
		})
	}
	all.Wait()
	s.node(t, limited...)
	if len(jobs) != manifests {
		t.Fatalf("%d manifests became %d jobs", manifests, len(jobs))
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) { // the oldest first, as they are fetched
		awaitFetched(t, other.url, id, n)
	}
	t.Run("FB-074 never more at the origin", func(t *testing.T) {
		if peak := site.peak.Load(); peak > limit || peak < 2 {
			t.Errorf("the origin saw %d at a time, want up to %d", peak, limit)
		}
	})
	t.Run("FB-086 every resource is there, once", func(t *testing.T) {
		wantObjects(t, s.objects(t, "resources"), jobs, n)
	})
}

// TestFetchBoxOutages kills what FetchBox stands on, during ingest and during downloads.
func TestFetchBoxOutages(t *testing.T) {
	t.Parallel()
	const n = 20
	site := newOrigin(t, nil)
	s := newFetchShared(t)
	node := s.node(t, "--set", "fetchbox.tries=100")
	jobs := map[string]string{}
	for _, outage := range []struct {
		name          string
		kill, restart func()
	}{
		{"streams", s.nats.Kill, s.nats.Restart},
		{"storage", s.s3.Kill, s.s3.Restart},
	} {
		during, before := outage.name+"-during", outage.name+"-before"
		running := mustPost(t, node.url, before, site.resources(before, n))
		jobs[running] = before
		outage.kill()
		t.Run("FB-035 FB-044 "+outage.name+" are unavailable", func(t *testing.T) {
			if status, id := postManifest(t, node.url, during,
				site.resources(during, n)); status != http.StatusInternalServerError || id != "" {
				t.Errorf("got status %d and job %q, want 500", status, id)
			}
			if repeated := mustPost(t, node.url, before,
				site.resources(before, n)); repeated != running {
				t.Errorf("got job %s for the key of %s", repeated, running)
			}
		})
		outage.restart()
		t.Run("FB-049 "+outage.name+" are back and the key is free", func(t *testing.T) {
			pollUntil(t.Fatalf, "the manifest to be accepted", func() bool {
				status, id := postManifest(t, node.url, during, site.resources(during, n))
				if status != http.StatusAccepted {
					return false
				}
				jobs[id] = during
				return true
			})
			for _, id := range slices.Sorted(maps.Keys(jobs)) {
				awaitFetched(t, node.url, id, n)
			}
		})
	}
	t.Run("FB-035 nothing is left of what was refused", func(t *testing.T) {
		var list struct{ Items []fetchJob }
		if !fetchGet(node.url+"/operators/jobs?limit=100", &list) || len(list.Items) != len(jobs) {
			t.Errorf("the ledger has %+v", list.Items)
		}
		if manifests := s.objects(t, "manifests"); len(manifests) != len(jobs) {
			t.Errorf("%d manifests are stored of %d jobs", len(manifests), len(jobs))
		}
		wantObjects(t, s.objects(t, "resources"), jobs, n)
	})
}
