package main

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
	"github.com/millrace/millrace/internal/webhook"
)

// keptWorld is a server whose data is moved, or backed up and restored, while the clients keep what
// they were told.
type keptWorld struct {
	*testing.T
	url      string
	binary   string            // what serve starts; "" is this version
	origin   string            // of downloads
	generate bool              // the server makes the operator's token
	key      string            // of a client of ForgeRun
	leased   string            // a run of Relay that goes on
	paths    map[string]string // what operators and clients read, with the token for it
	waiting  waitingJobs
}

// waitingJobs are jobs that no worker has had when their server stops.
type waitingJobs struct {
	runs     []string // of ForgeRun, by their ids; the second waits for its time
	due      []int64  // the numbers of what waits for its time
	download string   // the id of a manifest
	picture  imageJob
}

const operatorSecret = "operator-secret"

// worldSettings are those of all servers of a world.
var worldSettings = []string{"--set", "log.level=warn", "--set", "forgerun.duration_scale=0.001",
	"--set", "images.sizes=50"}

// serve starts a server on a data directory; it ends with the test.
func (w *keptWorld) serve(dir string, args ...string) *launchedServer {
	w.Helper()
	args = append(slices.Clone(worldSettings), args...)
	if !w.generate {
		args = append(args, "--set", "operator.token="+operatorSecret)
	}
	s, err := launch(cmp.Or(w.binary, mustMillrace(w.T)), dir, nil, args...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.kill)
	w.url = s.url
	awaitReady(w.T, s.url)
	return s
}

// call makes a request and decodes the answer.
func (w *keptWorld) call(method, path, body string, want int, into any) {
	w.Helper()
	token := w.paths[path]
	if strings.HasPrefix(path, "/admin/") || strings.HasPrefix(path, "/operators/") {
		token = operatorSecret
	}
	status, answer := sendTo(w.T, http.DefaultClient, method, w.url+path, body, "Authorization",
		"Bearer "+token, "Content-Type", "application/json")
	if status != want {
		w.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		w.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
}

// fill gives the server jobs of all contracts in every state, with schedules, webhooks and dead
// letters, and notes where they are read.
func (w *keptWorld) fill() {
	w.Helper()
	w.paths = map[string]string{}
	w.fillRelay()
	w.fillTaskFlow()
	w.fillForgeRun()
	w.fillFiles()
	w.call("POST", "/admin/v1/schedules", `{"name":"nightly","cron":"0 3 * * *",
		"contract":"taskflow","request":{"name":"n","queue":"nights"}}`, 201, nil)
	w.call("POST", "/admin/v1/webhooks", `{"url":"http://127.0.0.1:9/","events":["schedule.missed"],
		"name":"hook"}`, 201, nil)
	w.call("PATCH", "/admin/v1/queues/taskflow/reports", `{"paused":true}`, 200, nil)
	for _, path := range []string{"/admin/v1/dead-letters", "/admin/v1/schedules/nightly",
		"/admin/v1/webhooks", "/admin/v1/clients"} {
		w.paths[path] = operatorSecret
	}
	pollUntil(w.Fatalf, "the webhook to be delivered", func() bool {
		all := w.listed()
		isDelivered := slices.ContainsFunc(all, func(j listedJob) bool {
			return j.Contract == webhook.Name && j.Phase == "done"
		})
		return isDelivered && len(all) >= 10 // a list looks for 20 ms at most
	})
}

type listedJob struct {
	Number              int64
	Contract, ID, Phase string
}

// listed returns the jobs that operators see.
func (w *keptWorld) listed() []listedJob {
	w.Helper()
	var list struct{ Items []listedJob }
	w.call("GET", "/admin/v1/jobs?limit=200", "", 200, &list)
	return list.Items
}

// fillWaiting gives a server that runs no jobs some that wait: one of ForgeRun and one that has a
// time, a download and a picture. It returns all answers then.
func (w *keptWorld) fillWaiting() map[string]string {
	w.Helper()
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour)} {
		made, err := w.forge().Submit(w.Context(), client.ForgeRunSpec{
			Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast,
			ExecutionAt: at})
		if err != nil {
			w.Fatal(err)
		}
		w.waiting.runs = append(w.waiting.runs, made.JobID)
		w.paths["/v1/jobs/"+made.JobID] = w.key
	}
	w.waiting.download = w.download("waits")
	w.paths["/operators/jobs/"+w.waiting.download] = operatorSecret
	w.waiting.picture = w.putPicture()
	w.paths["/images/v1/jobs/"+w.waiting.picture.JobID] = ""
	want := map[string]int{"relay": 1, "forgerun": 2, "images": 1, "fetchbox": 1}
	var all []listedJob
	var waits map[string]int
	pollUntil(func(format string, a ...any) {
		w.Fatalf(format+": %v of %v in %+v", append(a, waits, want, all)...)
	}, "all jobs that wait to be listed", func() bool {
		all, waits, w.waiting.due = w.listed(), map[string]int{}, nil
		for _, j := range all {
			isDue := j.Phase == "waiting" && (j.Contract == "relay" || j.Contract == "forgerun")
			if isDue {
				w.waiting.due = append(w.waiting.due, j.Number)
			}
			if want[j.Contract] > 0 && (isDue || j.Phase == "ready") {
				waits[j.Contract]++
			}
		}
		return maps.Equal(waits, want)
	})
	for _, j := range all {
		w.paths[fmt.Sprintf("/admin/v1/jobs/%d", j.Number)] = operatorSecret
		if j.Contract != "fetchbox" { // its log is in the streams
			w.paths[fmt.Sprintf("/admin/v1/jobs/%d/timeline", j.Number)] = operatorSecret
		}
	}
	var now map[string]string
	pollUntil(w.Fatalf, "all messages to be sent, which timelines have until then", func() bool {
		now = w.answers()
		return !strings.Contains(fmt.Sprint(now), `"kind":"message"`)
	})
	return now
}

// fillRelay has a job with a large payload that waits for its time, and one that a worker has.
func (w *keptWorld) fillRelay() {
	w.Helper()
	w.call("POST", "/v2/queues/jobs", fmt.Sprintf(`[{"queue":"mail","id":"a","timeout":3600,
		"payload":{"n":1.50}},{"queue":"later","id":"b","timeout":9,"run_at":"2100-01-01T00:00:00Z",
		"payload":%q}]`, strings.Repeat("large ", 5000)), 202, nil)
	var claimed []struct {
		RunID string `json:"run_id"`
	}
	w.call("GET", "/v2/queues/mail/jobs", "", 200, &claimed)
	w.leased = "/v2/queues/mail/jobs/a/run-id/" + claimed[0].RunID
	w.call("PATCH", w.leased, `{"half":"done"}`, 202, nil)
	w.paths["/v2/queues/mail/jobs/a"], w.paths["/v2/queues/later/jobs/b"] = "", ""
}

// fillTaskFlow has a graph whose first job was given up, and one whose first job is done.
func (w *keptWorld) fillTaskFlow() {
	w.Helper()
	for _, name := range []string{"fails", "works"} {
		var made struct{ Jobs map[string]string }
		w.call("POST", "/api/v1/graphs", fmt.Sprintf(`{"jobs":[{"ref":"a","name":%q,"queue":%[1]q,
			"retry_policy":{"max_attempts":1}},{"ref":"b","name":"b","queue":"next","depends_on":["a"]}]}`,
			name), 201, &made)
		for _, id := range made.Jobs {
			w.paths["/api/v1/jobs/"+id], w.paths["/api/v1/jobs/"+id+"/graph"] = "", ""
		}
		var claimed struct {
			Jobs []struct {
				RunID string `json:"run_id"`
			}
		}
		w.call("POST", "/worker/v1/claims", fmt.Sprintf(`{"contract":"taskflow","queues":[%q],"max":1,
			"worker":"host:1"}`, name), 200, &claimed)
		end := map[string]string{"fails": `/fail {"error":"no such user","retryable":false}`,
			"works": `/complete {"result":{"sum":3}}`}[name]
		verb, body, _ := strings.Cut(end, " ")
		w.call("POST", "/worker/v1/runs/"+claimed.Jobs[0].RunID+verb, body, 200, nil)
	}
}

// fillForgeRun has a client with a webhook, and a job that is done.
func (w *keptWorld) fillForgeRun() {
	w.Helper()
	ctx := w.Context()
	c, err := client.New(client.Config{BaseURL: w.url})
	if err != nil {
		w.Fatal(err)
	}
	id, err := c.ForgeRun().CreateClient(ctx, "")
	if err != nil {
		w.Fatal(err)
	}
	key, err := c.ForgeRun().CreateFirstAPIKey(ctx, id)
	if err != nil {
		w.Fatal(err)
	}
	w.key = key.APIKey
	forge := w.forge()
	if _, err := forge.CreateWebhook(ctx, w.origin+"/hook",
		[]client.ForgeRunEventName{"job_succeeded"}, ""); err != nil {
		w.Fatal(err)
	}
	made, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		w.Fatal(err)
	}
	w.awaitRun(made.JobID)
	for _, path := range []string{"/v1/jobs/" + made.JobID,
		"/v1/jobs/" + made.JobID + "/report", "/v1/clients/" + id + "/keys", "/v1/webhooks"} {
		w.paths[path] = w.key
	}
}

// forge is the client of ForgeRun.
func (w *keptWorld) forge() *client.ForgeRun {
	w.Helper()
	c, err := client.New(client.Config{BaseURL: w.url})
	if err != nil {
		w.Fatal(err)
	}
	return c.ForgeRun().WithAPIKey(w.key)
}

// awaitRun waits until a job of ForgeRun has succeeded.
func (w *keptWorld) awaitRun(id string) {
	w.Helper()
	j, err := w.forge().Wait(w.Context(), id)
	if err != nil || j.State != client.ForgeRunStateSucceeded {
		w.Fatalf("the job %s of ForgeRun: %v, %+v", id, err, j)
	}
}

// download submits a manifest under an idempotency key.
func (w *keptWorld) download(key string) (id string) {
	w.Helper()
	status, answer := sendTo(w.T, http.DefaultClient, "POST", w.url+"/jobs", fmt.Sprintf(
		`{"manifest_version":"v1","metadata":{},"resources":[{"id":"r","url":%q}]}`, w.origin+"/file"),
		"X-Fetchbox-Job-Type", "default", "X-Fetchbox-Idempotency-Key", key, "Content-Type",
		"application/json")
	var fetched struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(answer), &fetched); err != nil || status != 202 {
		w.Fatalf("a manifest answers %d %s", status, answer)
	}
	return fetched.JobID
}

// awaitDownload waits until the downloads of a manifest are done.
func (w *keptWorld) awaitDownload(id string) {
	w.Helper()
	pollUntil(w.Fatalf, "the download", func() bool {
		_, answer := sendTo(w.T, http.DefaultClient, "GET", w.url+"/operators/jobs/"+id, "",
			"Authorization", "Bearer "+operatorSecret)
		return strings.Contains(answer, `"status":"completed"`)
	})
}

// fillFiles has downloads and a picture that are done.
func (w *keptWorld) fillFiles() {
	w.Helper()
	fetched := w.download("once")
	w.awaitDownload(fetched)
	w.paths["/operators/jobs/"+fetched] = operatorSecret
	made := w.putPicture()
	w.awaitPicture(made)
	for _, path := range []string{"", "/content", "/variants/50"} {
		w.paths["/images/v1/files/"+made.FileID+path] = ""
	}
}

// putPicture stores a picture.
func (w *keptWorld) putPicture() (made imageJob) {
	w.Helper()
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		w.Fatal(err)
	}
	imageCall(w.T, w.url, "POST", "/images/v1/files", picture.Bytes(), 202, &made)
	return made
}

// awaitPicture waits until the variants of a picture are made.
func (w *keptWorld) awaitPicture(made imageJob) {
	w.Helper()
	pollUntil(w.Fatalf, "the picture to be processed", func() bool {
		var j imageJob
		imageCall(w.T, w.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &j)
		return j.Status == "completed"
	})
	imageCall(w.T, w.url, "GET", "/images/v1/files/"+made.FileID+"/variants/50", nil, 200, nil)
}

// rateUsed is how many requests a client has made, which the reading of answers changes.
var rateUsed = regexp.MustCompile(`"rate_used":\d+`)

// answers reads all that was noted.
func (w *keptWorld) answers() map[string]string {
	w.Helper()
	all := map[string]string{}
	for path, token := range w.paths {
		status, answer := sendTo(w.T, http.DefaultClient, "GET", w.url+path, "", "Authorization",
			"Bearer "+token)
		if status != 200 {
			w.Errorf("GET %s: %d %s", path, status, answer)
		}
		all[path] = rateUsed.ReplaceAllString(answer, "")
	}
	return all
}

// compare wants the answers to be as they were.
func (w *keptWorld) compare(where string, want map[string]string) {
	w.Helper()
	for path, answer := range w.answers() {
		if answer == want[path] {
			continue
		}
		at := 0
		for at < min(len(answer), len(want[path])) && answer[at] == want[path][at] {
			at++
		}
		w.Errorf("%s: GET %s is, from byte %d on,\n%.300s\nand was\n%.300s", where, path, at,
			answer[at:], want[path][at:])
	}
}

// goOn has the jobs go on that were under way: the run of Relay, the job that depended on another,
// what waited, the client with its key, and a new picture.
func (w *keptWorld) goOn() {
	w.Helper()
	w.call("PATCH", w.leased, `{"all":"done"}`, 202, nil)
	w.call("DELETE", w.leased, "", 200, nil)
	var claimed struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	w.call("POST", "/worker/v1/claims", `{"contract":"taskflow","queues":["next"],"max":5,
		"worker":"host:1"}`, 200, &claimed)
	if len(claimed.Jobs) != 1 {
		w.Fatalf("the dependents to claim are %+v", claimed.Jobs)
	}
	w.call("POST", "/worker/v1/runs/"+claimed.Jobs[0].RunID+"/complete", "{}", 200, nil)
	if len(w.waiting.due) != 2 {
		w.Fatalf("the jobs that wait for their time are %v", w.waiting.due)
	}
	for _, number := range w.waiting.due {
		w.call("POST", fmt.Sprintf("/admin/v1/jobs/%d/run-now", number), "", 200, nil)
	}
	var later []struct{ ID string }
	w.call("GET", "/v2/queues/later/jobs", "", 200, &later)
	if len(later) != 1 || later[0].ID != "b" {
		w.Errorf("the jobs of Relay that waited are %+v", later)
	}
	made, err := w.forge().Submit(w.Context(), client.ForgeRunSpec{
		Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		w.Fatal(err)
	}
	for _, id := range append(w.waiting.runs, made.JobID) {
		w.awaitRun(id)
	}
	w.awaitDownload(w.waiting.download)
	w.awaitPicture(w.waiting.picture)
	w.awaitPicture(w.putPicture())
}

// newKeptWorld makes a world without a server, with an origin of downloads.
func newKeptWorld(t *testing.T) *keptWorld {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		_, _ = a.Write([]byte(r.URL.Path))
	}))
	t.Cleanup(origin.Close)
	return &keptWorld{T: t, origin: origin.URL}
}

// stop stops a server, which must end by itself.
func (w *keptWorld) stop(s *launchedServer) {
	w.Helper()
	if err := s.terminate(); err != nil {
		w.Fatal(err)
	}
}

// command runs millrace, and wants its exit code.
func (w *keptWorld) command(code int, args ...string) (stdout, stderr string) {
	w.Helper()
	c := boundedCommand(w.T, mustMillrace(w.T), args...)
	c.Dir = w.TempDir()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run()
	if got := c.ProcessState.ExitCode(); got != code {
		w.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, &out, &errs)
	}
	return out.String(), errs.String()
}

// TestMoveThereAndBack fills a server on SQLite, moves everything to PostgreSQL and back to a new
// directory, and reads the same answers on all three. At the end the jobs go on.
func TestMoveThereAndBack(t *testing.T) {
	w := newKeptWorld(t)
	dir, second := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "second")
	store := pgtest.URL(t)
	s := w.serve(dir)
	w.fill()
	_, refusal := w.command(cli.ExitUnable, "migrate", "--from", "sqlite:"+dir, "--to", store)
	if !strings.Contains(refusal, "is in use by process") {
		t.Errorf("beside a running server: %s", refusal)
	}
	w.stop(s)
	s = w.serve(dir, "--no-workers")
	want := w.fillWaiting()
	w.stop(s)

	out, _ := w.command(0, "migrate", "--from", "sqlite:"+dir, "--to", store)
	if !strings.Contains(out, "counts and checksums agree") {
		t.Errorf("the move says %s", out)
	}
	if _, err := launch(mustMillrace(t), dir, nil); err == nil ||
		!strings.Contains(err.Error(), "its jobs were moved to postgres://") {
		t.Errorf("a start on the source: %v", err)
	}
	onPostgres := []string{"--set", "store=" + store}
	s = w.serve(dir, append(onPostgres, "--no-workers")...)
	w.compare("PostgreSQL", want)
	back := []string{"migrate", "--from", store, "--to", "sqlite:" + second, "--objects", "copy",
		"--set", "data_dir=" + dir, "--json"}
	_, refusal = w.command(cli.ExitUnable, back...)
	if !strings.Contains(refusal, "servers run on postgres://") {
		t.Errorf("beside a running node: %s", refusal)
	}
	w.stop(s)

	out, _ = w.command(0, back...)
	var result moved
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Objects == nil ||
		result.Objects.Copied < 3 || len(result.Tables) < 10 {
		t.Errorf("the move back says %s: %v", out, err)
	}
	copyFileTo(t, filepath.Join(dir, "pepper"), second)
	if err := os.Rename(dir, dir+".away"); err != nil { // the copy stands on its own
		t.Fatal(err)
	}
	s = w.serve(second, "--no-workers")
	w.compare("SQLite again", want)
	w.stop(s)
	w.serve(second)
	w.goOn()
}

// TestMoveBesideServers: no move begins while a server runs on the source or on the target, of
// either kind, and both keep what they have.
func TestMoveBesideServers(t *testing.T) {
	w := newKeptWorld(t)
	lite, node := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "node")
	store, relay := pgtest.URL(t), []string{"--set", "contracts=relay"}
	onPostgres := append(relay, "--set", "store="+store)
	submit := func(queue string) (queued string) {
		t.Helper()
		w.call("POST", "/v2/queues/jobs", `[{"queue":"`+queue+`","id":"1","timeout":9,"payload":{}}]`,
			202, nil)
		return queuedJobs(t, w.url)
	}
	refused := func(from, to, says string) {
		t.Helper()
		_, text := w.command(cli.ExitUnable, "migrate", "--from", from, "--to", to)
		if !strings.Contains(text, says) {
			t.Errorf("from %s to %s: %s, want %q", from, to, text, says)
		}
	}
	const running, inUse = "servers run on postgres://", "is in use by process"
	s := w.serve(lite, relay...)
	liteJobs := submit("lite")
	w.stop(s)
	s = w.serve(node, onPostgres...)
	postgresJobs := submit("postgres")
	refused("sqlite:"+lite, store, running)
	refused(store, "sqlite:"+lite, running)
	w.stop(s)
	s = w.serve(lite, relay...)
	refused(store, "sqlite:"+lite, inUse)
	refused("sqlite:"+lite, store, inUse)
	if now := queuedJobs(t, w.url); now != liteJobs {
		t.Errorf("SQLite has %q, want %q", now, liteJobs)
	}
	w.stop(s)
	w.serve(node, onPostgres...)
	if now := queuedJobs(t, w.url); now != postgresJobs {
		t.Errorf("PostgreSQL has %q, want %q", now, postgresJobs)
	}
}

// TestMoveToS3AndBack moves a server with its objects from a directory to PostgreSQL and S3, and
// back to a directory. The objects are read from where they were copied to, as those that they were
// copied from are gone.
func TestMoveToS3AndBack(t *testing.T) {
	w := newKeptWorld(t)
	storage := outside.NewS3(t, "millrace")
	dir, second := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "second")
	store := pgtest.URL(t)
	s := w.serve(dir)
	w.fill()
	w.stop(s)
	s = w.serve(dir, "--no-workers")
	want := w.fillWaiting()
	w.stop(s)

	inS3 := []string{"--set", "objects.url=" + storage.Setting(), "--set", "data_dir=" + dir}
	copied := func(args ...string) (count movedCount) {
		t.Helper()
		out, _ := w.command(0, append(append([]string{"migrate", "--objects", "copy", "--json"},
			inS3...), args...)...)
		var result moved
		if err := json.Unmarshal([]byte(out), &result); err != nil || result.Objects == nil {
			t.Fatalf("%v says %s: %v", args, out, err)
		}
		return *result.Objects
	}
	there := copied("--from", "sqlite:"+dir, "--to", store)
	if there.Copied < 3 || there.Bytes == 0 || there.Present != 0 {
		t.Errorf("the move to S3 says %+v", there)
	}
	objects := filepath.Join(dir, "objects")
	if err := os.Rename(objects, objects+".away"); err != nil {
		t.Fatal(err)
	}
	s = w.serve(dir, "--no-workers", "--set", "store="+store, inS3[0], inS3[1])
	w.compare("S3", want)
	w.stop(s)

	back := copied("--from", store, "--to", "sqlite:"+second)
	if back != there {
		t.Errorf("the move back says %+v, the one to S3 %+v", back, there)
	}
	storage.Kill()
	copyFileTo(t, filepath.Join(dir, "pepper"), second)
	s = w.serve(second, "--no-workers")
	w.compare("SQLite again", want)
	w.stop(s)
	w.serve(second)
	w.goOn()
}

// TestMoveWithObjectsInS3 moves a server on SQLite whose objects are in S3 already: none is copied,
// whatever the move is told, and the new node reads them where they are. Back it is the same.
func TestMoveWithObjectsInS3(t *testing.T) {
	w := newKeptWorld(t)
	storage := outside.NewS3(t, "millrace")
	dir, second := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "second")
	store := pgtest.URL(t)
	inS3 := []string{"--set", "objects.url=" + storage.Setting()}
	s := w.serve(dir, inS3...)
	w.fill()
	w.stop(s)
	s = w.serve(dir, append(inS3, "--no-workers")...)
	want := w.fillWaiting()
	w.stop(s)

	args := append([]string{"migrate", "--set", "data_dir=" + dir, "--from", "sqlite:" + dir, "--to",
		store}, inS3...)
	out, _ := w.command(0, append(args, "--objects", "copy")...)
	if !regexp.MustCompile(`(?m)^objects +0  0.0 MiB copied, 0 there already$`).MatchString(out) {
		t.Errorf("the move says %s", out)
	}
	s = w.serve(dir, append(inS3, "--no-workers", "--set", "store="+store)...)
	w.compare("PostgreSQL", want)
	w.stop(s)

	w.command(0, append([]string{"migrate", "--from", store, "--to", "sqlite:" + second},
		inS3...)...)
	copyFileTo(t, filepath.Join(dir, "pepper"), second)
	s = w.serve(second, append(inS3, "--no-workers")...)
	w.compare("SQLite again", want)
	w.stop(s)
	w.serve(second, inS3...)
	w.goOn()
}

// copyFileTo copies a file into a directory.
func copyFileTo(t *testing.T, file, dir string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mustWriteFile(t, dir, filepath.Base(file), text)
}

// TestMoveIsKilled kills a move in the middle. No server starts on the half, the source serves as
// before if the move is given up, and the same command ends it with every job there once.
func TestMoveIsKilled(t *testing.T) {
	w := newKeptWorld(t)
	const jobs, batch = 12_000, 2000
	dir, store := filepath.Join(t.TempDir(), "data"), pgtest.URL(t)
	s := w.serve(dir, "--set", "contracts=relay")
	for from := 0; from < jobs; from += batch {
		some := make([]string, batch)
		for i := range some {
			some[i] = fmt.Sprintf(`{"queue":"q","id":"%d","timeout":9,"payload":"%d"}`, from+i, from+i)
		}
		w.call("POST", "/v2/queues/jobs", "["+strings.Join(some, ",")+"]", 202, nil)
	}
	w.stop(s)

	db := pgtest.DB(t, store)
	args := []string{"migrate", "--from", "sqlite:" + dir, "--to", store}
	c := exec.Command(mustMillrace(t), args...)
	stderr := &testkit.LogBuffer{}
	c.Dir, c.Stderr = t.TempDir(), stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pollUntil(t.Fatalf, "the move to have begun", func() bool { return storedBatches(db) > 0 })
	// The move notes each batch in records, so it stands still from here on, and says how far it
	// is.
	locking, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locking.Rollback()
	if _, err := locking.Exec("LOCK TABLE records IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^move: (copying|verifying) \w+ \((\d+) %\), \d`)
	pollUntil(t.Fatalf, "a line of progress", func() bool {
		return line.MatchString(stderr.String())
	})
	if done := line.FindStringSubmatch(stderr.String()); done[2] == "0" {
		t.Errorf("the progress of a move with a batch is %s", done[0])
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if err := locking.Rollback(); err != nil {
		t.Fatal(err)
	}
	if done := countRows(t, db, "SELECT count(*) FROM ready"); done == jobs {
		t.Logf("the move was killed late: %d jobs are there", done)
	}
	pollUntil(t.Fatalf, "the sessions of the killed process to end", func() bool {
		return countRows(t, db, "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND "+
			"granted AND (classid::int8<<32)|objid::int8=hashtextextended('millrace.move.'||"+
			"current_schema(), 0)") == 0
	})
	if _, err := launch(mustMillrace(t), filepath.Join(t.TempDir(), "other"), nil, "--set",
		"store="+store); err == nil || !strings.Contains(err.Error(), "a part of what is moved") {
		t.Errorf("a start on half a store: %v", err)
	}
	w.stop(w.serve(dir, "--set", "contracts=relay", "--no-workers"))

	w.command(0, args...)
	for _, table := range []string{"jobs", "ready"} {
		if n := countRows(t, db, "SELECT count(*) FROM "+table); n != jobs {
			t.Errorf("%d rows of %s, want %d", n, table, jobs)
		}
	}
	w.serve(filepath.Join(t.TempDir(), "third"), "--set", "store="+store, "--set",
		"contracts=relay")
	var claimed []struct{ ID string }
	w.call("GET", "/v2/queues/q/jobs?num_jobs=1000", "", 200, &claimed)
	if len(claimed) != 1000 || claimed[0].ID != "0" {
		t.Errorf("%d jobs are claimed, the first is %+v", len(claimed), claimed[0])
	}
}

// storedBatches returns 1 once the target of a move has a batch, and 0 before.
func storedBatches(db *sql.DB) (n int) {
	// The schema may not be there yet.
	_ = db.QueryRow("SELECT count(*) FROM records WHERE kind='move' AND key='incoming' " +
		"AND convert_from(body,'UTF8') LIKE '%\"last\"%'").Scan(&n)
	return n
}

func countRows(t *testing.T, db *sql.DB, text string) (n int) {
	t.Helper()
	if err := db.QueryRow(text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMoveArguments: what is wrong with the arguments of a move, before anything is opened.
func TestMoveArguments(t *testing.T) {
	w := newKeptWorld(t)
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{2, []string{"--from", "sqlite:a"}, "[from to]"},
		{2, []string{"--from", "sqlite:a", "--to", "sqlite:b"}, "from one kind of database to another"},
		{2, []string{"--from", "mysql://a", "--to", "sqlite:b"}, "--from: expected sqlite:DIR"},
		{2, []string{"--from", "sqlite:a", "--to", "postgres://127.0.0.1:1/a", "--objects", "link"},
			"--objects: expected keep or copy"},
		{3, []string{"--from", "sqlite:none", "--to", "postgres://127.0.0.1:1/a"}, "there is no database"},
		{3, []string{"--from", "postgres://u:secret@127.0.0.1:1/a", "--to", "sqlite:b"},
			"postgres://u:***@127.0.0.1:1/a cannot be opened"},
	} {
		if _, text := w.command(c.code, append([]string{"migrate"}, c.args...)...); !strings.Contains(
			text, c.says) || strings.Contains(text, "secret") {
			t.Errorf("%v says %s, want %q", c.args, text, c.says)
		}
	}
}
