package main

import (
	"bufio"
	"context"
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
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/testkit"
)

// pythonOf writes the Python program of a page of docs to a file; replace are pairs of a text of it
// and what the test has in its place.
func pythonOf(t *testing.T, page string, replace ...string) (python, file string) {
	t.Helper()
	python = testkit.Python(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```python\n")
	program, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("there is no program in ", page)
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(program, replace[i]) != 1 {
			t.Fatalf("the program of %s does not have %q once", page, replace[i])
		}
		program = strings.Replace(program, replace[i], replace[i+1], 1)
	}
	file = filepath.Join(t.TempDir(), "program.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return python, file
}

// The producer of docs/producers.md does what the page says.
func TestProducerOfTheDocs(t *testing.T) {
	t.Parallel()
	python, file := pythonOf(t, "producers.md")
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.URL.Path))
	}))
	t.Cleanup(origin.Close)
	address := freeAddress(t)
	s := launchNode(t, "data", "--set", "stream.listen="+address)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, file, address, origin.URL+"/a",
		origin.URL+"/b").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	id, done := strings.TrimSpace(string(out)), client.FetchBoxJob{}
	// a job is there when its first task was taken in
	pollUntil(t.Fatalf, "both downloads", func() bool {
		done, err = c.FetchBox().Job(ctx, id)
		return err == nil && done.Completed == 2
	})
	if done.Type != "default" || done.Failed != 0 || !done.Status.Final() {
		t.Errorf("the job is %+v", done)
	}
}

// The worker of docs/taskflow.md outlives servers that are killed or stopped and started again: it
// claims what comes afterwards, and a run that ends while there is no server completes its job.
func TestWorkerOfTheDocs(t *testing.T) {
	t.Parallel()
	const work = `
import os

def work(gate):
    open(gate + ".began", "w").close()
    while not os.path.exists(gate):
        time.sleep(0.02)
    return gate

`
	address, dir := freeAddress(t), t.TempDir()
	python, file := pythonOf(t, "taskflow.md", "127.0.0.1:8080", address,
		"while True:\n    for job in", work+"while True:\n    for job in")
	binary := mustMillrace(t)
	start := func() *launchedServer {
		t.Helper()
		s, err := launch(binary, filepath.Join(dir, "data"), nil, "--set", "log.level=warn",
			"--set", "listen="+address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.kill)
		return s
	}
	server := start()
	c, err := client.New(client.Config{BaseURL: server.url})
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	worker := exec.Command(python, file)
	worker.Stdout, worker.Stderr = &output, &output
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = worker.Process.Kill()
		if _ = worker.Wait(); output.Len() > 0 {
			t.Errorf("the worker says %s", &output)
		}
	}()

	stop := func(s *launchedServer) {
		if err := s.terminate(); err != nil {
			t.Error(err)
		}
	}
	for how, end := range map[string]func(*launchedServer){"killed": (*launchedServer).kill,
		"stopped": stop} {
		pollUntil(t.Fatalf, "the worker to ask for jobs", func() bool {
			return isClaimURL(server.url)
		})
		end(server)
		rejectUntilAsked(t, address, "/claims")
		server = start()

		gate := filepath.Join(dir, how)
		j, err := c.TaskFlow().Submit(t.Context(),
			client.TaskFlowSpec{Name: how, Queue: "etl", Payload: fmt.Appendf(nil, "%q", gate)})
		if err != nil {
			t.Fatal(err)
		}
		pollUntil(t.Fatalf, "the work to begin", func() bool { return fileExists(gate + ".began") })
		end(server)
		mustWriteFile(t, dir, how, nil) // and it is done
		rejectUntilAsked(t, address, "/complete")
		server = start()
		pollUntil(t.Fatalf, "the job to be over", func() bool {
			j, err = c.TaskFlow().Get(t.Context(), j.ID)
			return err == nil && j.Status == client.TaskFlowStatusCompleted
		})
		if j.FailedAttempts != 0 || string(j.Result) != fmt.Sprintf("%q", gate) {
			t.Errorf("%s: the job is %+v", how, j)
		}
	}
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
