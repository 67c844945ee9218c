package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// The load is a queue of Relay, whose jobs nobody claims, and one of TaskFlow, which has a worker.
const (
	loadQueue      = "q"
	loadGraphQueue = "etl"
	loadResources  = 2
)

// underLoad are those of a server under load. What is under way when it is backed up or killed
// is claimed again within seconds.
var underLoad = []string{"--set", "images.lock_timeout=5s", "--set", "taskflow.lease=4s", "--set",
	"forgerun.lease=4s", "--set", "forgerun.heartbeat=1s", "--set", "fetchbox.lease=4s", "--set",
	"forgerun.rate_limit_per_minute=1000000", "--set", "taskflow.max_concurrent=100"}

// jobWithKey is a job that was submitted under an idempotency key.
type jobWithKey struct{ key, id string }

// acknowledged is what a server has acknowledged.
type acknowledged struct {
	jobs      []string // of Relay
	pictures  []client.ImageReceipt
	graphs    []map[string]string // of TaskFlow: the ids of the jobs first, second and last
	completed []string            // jobs of TaskFlow whose worker was answered
	runs      []jobWithKey        // of ForgeRun
	manifests []jobWithKey        // of FetchBox; the key is the name of the resources too
}

// load gives a server jobs of all contracts, and notes what it acknowledges.
type load struct {
	*keptWorld
	site    *origin
	picture []byte
	ctx     context.Context // ends with the load
	cancel  context.CancelFunc
	all     sync.WaitGroup
	killed  atomic.Bool // the server is, or will be

	mu    sync.Mutex // guards acked
	acked acknowledged
}

// startLoad starts producers and a worker of TaskFlow on the server of the world.
func (w *keptWorld) startLoad() *load {
	w.Helper()
	l := &load{keptWorld: w, site: newOrigin(w.T, nil), picture: stripedJPEG(80, 60)}
	l.ctx, l.cancel = context.WithCancel(w.Context())
	c := w.client("")
	w.key = newKey(w.T, c)
	for producer := range 4 {
		l.all.Go(func() { l.produce(c, producer) })
	}
	l.all.Go(func() { l.work(c) })
	return l
}

// client returns a client of the server, under the operator's token or none.
func (w *keptWorld) client(token string) *client.Client {
	w.Helper()
	c, err := client.New(client.Config{BaseURL: w.url, Token: token})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// newKey makes a client of ForgeRun and returns its API key.
func newKey(t *testing.T, c *client.Client) string {
	t.Helper()
	id, err := c.ForgeRun().CreateClient(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.ForgeRun().CreateFirstAPIKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return key.APIKey
}

// note keeps what was acknowledged.
func (l *load) note(add func(a *acknowledged)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.acked)
}

// until waits until there are so many graphs, runs, pictures and manifests, and returns all that is
// acknowledged then.
func (l *load) until(n int) (now acknowledged) {
	l.Helper()
	pollUntil(l.Fatalf, "jobs to be acknowledged", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		now = l.acked // its slices are only appended to
		return l.Failed() || min(len(now.graphs), len(now.runs), len(now.pictures),
			len(now.manifests), len(now.completed)) >= n
	})
	return now
}

// end stops the producers and the worker. What they are doing is not acknowledged.
func (l *load) end() {
	l.cancel()
	l.all.Wait()
}

// kill kills the server under load.
func (l *load) kill(s *launchedServer) {
	l.killed.Store(true)
	s.kill()
	l.end()
}

// hasEnded reports whether an error is the end of the load; another one fails the test.
func (l *load) hasEnded(err error) bool {
	if err != nil && l.ctx.Err() == nil && !l.killed.Load() {
		l.Error(err)
	}
	return err != nil || l.ctx.Err() != nil
}

// produce submits jobs of Relay, and one of each other contract with every eighth of them.
func (l *load) produce(c *client.Client, producer int) {
	forge, err := c.ForgeRun().WithAPIKey(l.key), error(nil)
	for i := 0; !l.hasEnded(err); i++ {
		id := fmt.Sprintf("%d-%d", producer, i)
		err = c.Relay().Enqueue(l.ctx, []client.RelaySpec{{Queue: loadQueue, ID: id,
			Timeout: 9 * time.Second}}, client.RelayUnique)
		if err == nil {
			l.note(func(a *acknowledged) { a.jobs = append(a.jobs, id) })
		}
		if err == nil && i%8 == 0 {
			err = l.produceOthers(c, forge, id)
		}
	}
}

// produceOthers submits a graph of three jobs, a job of ForgeRun, a manifest and a picture.
func (l *load) produceOthers(c *client.Client, forge *client.ForgeRun, id string) error {
	var g client.TaskFlowGraphBuilder
	spec := client.TaskFlowSpec{Name: id, Queue: loadGraphQueue,
		Retry: client.TaskFlowRetryPolicy{BaseDelay: time.Second}}
	g.Add("last", spec, g.Add("first", spec), g.Add("second", spec))
	graph, err := c.TaskFlow().SubmitGraph(l.ctx, &g)
	if err != nil {
		return err
	}
	run, err := forge.Submit(l.ctx, loadRun(id))
	if err != nil {
		return err
	}
	manifest, err := c.FetchBox().Submit(l.ctx, l.manifest(id))
	if err != nil {
		return err
	}
	picture, err := c.Images().Upload(l.ctx, client.ImageUpload{Body: bytes.NewReader(l.picture),
		Type: "image/jpeg"})
	if err != nil {
		return err
	}
	l.note(func(a *acknowledged) {
		a.graphs, a.pictures = append(a.graphs, graph), append(a.pictures, picture)
		a.runs = append(a.runs, jobWithKey{id, run.JobID})
		a.manifests = append(a.manifests, jobWithKey{id, manifest.JobID})
	})
	return nil
}

func loadRun(key string) client.ForgeRunSpec {
	return client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast, IdempotencyKey: key}
}

func (l *load) manifest(key string) client.FetchBoxSpec {
	return client.FetchBoxSpec{Type: "default", IdempotencyKey: key,
		Manifest: []byte(l.site.resources(key, loadResources))}
}

// work completes the jobs of TaskFlow.
func (l *load) work(c *client.Client) {
	var err error
	for !l.hasEnded(err) {
		var ids []string
		ids, err = completeClaimed(l.ctx, c)
		l.note(func(a *acknowledged) { a.completed = append(a.completed, ids...) })
	}
}

// completeClaimed claims some jobs of TaskFlow and completes them.
func completeClaimed(ctx context.Context, c *client.Client) (ids []string, err error) {
	jobs, err := c.WorkerAPI().Claim(ctx, client.ClaimQuery{
		Contract: client.ContractTaskFlow, Queues: []string{loadGraphQueue}, Max: 3,
		Worker: "w:1"}, 0)
	for _, j := range jobs {
		if err != nil {
			break
		}
		err = c.WorkerAPI().Complete(ctx, j.RunID, []byte(`{"done":true}`))
		switch {
		case err == nil:
			ids = append(ids, j.ID)
		case errors.Is(err, client.ErrRunLost): // the test was not given time for so long
			err = nil
		}
	}
	return ids, err
}

// restored is the server of a world, on a copy of what another one had, or on that itself.
type restored struct {
	*load
	client  *client.Client
	objects string         // the directory of its objects
	again   map[string]int // how often each job of TaskFlow was completed on it
	// ended are the jobs without a parent, by contract and id.
	ended map[string]map[string]client.AdminJob
}

// checkIn is check for a server with its objects, and its token where it has made one, in its data
// directory.
func (l *load) checkIn(dir string, must acknowledged) {
	l.Helper()
	token := operatorSecret
	if l.generate {
		text, err := os.ReadFile(filepath.Join(dir, "operator.token"))
		if err != nil {
			l.Fatal(err)
		}
		token = strings.TrimSpace(string(text))
	}
	l.check(filepath.Join(dir, "objects", "millrace"), token, must)
}

// check wants everything that must be there to be there once, and to end as it should, and wants
// the same of what came later and is there too. The server has its objects in a directory.
func (l *load) check(objects, token string, must acknowledged) {
	l.Helper()
	r := &restored{load: l, client: l.keptWorld.client(token), again: map[string]int{},
		objects: objects, ended: map[string]map[string]client.AdminJob{}}
	r.checkRelay(must.jobs)
	r.awaitEnds()
	r.checkTaskFlow(must)
	r.checkForgeRun(must.runs)
	r.checkFetchBox(must.manifests)
	r.checkImages(must.pictures)
	l.Logf("of %d jobs, %d graphs, %d runs, %d manifests and %d pictures that must be there, all "+
		"are; %d of TaskFlow were completed again or later", len(must.jobs), len(must.graphs),
		len(must.runs), len(must.manifests), len(must.pictures), len(r.again))
}

// checkRelay claims all jobs of Relay: each once.
func (r *restored) checkRelay(must []string) {
	r.Helper()
	claimed := map[string]int{}
	for {
		jobs, err := r.client.Relay().Claim(r.Context(), loadQueue, 1000, 0)
		if err != nil {
			r.Fatal(err)
		}
		if len(jobs) == 0 {
			break
		}
		for _, j := range jobs {
			claimed[j.ID]++
		}
	}
	for _, id := range must {
		if claimed[id] != 1 {
			r.Errorf("the job %s was acknowledged, and is claimed %d times", id, claimed[id])
		}
	}
	for id, times := range claimed {
		if times != 1 {
			r.Errorf("the job %s is claimed %d times", id, times)
		}
	}
}

// endingContracts are those whose jobs the server, or the worker of TaskFlow, ends.
var endingContracts = []string{"taskflow", "forgerun", "fetchbox", "images"}

// awaitEnds completes jobs of TaskFlow until no job of any contract but Relay is left to be run,
// and reads all of them: none is there twice.
func (r *restored) awaitEnds() {
	r.Helper()
	open := []string{"waiting", "ready", "leased"}
	// A message that was in the streams is sent again by the sweep, in two minutes at most.
	for j := range r.jobs(client.AdminFilter{Contract: "images", Phases: open}) {
		r.call("POST", "/images/v1/messages", `{"job_id":"`+j.ID+`"}`, 202, nil)
	}
	count := 0
	pollUntil(func(format string, a ...any) {
		r.Fatalf(format+": %d are not", append(a, count)...)
	}, "all jobs to end", func() bool {
		ids, err := completeClaimed(r.Context(), r.client)
		if err != nil {
			r.Fatal(err)
		}
		for _, id := range ids {
			r.again[id]++
		}
		count = len(ids)
		for _, contract := range endingContracts {
			for range r.jobs(client.AdminFilter{Contract: contract, Phases: open}) {
				count++
			}
		}
		return count == 0
	})
	type identity struct{ kind, parent, id string }
	for _, contract := range endingContracts {
		found, seen := map[string]client.AdminJob{}, map[identity]bool{}
		for j := range r.jobs(client.AdminFilter{Contract: contract}) {
			id := identity{id: j.ID}
			if j.Kind != nil {
				id.kind = *j.Kind
			}
			if j.ParentNumber != nil {
				id.parent = fmt.Sprint(*j.ParentNumber)
			}
			if seen[id] {
				r.Errorf("%+v of %s is there twice", id, contract)
			}
			seen[id] = true
			if id.parent == "" {
				found[j.ID] = j
			}
		}
		r.ended[contract] = found
	}
}

// jobs are the jobs of a filter.
func (r *restored) jobs(f client.AdminFilter) func(yield func(client.AdminJob) bool) {
	return func(yield func(client.AdminJob) bool) {
		for j, err := range r.client.Admin().Jobs(r.Context(), client.AdminJobQuery{Filter: f,
			PageSize: 200}) {
			if err != nil {
				r.Fatal(err)
			}
			if !yield(j) {
				return
			}
		}
	}
}

// checkTaskFlow: all jobs are completed, none twice, those of a graph in their order; and what a
// worker had been answered is not run again.
func (r *restored) checkTaskFlow(must acknowledged) {
	r.Helper()
	jobs := r.ended["taskflow"]
	for id, j := range jobs {
		if j.State != string(client.TaskFlowStatusCompleted) || r.again[id] > 1 {
			r.Errorf("the job %s of TaskFlow is %s, and was completed %d times", id, j.State,
				r.again[id])
		}
	}
	for _, id := range must.completed {
		if r.again[id] != 0 {
			r.Errorf("the job %s of TaskFlow was completed before, and is run again", id)
		}
	}
	for _, graph := range must.graphs {
		for ref, id := range graph {
			if jobs[id].ID == "" {
				r.Errorf("%s of the graph %v is not there", ref, graph)
			}
		}
	}
	for _, graph := range r.acked.graphs {
		last := jobs[graph["last"]]
		for _, ref := range []string{"first", "second"} {
			before := jobs[graph[ref]]
			if (before.ID == "") != (last.ID == "") {
				r.Errorf("a part of the graph %v is there", graph)
			} else if last.ID != "" && last.StartedAt.Before(*before.FinishedAt) {
				r.Errorf("the last job of the graph %v began before the %s had ended", graph, ref)
			}
		}
	}
}

// checkForgeRun: all jobs have succeeded, but for those that were running when the server ended or
// was copied, whose runner is lost; and a job that is submitted again under its key is the same.
func (r *restored) checkForgeRun(must []jobWithKey) {
	r.Helper()
	forge, lost := r.client.ForgeRun().WithAPIKey(r.key), 0
	for id := range r.ended["forgerun"] {
		report, err := forge.Report(r.Context(), id)
		isLost := report.Failure != nil && report.Failure.Code == "runner_lost"
		if isLost {
			lost++
		}
		if err != nil || (!isLost && report.Outcome != client.ForgeRunOutcomeSuccess) {
			r.Errorf("the job %s of ForgeRun: %v, %+v", id, err, report)
		}
	}
	if lost > 4 { // the workers of a node
		r.Errorf("%d runs are lost", lost)
	}
	for _, run := range must {
		again, err := forge.Submit(r.Context(), loadRun(run.key))
		if err != nil || again.JobID != run.id || r.ended["forgerun"][run.id].ID == "" {
			r.Errorf("the job %s of ForgeRun is submitted again as %+v: %v", run.id, again, err)
		}
	}
}

// checkFetchBox: all manifests are completed, with each of their resources, and one that is
// submitted again under its key is the same.
func (r *restored) checkFetchBox(must []jobWithKey) {
	r.Helper()
	files, names := filesBelow(r.T, "resources", r.objects), map[string]string{}
	for _, m := range r.acked.manifests {
		if r.ended["fetchbox"][m.id].ID != "" {
			names[m.id] = m.key
		}
	}
	for _, m := range must {
		again, err := r.client.FetchBox().Submit(r.Context(), r.manifest(m.key))
		if err != nil || again.JobID != m.id || names[m.id] == "" {
			r.Errorf("the manifest %s is submitted again as %+v: %v", m.id, again, err)
		}
	}
	for id, name := range names {
		j, err := r.client.FetchBox().Job(r.Context(), id)
		if err != nil || j.Status != client.FetchBoxStatusCompleted ||
			j.Completed != loadResources {
			r.Errorf("the manifest %s: %v, %+v", id, err, j)
		}
		for i := range loadResources {
			key, want := fmt.Sprintf("resources/default/%s/r%d", id, i),
				bodyOf(fmt.Sprintf("/%s/%d", name, i))
			if files[key] != want {
				r.Errorf("%s is %q, want %q", key, files[key], want)
			}
		}
	}
}

// checkImages: all pictures are processed, and can be read.
func (r *restored) checkImages(must []client.ImageReceipt) {
	r.Helper()
	for _, made := range must {
		if r.ended["images"][made.JobID].ID == "" {
			r.Errorf("the picture %s is not there", made.FileID)
		}
	}
	for _, made := range r.acked.pictures {
		j := r.ended["images"][made.JobID]
		if j.ID == "" {
			continue
		}
		if j.State != "completed" {
			r.Errorf("the picture %s is %s", made.FileID, j.State)
		}
		for _, path := range []string{"/content", "/variants/50"} {
			imageCall(r.T, r.url, "GET", "/images/v1/files/"+made.FileID+path, nil, 200, nil)
		}
	}
}
