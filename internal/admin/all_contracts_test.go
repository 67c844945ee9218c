package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

// allWorld is a node with all five contracts, with their own routes and the worker API behind a
// second server, streams of its own and objects in a directory. Nothing happens by itself.
type allWorld struct {
	*jobsWorld
	own     *testkit.APIServer
	key     string // an API key of the client
	streams *stream.Streams
	objects *object.Objects
}

// withAll runs a test with such a node on each database.
func withAll(t *testing.T, test func(t *testing.T, w *allWorld)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &allWorld{jobsWorld: &jobsWorld{}}
		w.openStorage(t)
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Shared = p.Reopen != nil
			w.addContracts(t, c)
			w.addStoring(t, c)
		})
		w.serve(t)
		test(t, w)
	})
}

// openStorage opens streams and objects.
func (w *allWorld) openStorage(t *testing.T) {
	t.Helper()
	var err error
	const day = 24 * time.Hour
	w.streams, err = stream.Open(context.Background(), stream.Config{Dir: t.TempDir(),
		Listen: "127.0.0.1:0", Node: "test", Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Specs: append(fetchbox.Streams(day, day, day), images.Streams()...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.streams.Close)
	w.objects, err = object.Open(context.Background(),
		object.Config{Dir: t.TempDir(), Bucket: "millrace"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.objects.Close() })
}

// addStoring builds the contracts that store objects on the engine of a node.
func (w *allWorld) addStoring(t *testing.T, c *admin.Config) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f, err := fetchbox.New(fetchbox.Config{Engine: c.Engine, Log: log,
		Registry: w.registry("fetchbox"), Now: c.Now, Elapsed: c.Elapsed,
		Random: testkit.RandomBytes, Node: "test", Objects: w.objects, Streams: w.streams,
		PruneInterval: time.Minute, NoLocalWorkers: true, Settings: fetchbox.Settings{
			MaxResources: 100, MaxManifest: 1 << 20, MaxAttempts: 3, MaxLostRuns: 4,
			BackoffBase: time.Second, Lease: time.Minute, ConnectTimeout: time.Second,
			DownloadTimeout: time.Second, MaxDownload: 1 << 20,
			IdempotencyWindow: time.Hour, LedgerRetention: time.Hour,
			Types: map[string]*fetchbox.Type{"default": {}}}})
	if err != nil {
		t.Fatal(err)
	}
	queue := images.Embedded(w.streams, log)
	t.Cleanup(queue.Close)
	m, err := images.New(images.Config{Engine: c.Engine, Log: log, API: w.registry("images"),
		Worker: w.registry("images worker"), Now: c.Now, Random: testkit.RandomBytes, Node: "test",
		Objects: w.objects, Bucket: "millrace", Queue: queue, CDN: noCDN{}, NoLocalWorkers: true,
		Settings: images.Settings{LockTimeout: time.Minute, MaxAttempts: 3,
			BackoffBase: time.Second, BackoffMax: time.Minute, Sizes: []int{16},
			MaxUpload: 1 << 20, MaxPixels: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	offer := f.Offer()
	t.Cleanup(func() { // what lasts as long as the node ends with its background work
		ended, end := context.WithCancel(context.Background())
		end()
		offer.Run(ended)
	})
	c.Contracts = append(c.Contracts, offer, m.Offer())
	w.contracts = c.Contracts
	testkit.Register(t, c.Engine, append(f.JobTypes(), m.JobTypes()...)...)
}

// noCDN is a CDN that is unavailable.
type noCDN struct{}

func (noCDN) Purge(context.Context, string,
	[]string) error {
	return errors.New("it is unavailable")
}
func (noCDN) Operation() string { return "purge" }

// serve serves the routes of the contracts and the worker API, and makes a client of ForgeRun.
func (w *allWorld) serve(t *testing.T) {
	t.Helper()
	var mounts []httpapi.PrefixHandler
	var workers []workerapi.Adapter
	for _, c := range w.contracts {
		mounts = append(mounts, c.Mount())
		if c.Workers != nil {
			workers = append(workers, *c.Workers)
		}
	}
	api, err := workerapi.New(workerapi.Config{Engine: w.engine,
		Log: slog.New(slog.DiscardHandler), Contracts: workers})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(httpapi.NewMux(append(mounts, api.Mount())...))
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.own = &testkit.APIServer{URL: server.URL, Client: &http.Client{Transport: transport}}
	w.client = testkit.DecodeReply[struct {
		ID string `json:"client_id"`
	}](t, w.ask(t, "POST", "/v1/clients", "")).ID
	w.key = testkit.DecodeReply[struct {
		Key string `json:"api_key"`
	}](t, w.ask(t, "POST", "/v1/clients/"+w.client+"/keys", "")).Key
}

// ask sends a request to a route of a contract or to the worker API, which must accept it.
func (w *allWorld) ask(t *testing.T, method, path, body string, header ...string) testkit.Reply {
	t.Helper()
	if w.key != "" {
		header = append(header, "Authorization", "Bearer "+w.key)
	}
	r := w.own.Do(t, method, path, body, header...)
	if r.Status/100 != 2 {
		t.Fatalf("%s %s: got %d %s", method, path, r.Status, r.Body)
	}
	return r
}

// upload uploads a picture, whose content nobody looks at here.
func (w *allWorld) upload(t *testing.T) jobState {
	t.Helper()
	r := testkit.DecodeReply[struct {
		ID string `json:"job_id"`
	}](t, w.ask(t, "POST", "/images/v1/files", "no picture", "Content-Type", "image/jpeg"))
	return w.find(t, "images", r.ID)
}

// find returns the job of a contract with an id.
func (w *allWorld) find(t *testing.T, name, id string) jobState {
	t.Helper()
	all := get[struct{ Items []jobState }](t, w.world, fmt.Sprintf(
		"/admin/v1/jobs?contract=%s&id=%s", name, id)).Items
	if len(all) != 1 {
		t.Fatalf("%s has %d jobs with the id %s", name, len(all), id)
	}
	return all[0]
}

// manifest has one resource.
const manifest = `{"manifest_version":"v1","metadata":{},
	"resources":[{"id":"r","url":"https://example.com/a"}]}`

// fetch submits a manifest as an operator, and returns its job and that of its resource.
func (w *allWorld) fetch(t *testing.T) (of, resource jobState) {
	t.Helper()
	of = w.submitJob(t, "fetchbox", manifest, `,"job_type":"default","owner":"tenant"`)
	return of, w.resourceOf(t, of.Number)
}

// resourceOf returns the job of the resource of a manifest.
func (w *allWorld) resourceOf(t *testing.T, number int64) jobState {
	t.Helper()
	all := get[struct{ Items []jobState }](t, w.world,
		fmt.Sprintf("/admin/v1/jobs?parent=%d", number)).Items
	if len(all) != 1 {
		t.Fatalf("manifest %d has %d resources", number, len(all))
	}
	return all[0]
}

// lease claims a job by its number.
func (w *allWorld) lease(t *testing.T, number int64) engine.Run {
	t.Helper()
	found, err := w.engine.GetBySeqs(t.Context(), []int64{number}, store.DefinitionOnly)
	if err != nil || len(found) != 1 {
		t.Fatalf("job %d: %v", number, err)
	}
	claimed, err := w.engine.ClaimJob(t.Context(), found[0].ID, "w")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Run{ID: claimed.ID, Run: claimed.Run}
}

// report reports an outcome of a run to the worker API.
func (w *allWorld) report(t *testing.T, run engine.Run, outcome, body string) {
	t.Helper()
	w.ask(t, "POST", "/worker/v1/runs/"+run.Run.String()+"/"+outcome, body)
}

// The bodies of failures.
const (
	mayBeRetried = `{"error":"it broke","error_type":"HTTP_503","retryable":true}`
	forGood      = `{"error":"it broke","error_type":"HTTP_403","retryable":false}`
)

// breakJob lets a job fail for good.
func (w *allWorld) breakJob(t *testing.T, number int64) {
	t.Helper()
	w.report(t, w.lease(t, number), "fail", forGood)
}

// publish publishes what waits in the outbox, and returns from which change each message comes.
func (w *allWorld) publish(t *testing.T) (sent []string) {
	t.Helper()
	for _, c := range w.contracts {
		if c.Outbox == nil {
			continue
		}
		if _, err := w.engine.Publish(t.Context(), func(ctx context.Context,
			all []job.Message) error {
			for i := range all {
				sent = append(sent, fmt.Sprintf("%s: %s to %s by %s", all[i].JobID.JobType,
					all[i].Prev, all[i].Next, all[i].Cause))
			}
			return c.Outbox.Deliver(ctx, all)
		}, c.PublishingJobTypes()...); err != nil {
			t.Fatal(err)
		}
	}
	return sent
}

// purge makes a picture that has changed, and returns its purge.
func (w *allWorld) purge(t *testing.T) jobState {
	t.Helper()
	j := w.upload(t)
	w.end(t, w.lease(t, j.Number), engine.Outcome{On: job.Succeeded, Result: []byte(`{}`)})
	w.publish(t)
	found, err := w.engine.List(t.Context(), store.Filter{JobType: images.Purges})
	if err != nil || len(found) == 0 {
		t.Fatalf("there is no purge: %v", err)
	}
	return jobState{Number: found[len(found)-1].Seq, ID: found[len(found)-1].ID.Key}
}

// wantOnly fails unless a job allows some actions and no other: each of these is 409 NOT_ALLOWED,
// names the state and what is allowed, and changes nothing (AD-016).
func (w *jobsWorld) wantOnly(t *testing.T, number int64, state string, allowed ...string) {
	t.Helper()
	path := fmt.Sprintf("/admin/v1/jobs/%d", number)
	before := w.do(t, w.api.Token(), "GET", path, "").WantStatus(t, 200)
	w.wantState(t, testkit.DecodeReply[jobState](t, before), state, allowed...)
	words := append([]string{state}, allowed...)
	if len(allowed) == 0 {
		words = append(words, "no action")
	}
	for _, action := range []string{"retry", "rerun", "run-now", "cancel", "release", "delete"} {
		if !strings.Contains(" "+strings.Join(allowed, " ")+" ", " "+action+" ") {
			w.act(t, number, action).WantError(t, 409, "NOT_ALLOWED", words...)
		}
	}
	if after := w.do(t, w.api.Token(), "GET", path, ""); after.Body != before.Body {
		t.Errorf("AD-016 what is refused has changed the job from %s to %s", before.Body,
			after.Body)
	}
}
