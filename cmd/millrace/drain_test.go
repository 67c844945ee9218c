package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// drainWorld is a server whose workers are drained, and the command line of its operator.
type drainWorld struct {
	*testing.T
	server  *launchedServer
	client  *client.Client
	environ []string
}

// onDrainWorlds runs a test on both databases.
func onDrainWorlds(t *testing.T, test func(*drainWorld)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(newDrainWorld(t)) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(newDrainWorld(t, "--set", "store="+pgtest.URL(t)))
	})
}

// newDrainWorld starts a server.
func newDrainWorld(t *testing.T, args ...string) *drainWorld {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s := launchIn(t, dir, append([]string{"--no-workers", "--set", "log.level=warn", "--set",
		"contracts=relay,taskflow"}, args...)...)
	token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	return &drainWorld{t, s, c, []string{"MILLRACE_SERVER=" + s.url,
		"MILLRACE_OPERATOR_TOKEN=" + strings.TrimSpace(string(token))}}
}

// operate runs a command of the operator and returns what it prints.
func (w *drainWorld) operate(args ...string) string {
	w.Helper()
	code, out, errs := runCommand(w.T, w.environ, args...)
	if code != cli.ExitOK {
		w.Fatalf("%q: exit code %d: %s", args, code, errs)
	}
	return out
}

// workers returns the workers that the server lists.
func (w *drainWorld) workers() (all []client.AdminWorker) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.operate("workers", "list", "--json")), &all); err != nil {
		w.Fatal(err)
	}
	return all
}

// checkCompleted checks that the shell is offered names (CL-005).
func (w *drainWorld) checkCompleted(noun string, names ...string) {
	w.Helper()
	offered := strings.Split(w.operate("__complete", noun, "drain", ""), "\n")
	for _, name := range names {
		if !slices.Contains(offered, name) {
			w.Errorf("%s: %q is not among %q", noun, name, offered)
		}
	}
}

// submit stores a job for each of the workers, and returns the ids of those of TaskFlow.
func (w *drainWorld) submit(id string) (taskFlow []string) {
	w.Helper()
	if err := w.client.Relay().Enqueue(w.Context(), []client.RelaySpec{
		{Queue: "command", ID: id, Timeout: time.Minute},
		{Queue: "library", ID: id, Timeout: time.Minute}}, client.RelayUnique); err != nil {
		w.Fatal(err)
	}
	for _, queue := range []string{"command", "library"} {
		made, err := w.client.TaskFlow().Submit(w.Context(),
			client.TaskFlowSpec{Name: id, Queue: queue})
		if err != nil {
			w.Fatal(err)
		}
		taskFlow = append(taskFlow, made.ID)
	}
	return taskFlow
}

// startCommand starts `millrace work` for a contract, with a program that ends when the file
// release exists.
func (w *drainWorld) startCommand(contract, release string) (c *exec.Cmd,
	output *testkit.LogBuffer) {
	w.Helper()
	output = &testkit.LogBuffer{}
	c = exec.Command(mustMillrace(w.T), "work", "command", "--contract", contract, "--server",
		w.server.url, "--", "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done`, release)
	c.Env, c.Stderr = []string{"PATH=" + os.Getenv("PATH")}, output
	child.SetProcessGroup(c)
	child.KillWithParent(c)
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Process.Kill() })
	return c, output
}

// TestDrainedWorkers (AD-040, AD-041, CL-001): processes of `millrace work`, of Relay and of the
// worker API, and the workers of the Go client learn from the server that they are drained. They
// finish the jobs that they have, take no further ones, and end with 0 and without an error.
func TestDrainedWorkers(t *testing.T) {
	t.Parallel()
	onDrainWorlds(t, func(w *drainWorld) {
		ctx, stop := context.WithTimeout(w.Context(), testTimeout)
		defer stop()
		first := w.submit("first")
		release, finish := filepath.Join(w.TempDir(), "release"), make(chan struct{})
		command, output := w.startCommand("relay", release)
		remote, remoteOutput := w.startCommand("taskflow", release)
		relay := &client.Worker{Relay: w.client.Relay(), Queue: "library", Name: "relay-worker",
			Handler: func(context.Context, *client.Run) error { <-finish; return nil }}
		jobs := &client.JobWorker{API: w.client.WorkerAPI(), Contract: client.ContractTaskFlow,
			Name: "job-worker", Handlers: map[string]client.JobHandler{"library": func(
				context.Context, *client.JobRun) (json.RawMessage, error) {
				<-finish
				return nil, nil
			}}}
		ended := make(chan error, 4)
		go func() { ended <- relay.Run(ctx) }()
		go func() { ended <- jobs.Run(ctx) }()
		go func() { ended <- command.Wait() }()
		go func() { ended <- remote.Wait() }()

		var names []string
		pollUntil(w.Fatalf, "all to execute a job", func() bool {
			names = nil
			for _, worker := range w.workers() {
				if len(worker.Running) == 1 {
					names = append(names, worker.Name)
				}
			}
			return len(names) == 4
		})
		w.checkCompleted("workers", names...)
		w.operate(append([]string{"workers", "drain"}, names...)...)
		for _, worker := range w.workers() {
			isDrained := worker.Draining && len(worker.Running) == 1
			if slices.Contains(names, worker.Name) && !isDrained {
				w.Errorf("after the drain got %+v", worker)
			}
		}
		w.checkHeader(names)
		second := w.submit("second")
		close(finish)
		mustWriteFile(w.T, filepath.Dir(release), "release", nil)
		for range 4 {
			if err := <-ended; err != nil || ctx.Err() != nil {
				w.Errorf("a worker ended with %v, %v: %s%s", err, ctx.Err(), output, remoteOutput)
			}
		}
		for _, c := range []*exec.Cmd{command, remote} {
			if code := c.ProcessState.ExitCode(); code != cli.ExitOK {
				w.Errorf("AD-041 %q ended with %d", c.Args, code)
			}
		}
		w.checkDone(first, second)
	})
}

// checkHeader checks that an empty answer to a drained worker has the header by its literal name,
// for workers that are written with none of the clients, and that others do not get it.
func (w *drainWorld) checkHeader(drained []string) {
	w.Helper()
	for _, worker := range append([]string{"another"}, drained...) {
		r, err := http.NewRequestWithContext(w.Context(), http.MethodGet,
			w.server.url+"/v2/queues/nobody/jobs", nil)
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Millrace-Worker", worker)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			w.Fatal(err)
		}
		_ = resp.Body.Close()
		want := map[bool]string{true: "true"}[worker != "another"]
		got := resp.Header.Get("Millrace-Drain")
		if (resp.StatusCode != http.StatusNoContent) || (got != want) {
			w.Errorf("AD-041 %s gets %d with Millrace-Drain %q", worker, resp.StatusCode, got)
		}
	}
}

// checkDone checks that the first jobs were finished and the second ones were not begun.
func (w *drainWorld) checkDone(first, second []string) {
	w.Helper()
	for want, ids := range map[client.TaskFlowStatus][]string{client.TaskFlowStatusCompleted: first,
		client.TaskFlowStatusReady: second} {
		for _, id := range ids {
			got, err := w.client.TaskFlow().Get(w.Context(), id)
			if err != nil || got.Status != want {
				w.Errorf("got %s, %v, want %s", got.Status, err, want)
			}
		}
	}
	for _, queue := range []string{"command", "library"} {
		for id, want := range map[string]int{"first": http.StatusNotFound,
			"second": http.StatusOK} {
			status, text := sendRequest(w.T, http.MethodGet,
				w.server.url+"/v2/queues/"+queue+"/jobs/"+id, "")
			if status != want || strings.Contains(text, `"attempts":1`) {
				w.Errorf("%s/%s: got %d %s", queue, id, status, text)
			}
		}
	}
}

// checkPool checks that a store on PostgreSQL says how its connections are used (AD-042), and that
// of SQLite, which has no pool, nothing.
func (w *drainWorld) checkPool(store client.AdminNodeComponent) {
	w.Helper()
	switch p := store.Connections; {
	case store.Kind == "sqlite" && p == nil:
	case store.Kind == "postgres" && p != nil && p.Open > 0 && p.InUse <= p.Open && p.Open <= p.Max:
	default:
		w.Errorf("AD-042 a store of %s has the pool %+v", store.Kind, p)
	}
}

// TestDrainedNode (AD-042, CL-001): a node that is drained is not ready until it is resumed.
func TestDrainedNode(t *testing.T) {
	t.Parallel()
	onDrainWorlds(t, func(w *drainWorld) {
		var all []client.AdminNode
		pollUntil(w.Fatalf, "the node to be listed", func() bool {
			err := json.Unmarshal([]byte(w.operate("nodes", "list", "--json")), &all)
			return err == nil && len(all) == 1
		})
		w.checkPool(all[0].Store)
		w.checkCompleted("nodes", all[0].Name)
		for _, step := range []struct {
			verb, line string
			status     int
		}{
			{"drain", all[0].Name + " is draining\n", http.StatusServiceUnavailable},
			{"resume", all[0].Name + " is resumed\n", http.StatusOK},
			{"resume", all[0].Name + " was not draining: nothing changed\n", http.StatusOK},
		} {
			if got := w.operate("nodes", step.verb, all[0].Name); got != step.line {
				w.Errorf("%s printed %q, want %q", step.verb, got, step.line)
			}
			pollUntil(w.Fatalf, "the node to "+step.verb, func() bool {
				status, _ := sendRequest(w.T, http.MethodGet, w.server.url+"/health/ready", "")
				return status == step.status
			})
		}
	})
}
