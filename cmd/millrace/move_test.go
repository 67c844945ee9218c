package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit/outside"
	"github.com/millrace/millrace/internal/webhook"
)

// keptWorld is a server whose data is moved, or backed up and restored, while the clients keep what
// they were told.
type keptWorld struct {
	*testing.T
	url      string
	origin   string            // of downloads
	generate bool              // the server makes the operator's token
	key      string            // of a client of ForgeRun
	leased   string            // a run of Relay that goes on
	paths    map[string]string // what operators and clients read, with the token for it
}

const operatorSecret = "operator-secret"

// serve starts a server on a data directory; it ends with the test.
func (w *keptWorld) serve(dir string, args ...string) *launchedServer {
	w.Helper()
	args = append([]string{"--set", "log.level=warn", "--set", "forgerun.duration_scale=0.001",
		"--set", "images.sizes=50"}, args...)
	if !w.generate {
		args = append(args, "--set", "operator.token="+operatorSecret)
	}
	s := launchIn(w.T, dir, args...)
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
	type listedJob struct {
		Number          int64
		Contract, Phase string
	}
	var list struct{ Items []listedJob }
	pollUntil(w.Fatalf, "the webhook to be delivered", func() bool {
		list.Items = nil
		w.call("GET", "/admin/v1/jobs?limit=200", "", 200, &list)
		isDelivered := slices.ContainsFunc(list.Items, func(j listedJob) bool {
			return j.Contract == webhook.Name && j.Phase == "done"
		})
		return isDelivered && len(list.Items) >= 10 // a list looks for 20 ms at most
	})
	for _, j := range list.Items {
		w.paths[fmt.Sprintf("/admin/v1/jobs/%d", j.Number)] = operatorSecret
		if j.Contract != "fetchbox" { // its log is in the streams
			w.paths[fmt.Sprintf("/admin/v1/jobs/%d/timeline", j.Number)] = operatorSecret
		}
	}
}

// fillRelay has a job with a large payload that waits, one that waits for its time, and one that a
// worker has.
func (w *keptWorld) fillRelay() {
	w.Helper()
	w.call("POST", "/v2/queues/jobs", fmt.Sprintf(`[{"queue":"mail","id":"a","timeout":3600,
		"payload":{"n":1.50}},{"queue":"later","id":"b","timeout":9,"payload":%q}]`,
		strings.Repeat("large ", 5000)), 202, nil)
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

// fillForgeRun has a client with a webhook, a job that is done, and one that waits for its time.
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
	forge := c.ForgeRun().WithAPIKey(w.key)
	if _, err := forge.CreateWebhook(ctx, w.origin+"/hook",
		[]client.ForgeRunEventName{"job_succeeded"}, ""); err != nil {
		w.Fatal(err)
	}
	made, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := forge.Wait(ctx, made.JobID); err != nil {
		w.Fatal(err)
	}
	for _, path := range []string{"/v1/jobs/" + made.JobID,
		"/v1/jobs/" + made.JobID + "/report", "/v1/clients/" + id + "/keys", "/v1/webhooks"} {
		w.paths[path] = w.key
	}
}

// fillFiles has downloads and a picture that are done.
func (w *keptWorld) fillFiles() {
	w.Helper()
	status, answer := sendTo(w.T, http.DefaultClient, "POST", w.url+"/jobs", fmt.Sprintf(
		`{"manifest_version":"v1","metadata":{},"resources":[{"id":"r","url":%q}]}`, w.origin+"/file"),
		"X-Fetchbox-Job-Type", "default", "X-Fetchbox-Idempotency-Key", "once", "Content-Type",
		"application/json")
	var fetched struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(answer), &fetched); err != nil || status != 202 {
		w.Fatalf("a manifest answers %d %s", status, answer)
	}
	pollUntil(w.Fatalf, "the download", func() bool {
		_, answer := sendTo(w.T, http.DefaultClient, "GET", w.url+"/operators/jobs/"+fetched.JobID, "",
			"Authorization", "Bearer "+operatorSecret)
		return strings.Contains(answer, `"status":"completed"`)
	})
	w.paths["/operators/jobs/"+fetched.JobID] = operatorSecret
	file := w.upload()
	for _, path := range []string{"", "/content", "/variants/50"} {
		w.paths["/images/v1/files/"+file+path] = ""
	}
}

// upload stores a picture and waits until its variant is made.
func (w *keptWorld) upload() (file string) {
	w.Helper()
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 80, 60)), nil); err != nil {
		w.Fatal(err)
	}
	var made struct {
		FileID string `json:"file_id"`
		JobID  string `json:"job_id"`
	}
	imageCall(w.T, w.url, "POST", "/images/v1/files", picture.Bytes(), 202, &made)
	pollUntil(w.Fatalf, "the picture to be processed", func() bool {
		var j imageJob
		imageCall(w.T, w.url, "GET", "/images/v1/jobs/"+made.JobID, nil, 200, &j)
		return j.Status == "completed"
	})
	return made.FileID
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
// the client with its key, and a new picture.
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
	forge, err := client.New(client.Config{BaseURL: w.url})
	if err != nil {
		w.Fatal(err)
	}
	made, err := forge.ForgeRun().WithAPIKey(w.key).Submit(w.Context(), client.ForgeRunSpec{
		Type: client.ForgeRunTypeExecute, Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := forge.ForgeRun().WithAPIKey(w.key).Wait(w.Context(), made.JobID); err != nil {
		w.Fatal(err)
	}
	w.upload()
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
	want := w.answers()
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
	want := w.answers()
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
	want := w.answers()
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
		var body strings.Builder
		for i := range batch {
			body.WriteByte("[,"[min(i, 1)])
			fmt.Fprintf(&body, `{"queue":"q","id":"%d","timeout":9,"payload":"%d"}`, from+i, from+i)
		}
		w.call("POST", "/v2/queues/jobs", body.String()+"]", 202, nil)
	}
	w.stop(s)

	db := pgtest.DB(t, store)
	args := []string{"migrate", "--from", "sqlite:" + dir, "--to", store}
	c := exec.Command(mustMillrace(t), args...)
	c.Dir = t.TempDir()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pollUntil(t.Fatalf, "the move to have begun", func() bool { return storedBatches(db) > 0 })
	_ = c.Process.Kill()
	_ = c.Wait()
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
