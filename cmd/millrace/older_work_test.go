package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// mixedWork is nodes of two versions on one PostgreSQL, NATS and S3 with the work that servers do
// themselves: downloads, pictures, deliveries of webhooks, and jobs of schedules.
type mixedWork struct {
	*testing.T
	*sharedFetchBox
	site *origin
	hook *httptest.Server
	key  string // of a client of ForgeRun

	mu   sync.Mutex     // guards came
	came map[string]int // deliveries, by path and job
}

// mixedNode is one of the nodes, with a client that is its operator.
type mixedNode struct {
	*launchedServer
	*client.Client
}

// The schedules and webhooks that were made through a node of each version.
var bothVersions = []string{"old", "new"}

const mixedPeriod = 2 * time.Second

func newMixedWork(t *testing.T) *mixedWork {
	t.Helper()
	w := &mixedWork{T: t, sharedFetchBox: newFetchShared(t), site: newOrigin(t, nil),
		came: map[string]int{}}
	mustWriteFile(t, w.dir, "pepper", []byte(strings.Repeat("0123456789abcdef", 4)))
	w.args = append(w.args, "--set", "secrets.pepper_file="+filepath.Join(w.dir, "pepper"), "--set",
		"operator.token="+operatorSecret, "--set", "log.level=warn", "--set", "images.sizes=50",
		"--set", "forgerun.duration_scale=0.001")
	w.hook = httptest.NewServer(w)
	t.Cleanup(w.hook.Close)
	return w
}

// ServeHTTP takes a delivery.
func (w *mixedWork) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var got struct {
		JobID string `json:"job_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		w.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came[deliveryName(r.URL.Path, got.JobID)]++
}

func deliveryName(path, job string) string { return path + " " + job }

// deliveries returns how often a webhook was notified that a job has succeeded.
func (w *mixedWork) deliveries(hook, job string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.came[deliveryName("/"+hook, job)]
}

// add starts a node of a binary.
func (w *mixedWork) add(binary string, args ...string) mixedNode {
	w.Helper()
	w.nodes++
	s, err := launch(binary, filepath.Join(w.dir, fmt.Sprint("node", w.nodes)), nil,
		append(args, w.args...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.kill)
	awaitReady(w.T, s.url)
	c, err := client.New(client.Config{BaseURL: s.url, Token: operatorSecret})
	if err != nil {
		w.Fatal(err)
	}
	return mixedNode{s, c}
}

// stop stops a node, which ends by itself and has logged no error.
func (w *mixedWork) stop(n *launchedServer) {
	w.Helper()
	if err := n.terminate(); err != nil {
		w.Error(err)
	}
	if log := n.stderr.String(); strings.Contains(log, "level=ERROR") {
		w.Errorf("a node says:\n%s", log)
	}
}

// newKey makes the client of ForgeRun.
func (w *mixedWork) newKey(n mixedNode) {
	w.Helper()
	id, err := n.ForgeRun().CreateClient(w.Context(), "")
	if err != nil {
		w.Fatal(err)
	}
	key, err := n.ForgeRun().CreateFirstAPIKey(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	w.key = key.APIKey
}

// watch makes a webhook of the client and a schedule through a node.
func (w *mixedWork) watch(n mixedNode, name string) {
	w.Helper()
	every, contract, catchUp := mixedPeriod.String(), "taskflow", "none"
	if _, err := n.ForgeRun().WithAPIKey(w.key).CreateWebhook(w.Context(), w.hook.URL+"/"+name,
		[]client.ForgeRunEventName{client.ForgeRunEventJobSucceeded}, ""); err != nil {
		w.Fatal(err)
	}
	if _, err := n.Admin().CreateSchedule(w.Context(), name, client.AdminScheduleSpec{Every: &every,
		Contract: &contract, CatchUp: &catchUp,
		Request: fmt.Appendf(nil, `{"name":"n","queue":%q}`, name)}); err != nil {
		w.Fatal(err)
	}
}

// submit submits a job of ForgeRun, which the webhooks are notified about.
func (w *mixedWork) submit(n mixedNode) (id string) {
	w.Helper()
	made, err := n.ForgeRun().WithAPIKey(w.key).Submit(w.Context(), client.ForgeRunSpec{
		Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		w.Fatal(err)
	}
	return made.JobID
}

// awaitHooks waits until both webhooks are in force on all nodes.
func (w *mixedWork) awaitHooks(n mixedNode) {
	w.Helper()
	for _, hook := range bothVersions {
		var jobs []string
		pollUntil(w.Fatalf, "the webhook "+hook, func() bool {
			jobs = append(jobs, w.submit(n))
			return slices.ContainsFunc(jobs, func(id string) bool {
				return w.deliveries(hook, id) > 0
			})
		})
	}
}

// run hands work to a node that runs none itself, and waits until another node has done all of it,
// once.
func (w *mixedWork) run(n mixedNode, name string) {
	w.Helper()
	const jobs, resources = 5, 4
	manifests, pictures, runs := map[string]string{}, []imageJob{}, []string{}
	for i := range jobs {
		manifest := fmt.Sprint(name, i)
		made, err := n.FetchBox().Submit(w.Context(), client.FetchBoxSpec{Type: "default",
			Manifest: []byte(w.site.resources(manifest, resources))})
		if err != nil {
			w.Fatal(err)
		}
		manifests[made.JobID] = manifest
		var picture imageJob
		imageCall(w.T, n.url, "POST", "/images/v1/files", stripedJPEG(80, 60), 202, &picture)
		pictures, runs = append(pictures, picture), append(runs, w.submit(n))
	}
	for id, manifest := range manifests {
		pollUntil(w.Fatalf, "the downloads of "+manifest, func() bool {
			j, err := n.FetchBox().Job(w.Context(), id)
			return err == nil && j.Completed == resources && j.Failed == 0
		})
		for i := range resources {
			path := fmt.Sprintf("/%s/%d", manifest, i)
			key := fmt.Sprintf("resources/default/%s/r%d", id, i)
			if got := w.objects(w.T, "resources")[key]; got != bodyOf(path) {
				w.Errorf("%s is %q", key, got)
			}
			if times := w.site.times(path); times != 1 {
				w.Errorf("%s was downloaded %d times", path, times)
			}
		}
	}
	for _, p := range pictures {
		var j imageJob
		pollUntil(w.Fatalf, "the picture "+p.FileID, func() bool {
			imageCall(w.T, n.url, "GET", "/images/v1/jobs/"+p.JobID, nil, 200, &j)
			return j.Status == "completed"
		})
		if j.Attempts != 1 {
			w.Errorf("a picture took %d attempts", j.Attempts)
		}
		imageCall(w.T, n.url, "GET", "/images/v1/files/"+p.FileID+"/variants/50", nil, 200, nil)
	}
	for _, id := range runs {
		for _, hook := range bothVersions {
			pollUntil(w.Fatalf, "the event of job "+id, func() bool {
				return w.deliveries(hook, id) > 0
			})
		}
	}
}

// awaitTicks waits until each schedule has submitted two more jobs.
func (w *mixedWork) awaitTicks(n mixedNode) {
	w.Helper()
	for _, name := range bothVersions {
		before := len(w.ticks(n, name))
		pollUntil(w.Fatalf, "two times of "+name, func() bool {
			return len(w.ticks(n, name)) >= before+2
		})
	}
}

// ticks are the times of a schedule, the latest first.
func (w *mixedWork) ticks(n mixedNode, name string) (ticks []client.AdminScheduleTick) {
	w.Helper()
	for tick, err := range n.Admin().ScheduleTicks(w.Context(), name) {
		if err != nil {
			w.Fatal(err)
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// checkTicks: each schedule has one job for each of its times, and left none out.
func (w *mixedWork) checkTicks(n mixedNode) {
	w.Helper()
	for _, name := range bothVersions {
		if _, err := n.Admin().PauseSchedule(w.Context(), name); err != nil {
			w.Fatal(err)
		}
		var ticks []client.AdminScheduleTick
		pollUntil(w.Fatalf, "a job for each time of "+name, func() bool {
			ticks = w.ticks(n, name) // with one that was being submitted when it was paused
			jobs := 0
			for _, err := range n.TaskFlow().Search(w.Context(), client.TaskFlowFilter{Queue: name,
				PageSize: 100}) {
				if err != nil {
					w.Fatal(err)
				}
				jobs++
			}
			return jobs == len(ticks)
		})
		for i, tick := range ticks {
			if tick.Outcome != "submitted" {
				w.Errorf("the schedule %s: %+v", name, tick)
			}
			if i > 0 && !ticks[i-1].Time.Equal(tick.Time.Add(mixedPeriod)) {
				w.Errorf("the schedule %s goes from %v to %v", name, tick.Time, ticks[i-1].Time)
			}
		}
	}
}

// checkMixedWork: what an older node is given is done by one of this version and the other way
// round, once, without an error. Of the two that are there at a time one runs no jobs. At the end
// no older node is left, and the schedule that was made through one goes on.
func checkMixedWork(t *testing.T, older string) {
	t.Helper()
	w := newMixedWork(t)
	formerAPI := w.add(older, "--no-workers")
	former := w.add(older)
	w.newKey(formerAPI)
	w.watch(formerAPI, "old")
	currentAPI := w.add(mustMillrace(t), "--no-workers")
	w.watch(currentAPI, "new")
	w.awaitHooks(currentAPI)
	w.run(currentAPI, "new")
	w.awaitTicks(currentAPI)
	w.stop(former.launchedServer)

	current := w.add(mustMillrace(t))
	w.run(formerAPI, "old")
	w.awaitTicks(formerAPI)
	w.stop(formerAPI.launchedServer)
	w.awaitTicks(currentAPI)
	w.checkTicks(currentAPI)
	w.stop(currentAPI.launchedServer)
	w.stop(current.launchedServer)
	w.mu.Lock()
	defer w.mu.Unlock()
	for delivery, times := range w.came {
		if times != 1 {
			t.Errorf("%s came %d times", delivery, times)
		}
	}
}
