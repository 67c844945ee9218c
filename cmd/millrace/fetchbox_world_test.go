package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// origin is where resources come from. It knows what it was asked for, and by how many at a time.
type origin struct {
	*httptest.Server
	now, peak atomic.Int64

	mu       sync.Mutex
	requests map[string]int // times, by path
}

// newOrigin starts an origin that answers as answer does, or with what bodyOf says.
func newOrigin(t *testing.T, answer http.HandlerFunc) *origin {
	t.Helper()
	if answer == nil {
		answer = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, bodyOf(r.URL.Path))
		}
	}
	o := &origin{requests: map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := o.now.Add(1)
		defer o.now.Add(-1)
		for old := o.peak.Load(); n > old &&
			!o.peak.CompareAndSwap(old, n); old = o.peak.Load() {
		}
		o.mu.Lock()
		o.requests[r.URL.Path]++
		o.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// times is how often a path was asked for.
func (o *origin) times(path string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.requests[path]
}

func bodyOf(path string) string { return "the resource at " + path }

// resources are n resources of an origin as a manifest of a name has them.
func (o *origin) resources(name string, n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"id":"r%d","url":"%s/%s/%d"}`, i, o.URL, name, i)
	}
	return `{"manifest_version":"v1","metadata":{},"resources":[` + strings.Join(entries, ",") +
		`]}`
}

// launchFetchBox starts a server of FetchBox on a directory. Workers that die are missed soon.
func launchFetchBox(t *testing.T, dir string, args ...string) *launchedServer {
	t.Helper()
	return launchIn(t, dir, append([]string{"--set", "contracts=fetchbox", "--set",
		"log.level=warn",
		"--set", "fetchbox.lease=3s", "--set", "fetchbox.backoff_base=10ms"}, args...)...)
}

// fetchJob is a job as operators see it.
type fetchJob struct {
	JobID     string `json:"job_id"`
	Status    string
	Total     int                             `json:"resource_total"`
	Completed int                             `json:"resource_completed"`
	Failed    int                             `json:"resource_failed"`
	LastError *struct{ Code, Message string } `json:"last_error"` // a try may have failed
}

// fetchClient speaks to FetchBox. Connections are not kept: servers come and go.
var fetchClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
	Timeout: testTimeout}

// postManifest submits a manifest, under a key if it is not empty. Status 0 is a request that was
// cut off.
func postManifest(t *testing.T, url, key, body string) (status int, jobID string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/jobs", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Fetchbox-Job-Type", "default")
	if key != "" {
		req.Header.Set("X-Fetchbox-Idempotency-Key", key)
	}
	resp, err := fetchClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	var r struct {
		JobID string `json:"job_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return 0, ""
	}
	return resp.StatusCode, r.JobID
}

// mustPost submits a manifest that is accepted.
func mustPost(t *testing.T, url, key, body string) (jobID string) {
	t.Helper()
	status, id := postManifest(t, url, key, body)
	if status != http.StatusAccepted {
		t.Fatalf("got status %d, want 202", status)
	}
	return id
}

// fetchGet reads what is under a path; false where the server does not give it.
func fetchGet(url string, into any) bool {
	resp, err := fetchClient.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into) == nil && resp.StatusCode == http.StatusOK
}

// awaitFetched waits until a job is done, and wants all of its n resources to be fetched.
func awaitFetched(t *testing.T, url, id string, n int) {
	t.Helper()
	var j fetchJob
	pollUntil(t.Fatalf, "the end of job "+id, func() bool {
		got := fetchJob{}
		if !fetchGet(url+"/operators/jobs/"+id, &got) {
			return false
		}
		if got.Completed < j.Completed || got.Completed > got.Total {
			t.Fatalf("FB-056 the counter went from %+v to %+v", j, got)
		}
		j = got
		return j.Status == "completed" || j.Status == "failed"
	})
	if want := (fetchJob{JobID: id, Status: "completed", Total: n, Completed: n,
		LastError: j.LastError}); j != want {
		t.Fatalf("got %+v, want %+v", j, want)
	}
}

// logLine is an entry of a job's log.
type logLine struct {
	Offset     uint64
	ResourceID string `json:"resource_id"`
	Message    string
}

// logOf reads a job's log.
func logOf(t *testing.T, url, id string) (lines []logLine) {
	t.Helper()
	resp, err := fetchClient.Get(url + "/operators/jobs/" + id + "/logs")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var l logLine
		if err := d.Decode(&l); err == io.EOF {
			return lines
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
}

// filesBelow are the files below some directories by their path in the bucket, without those that
// hold attributes. Where two have the same path they must be the same.
func filesBelow(t *testing.T, prefix string, buckets ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, bucket := range buckets {
		var names []string
		err := filepath.WalkDir(filepath.Join(bucket, prefix),
			func(path string, e os.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() && !strings.HasSuffix(path, ".attrs") {
					names = append(names, path)
				}
				return err
			})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(slices.Values(names)) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			key, _ := filepath.Rel(bucket, name)
			if other, twice := all[key]; twice && other != string(text) {
				t.Errorf("%s is there as %q and as %q", key, other, text)
			}
			all[key] = string(text)
		}
	}
	return all
}

// wantObjects wants the objects of jobs, and no others, to be what an origin has; jobs are ids and
// the names of their manifests.
func wantObjects(t *testing.T, files map[string]string, jobs map[string]string, n int) {
	t.Helper()
	if len(files) != len(jobs)*n {
		t.Errorf("%d objects are stored, want %d", len(files), len(jobs)*n)
	}
	for id, name := range jobs {
		for i := range n {
			key, want := fmt.Sprintf("resources/default/%s/r%d", id, i),
				bodyOf(fmt.Sprintf("/%s/%d", name, i))
			if got := files[key]; got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
	}
}
