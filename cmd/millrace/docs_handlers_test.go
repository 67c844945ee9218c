package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit"
)

// handlersWorld is a server with the handlers of docs/handlers.md.
type handlersWorld struct {
	*testing.T
	server *launchedServer
	client *client.Client
	dir    string // in the place of /opt/millrace
}

// newHandlersWorld writes the programs of docs/handlers.md to files, starts those that are
// services, and a server with the settings of the page.
func newHandlersWorld(t *testing.T) *handlersWorld {
	t.Helper()
	dir, mail, shop := t.TempDir(), freeAddress(t), freeAddress(t)
	places := strings.NewReplacer("/opt/millrace", dir, "127.0.0.1:9000", mail, "127.0.0.1:9001",
		shop, `("127.0.0.1", 9000)`, pythonAddress(mail), `("127.0.0.1", 9001)`, pythonAddress(shop))
	programs, settings := codeBlocks(t, "handlers.md", "python"), codeBlocks(t, "handlers.md", "toml")
	if len(programs) != 4 || len(settings) != 5 {
		t.Fatalf("the page has %d programs and %d settings", len(programs), len(settings))
	}
	for i, name := range []string{"etl.py", "mail.py", "shop.py", "shop_service.py"} {
		mustWriteFile(t, dir, name, []byte(places.Replace(programs[i])))
	}
	settings[3] = strings.Replace(settings[3], "[job_types.shop]", "[job_types.shop_service]", 1)
	mustWriteFile(t, dir, "millrace.toml", []byte(places.Replace(strings.Join(settings, ""))))
	for address, file := range map[string]string{mail: "mail.py", shop: "shop_service.py"} {
		startPython(t, address, filepath.Join(dir, file))
	}
	w := &handlersWorld{T: t, dir: dir, server: launchIn(t, filepath.Join(dir, "data"), "--config",
		filepath.Join(dir, "millrace.toml"))}
	var err error
	if w.client, err = client.New(client.Config{BaseURL: w.server.url}); err != nil {
		t.Fatal(err)
	}
	return w
}

// pythonAddress is an address as Python has it.
func pythonAddress(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("(%q, %s)", host, port)
}

// startPython starts a service and waits until it listens.
func startPython(t *testing.T, address, file string) {
	t.Helper()
	output := &testkit.LogBuffer{}
	c := exec.Command(testkit.Python(t), file)
	c.Stdout, c.Stderr = output, output
	child.SetProcessGroup(c)
	child.KillWithParent(c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(file, output)
		}
	})
	pollUntil(t.Fatalf, file+" to listen", func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// ended waits for the end of a job and returns it.
func (w *handlersWorld) ended(id string) (j client.TaskFlowJob) {
	w.Helper()
	pollUntil(w.Fatalf, "the end of job "+id, func() bool {
		var err error
		if j, err = w.client.TaskFlow().Get(w.Context(), id); err != nil {
			w.Fatal(err)
		}
		return j.Status == client.TaskFlowStatusCompleted || j.Status == client.TaskFlowStatusFailed
	})
	return j
}

// run runs a job with one attempt.
func (w *handlersWorld) run(queue, payload string) client.TaskFlowJob {
	w.Helper()
	made, err := w.client.TaskFlow().Submit(w.Context(), client.TaskFlowSpec{Name: "n",
		Queue:   queue,
		Payload: []byte(payload), Retry: client.TaskFlowRetryPolicy{MaxAttempts: 1}})
	if err != nil {
		w.Fatal(err)
	}
	return w.ended(made.ID)
}

// G-TF-41 G-FB-46 The examples of docs/handlers.md do what the page says.
func TestHandlersOfTheDocs(t *testing.T) {
	t.Parallel()
	w := newHandlersWorld(t)
	for _, block := range codeBlocks(t, "handlers.md", "sh") {
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(block, "localhost:8080",
			strings.TrimPrefix(w.server.url, "http://"))).Output()
		var made struct{ ID string }
		if err := json.Unmarshal(out, &made); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"rows": 2, "job": "%s"}`, made.ID)
		if j := w.ended(made.ID); string(j.Result) != want {
			t.Errorf("the job is %+v, want %s", j, want)
		}
	}
	for payload, want := range map[string]string{
		`{}`:          "rows is missing (exit status 1)",
		`{"rows": 1}`: "rows is no list (exit status 65)",
	} {
		j := w.run("etl", payload)
		if j.LastError == nil || j.LastError.Message != want || j.LastError.Type != "exit" ||
			j.LastError.Retryable != (payload == `{}`) {
			t.Errorf("%s: the job is %+v with %+v", payload, j, j.LastError)
		}
	}
	if j := w.run("mail", `{"to": "me"}`); string(j.Result) !=
		fmt.Sprintf(`{"to": "me", "id": "%s"}`, j.ID) {
		t.Errorf("the mail is %+v with %+v", j, j.LastError)
	}
	for _, jobType := range []string{"shop", "shop_service"} {
		w.checkShop(jobType)
	}
}

// checkShop submits to a job type what the handler changes and what it refuses.
func (w *handlersWorld) checkShop(jobType string) {
	w.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, bodyOf(r.URL.Path))
	}))
	defer origin.Close()
	resource := func(id, tags string) string {
		return fmt.Sprintf(`{"id":%q,"url":"%s/%s","tags":{%s}}`, id, origin.URL, id, tags)
	}
	submit := func(resources ...string) (status int, text string) {
		return sendRequest(w.T, "POST", w.server.url+"/jobs", `{"manifest_version":"v1","metadata":{},`+
			`"resources":[`+strings.Join(resources, ",")+`]}`, "Content-Type", "application/json",
			"X-Fetchbox-Job-Type", jobType)
	}
	status, text := submit(resource("a", ""), resource("b", `"kind":"thumbnail"`), resource("c", ""))
	var made struct {
		ID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != 202 {
		w.Fatalf("%s: got %d %s", jobType, status, text)
	}
	awaitFetched(w.T, w.server.url, made.ID, 2)
	files := filesBelow(w.T, "shop/"+made.ID, filepath.Join(w.dir, "data/objects/millrace"))
	if len(files) != 2 || files["shop/"+made.ID+"/c"] != bodyOf("/c") {
		w.Errorf("%s: these are stored: %v", jobType, files)
	}
	pollUntil(w.Fatalf, "the end of "+made.ID, func() bool {
		ended, _ := os.ReadFile(filepath.Join(w.dir, "ended"))
		return strings.Contains(string(ended), made.ID+" completed 2\n")
	})
	many := make([]string, 101)
	for i := range many {
		many[i] = resource(fmt.Sprint(i), "")
	}
	if status, text := submit(many...); status != 400 ||
		!strings.Contains(text, "no more than 100 pictures at a time") {
		w.Errorf("%s: got %d %s", jobType, status, text)
	}
}
