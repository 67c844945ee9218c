package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
)

// docsWorker is a program of docs/workers.md, against a server that stays at one address.
type docsWorker struct {
	*testing.T
	interpreter, program string
	dir                  string // where the gates are, and the folder of the server
	address              string
	server               *launchedServer
	client               *client.Client
}

// gated are the handlers of the tests, in the place of those of the page: each says that it has
// begun and waits for a file, the gate of its job. One that finds "again" there fails for once.
var gated = map[string]struct{ file, handler, gated string }{
	"python": {"etl.py", `    if "file" not in payload:
        raise Final("the payload has no file")
    return {"bytes": len(payload["file"])}
`, `    gate = payload
    open(gate + ".began", "w").close()
    while not os.path.exists(gate):
        if lost.is_set():
            open(gate + ".lost", "w").close()
            return None
        time.sleep(0.02)
    if open(gate).read() == "again":
        open(gate, "w").close()
        raise RuntimeError("not yet")
    return gate
`},
	"js": {"etl.mjs", `  if (payload?.file === undefined) throw new Final("the payload has no file");
  return { bytes: payload.file.length };
`, `  const gate = payload, fs = await import("node:fs");
  fs.writeFileSync(gate + ".began", "");
  for (; !fs.existsSync(gate); await sleep(20))
    if (lost.aborted) return fs.writeFileSync(gate + ".lost", "");
  if (fs.readFileSync(gate, "utf8") === "again") {
    fs.writeFileSync(gate, "");
    throw new TypeError("not yet");
  }
  return gate;
`},
}

// newDocsWorker starts a server for the program of the page in a language, with the handler of the
// page or a gated one.
func newDocsWorker(t *testing.T, language string, withGates bool, args ...string) *docsWorker {
	t.Helper()
	w := &docsWorker{T: t, interpreter: "node", dir: t.TempDir(), address: freeAddress(t)}
	if language == "python" {
		w.interpreter = testkit.Python(t)
	}
	program, of := codeBlocks(t, "workers.md", language)[0], gated[language]
	if strings.Count(program, of.handler) != 1 {
		t.Fatalf("the program in %s does not have the handler once", language)
	}
	if withGates {
		program = strings.Replace(program, of.handler, of.gated, 1)
	}
	mustWriteFile(t, w.dir, of.file, []byte(program))
	w.program = filepath.Join(w.dir, of.file)
	w.serve(args...)
	c, err := client.New(client.Config{BaseURL: w.server.url})
	if err != nil {
		t.Fatal(err)
	}
	w.client = c
	return w
}

// serve starts the server, again where it has ended.
func (w *docsWorker) serve(args ...string) {
	w.Helper()
	w.server = launchIn(w.T, filepath.Join(w.dir, "data"), append(args, "--set", "log.level=warn",
		"--set", "operator.token=operator", "--set", "contracts=taskflow", "--set",
		"listen="+w.address)...)
}

// start starts the worker, and returns what it prints.
func (w *docsWorker) start() (*exec.Cmd, *testkit.LogBuffer) {
	w.Helper()
	output := &testkit.LogBuffer{}
	c := exec.CommandContext(w.Context(), w.interpreter, w.program)
	c.Env = append(os.Environ(), "MILLRACE_SERVER=http://"+w.address)
	c.Stdout, c.Stderr = output, output
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Process.Kill() })
	return c, output
}

// submit submits a job with a payload, which is tried twice.
func (w *docsWorker) submit(payload string) client.TaskFlowJob {
	w.Helper()
	j, err := w.client.TaskFlow().Submit(w.Context(), client.TaskFlowSpec{Name: "n", Queue: "etl",
		Payload: []byte(payload), Retry: client.TaskFlowRetryPolicy{MaxAttempts: 2,
			BaseDelay: time.Second}})
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// begin submits a job with a gate, and waits until its handler has begun.
func (w *docsWorker) begin(gate string) client.TaskFlowJob {
	w.Helper()
	path := filepath.Join(w.dir, gate)
	j := w.submit(fmt.Sprintf("%q", path))
	pollUntil(w.Fatalf, "the handler to begin", func() bool { return fileExists(path + ".began") })
	return j
}

// ends waits until a job has ended so, after a number of failed attempts.
func (w *docsWorker) ends(id string, status client.TaskFlowStatus, failed int) client.TaskFlowJob {
	w.Helper()
	var j client.TaskFlowJob
	var err error
	pollUntil(w.Fatalf, "the job to end", func() bool {
		j, err = w.client.TaskFlow().Get(w.Context(), id)
		return err == nil && j.Status.Final()
	})
	if j.Status != status || j.FailedAttempts != failed {
		w.Errorf("the job is %+v, want %s after %d failed attempts", j, status, failed)
	}
	return j
}

// exits demands that the worker ends by itself, without a failure.
func (w *docsWorker) exits(c *exec.Cmd, output *testkit.LogBuffer) {
	w.Helper()
	hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
	defer hang.Stop()
	if err := c.Wait(); err != nil {
		w.Errorf("the worker ended with %v:\n%s", err, output)
	}
}

// The programs of docs/workers.md do what the page says of a worker, each against servers of its
// own.
func TestWorkersOfTheDocs(t *testing.T) {
	t.Parallel()
	for language := range gated {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			t.Run("as it is", func(t *testing.T) { workAsItIs(newDocsWorker(t, language, false)) })
			t.Run("outages", func(t *testing.T) { outliveServers(newDocsWorker(t, language, true)) })
			t.Run("ends", func(t *testing.T) { drainAndStop(newDocsWorker(t, language, true)) })
			t.Run("lost run", func(t *testing.T) {
				loseRun(newDocsWorker(t, language, true, "--set", "taskflow.lease=3s"))
			})
		})
	}
}

// TestBodiesOfWorkersInTheDocs: the bodies of docs/workers.md are taken, and answers have the
// members that the page shows.
func TestBodiesOfWorkersInTheDocs(t *testing.T) {
	t.Parallel()
	w := newDocsWorker(t, "python", false)
	shown, name := map[string]string{}, ""
	for line := range strings.Lines(codeBlocks(t, "workers.md", "text")[0]) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasPrefix(word, `"`): // the line goes on with an answer
			shown[name] += word + " " + rest
		case word == "answer":
			name += " answer"
			shown[name] = rest
		default:
			name = word
			shown[name] = rest
		}
	}
	send := func(path, body string) (answer map[string]any) {
		t.Helper()
		status, text := sendRequest(t, "POST", w.server.url+"/worker/v1"+path, body,
			"Content-Type", "application/json")
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
			t.Fatalf("%s with %s is %d %s, %v", path, body, status, text, err)
		}
		return answer
	}
	wantMembers := func(name string, got map[string]any) {
		t.Helper()
		var want map[string]any
		if err := json.Unmarshal([]byte(shown[name]), &want); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !maps.EqualFunc(got, want, func(a, b any) bool { return true }) {
			t.Errorf("%s has %v, and the page %v", name, got, want)
		}
	}
	for _, end := range []string{"complete", "fail"} {
		w.submit(`{"file":"a.csv"}`)
		answer := send("/claims", shown["claim"])
		wantMembers("claim answer", answer)
		job := answer["jobs"].([]any)[0].(map[string]any)
		shown["job"] = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(shown["claim answer"]),
			`{"jobs":[`), "]}")
		wantMembers("job", job)
		run := "/runs/" + job["run_id"].(string)
		wantMembers("heartbeat answer", send(run+"/heartbeat", shown["heartbeat"]))
		send(run+"/"+end, shown[end])
	}
}

// workAsItIs runs the program of the page with the commands of the page: its job completes, and one
// with a payload that cannot be right fails for good, which the worker says.
func workAsItIs(w *docsWorker) {
	_, output := w.start()
	commands := blockWith(w.T, codeBlocks(w.T, "workers.md", "sh"), "a.csv")
	submit, show, found := strings.Cut(commands, "\ncurl")
	if !found {
		w.Fatal("the commands do not submit a job and show it")
	}
	script := fmt.Sprintf("%s\nuntil curl %s", submit, strings.Replace(strings.TrimSpace(show), "#",
		`| grep -E '"result":\{"bytes": ?5\}'; do sleep 0.2; done #`, 1))
	ctx, cancel := context.WithTimeout(w.Context(), testTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(script, "localhost:8080", w.address))
	if out, err := c.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), `"status":"COMPLETED"`) {
		w.Errorf("%v: %s", err, out)
	}
	j := w.submit("{}")
	ended := w.ends(j.ID, client.TaskFlowStatusFailed, 1)
	if ended.LastError == nil || ended.LastError.Type != "Final" {
		w.Errorf("its error is %+v", ended.LastError)
	}
	pollUntil(w.Fatalf, "the worker to print it", func() bool {
		return strings.Contains(output.String(), j.ID+" failed:")
	})
}

// outliveServers kills or stops the server and starts it again: the worker claims what comes
// afterwards, and a run that ends while there is no server completes its job.
func outliveServers(w *docsWorker) {
	c, output := w.start()
	for _, how := range []struct {
		name string
		end  func() error
	}{
		{"killed", func() error { w.server.kill(); return nil }},
		{"stopped", func() error { return w.server.terminate() }},
	} {
		end := func() {
			if err := how.end(); err != nil {
				w.Error(err)
			}
		}
		pollUntil(w.Fatalf, "the worker to ask for jobs", func() bool {
			return isClaimURL(w.server.url)
		})
		end()
		rejectUntilAsked(w.T, w.address, "/claims")
		w.serve()
		j := w.begin(how.name)
		end()
		mustWriteFile(w.T, w.dir, how.name, nil) // and the handler is done
		rejectUntilAsked(w.T, w.address, "/complete")
		w.serve()
		ended := w.ends(j.ID, client.TaskFlowStatusCompleted, 0)
		if string(ended.Result) != string(ended.Payload) {
			w.Errorf("%s: the job is %+v", how.name, ended)
		}
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		w.Fatal(err)
	}
	w.exits(c, output)
}

// drainAndStop drains a worker, and stops another one by a signal, while a handler runs: the
// handler ends, the job with it, and then the worker, which leaves what has not begun. A failure
// that passes is tried again.
func drainAndStop(w *docsWorker) {
	for _, how := range []struct {
		name, gate string
		failed     int
		end        func(c *exec.Cmd) error
	}{
		{"drained", "", 0, func(c *exec.Cmd) error {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			drain := exec.CommandContext(w.Context(), mustMillrace(w.T), "workers", "drain",
				fmt.Sprintf("etl-%s-%d", host, c.Process.Pid))
			drain.Env = append(os.Environ(), "MILLRACE_SERVER="+w.server.url, "MILLRACE_TOKEN=operator")
			return drain.Run()
		}},
		{"signal", "again", 1, func(c *exec.Cmd) error { return c.Process.Signal(syscall.SIGTERM) }},
	} {
		c, output := w.start()
		j := w.begin(how.name)
		if err := how.end(c); err != nil {
			w.Fatal(err)
		}
		next := w.submit(fmt.Sprintf("%q", filepath.Join(w.dir, how.name+"-next")))
		mustWriteFile(w.T, w.dir, how.name, []byte(how.gate))
		w.exits(c, output)
		if now, err := w.client.TaskFlow().Get(w.Context(), next.ID); err != nil ||
			now.Status != client.TaskFlowStatusReady {
			w.Errorf("%s: the next job is %+v, %v", how.name, now, err)
		}
		mustWriteFile(w.T, w.dir, how.name+"-next", nil)
		c, output = w.start() // another worker, which runs what is left
		w.ends(j.ID, client.TaskFlowStatusCompleted, how.failed)
		w.ends(next.ID, client.TaskFlowStatusCompleted, 0)
		if err := c.Process.Signal(os.Interrupt); err != nil {
			w.Fatal(err)
		}
		w.exits(c, output)
	}
}

// loseRun cancels a job while its handler runs, which ends with a heartbeat. The worker goes on.
func loseRun(w *docsWorker) {
	w.start()
	j := w.begin("canceled")
	if _, err := w.client.TaskFlow().Cancel(w.Context(), j.ID); err != nil {
		w.Fatal(err)
	}
	pollUntil(w.Fatalf, "the handler to end", func() bool {
		return fileExists(filepath.Join(w.dir, "canceled.lost"))
	})
	w.begin("next")
}

// isClaimURL reports whether a worker waits for jobs of TaskFlow.
func isClaimURL(url string) bool {
	resp, err := http.Get(url + "/metrics/worker")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(text),
		`millrace_worker_api_waiting_claims{contract="taskflow"} 1`)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// rejectUntilAsked breaks every connection, until one has asked for a path of this end.
func rejectUntilAsked(t *testing.T, address, end string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(testTimeout))
	for {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("nobody asks for %s: %v", end, err)
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if strings.HasSuffix(line, end+" HTTP/1.1\r\n") {
			return
		}
	}
}
