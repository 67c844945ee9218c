package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// mustScript writes a program.
func mustScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// G-X-18 Where a program is missing for one of several commands, the others finish and are
// reported, no more jobs are taken, and the job of the one goes back with all its tries.
func TestWorkWithoutItsProgramInOneSlot(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--no-workers", "--set", "contracts=taskflow",
		"--set", "taskflow.max_concurrent=100")
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for range 4 {
		made, err := c.TaskFlow().Submit(t.Context(), client.TaskFlowSpec{Name: "n", Queue: "q",
			Retry: client.TaskFlowRetryPolicy{MaxAttempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		jobs[made.ID] = true
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	mustScript(t, program, `cd `+dir+`
if mkdir bad 2>/dev/null; then
  mkfifo come; mv come started; cat started >/dev/null; mkdir failed; exit 127
fi
while [ ! -p started ]; do sleep 0.01; done
mkdir two 2>/dev/null || echo >started
while [ ! -e go ]; do sleep 0.01; done
echo true`)
	work := boundedCommand(t, mustMillrace(t), "work", "--server", s.url,
		"--contract", "taskflow", "--concurrency", "3", "q", "--", program)
	var output strings.Builder
	work.Stderr = &output
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	count := func() map[client.TaskFlowStatus]int {
		all := map[client.TaskFlowStatus]int{}
		for id := range jobs {
			j, err := c.TaskFlow().Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if j.FailedAttempts != 0 {
				t.Errorf("the job used up a try: %+v", j)
			}
			all[j.Status]++
		}
		return all
	}
	pollUntil(t.Fatalf, "one job to go back while two are run", func() bool {
		_, err := os.Stat(filepath.Join(dir, "failed")) // before, two may run and two not yet
		all := count()
		return err == nil && all[client.TaskFlowStatusReady] == 2 &&
			all[client.TaskFlowStatusRunning] == 2
	})
	mustScript(t, filepath.Join(dir, "go"), "")
	err = work.Wait()
	if code := work.ProcessState.ExitCode(); code != cli.ExitUnable {
		t.Errorf("exit code %d, %v: %s", code, err, output.String())
	}
	if all := count(); all[client.TaskFlowStatusCompleted] != 2 ||
		all[client.TaskFlowStatusReady] != 2 {
		t.Errorf("the jobs are %v: %s", all, output.String())
	}
	if !strings.Contains(output.String(), "the command cannot be run") {
		t.Errorf("it said %s", output.String())
	}
}

// G-X-18 A program that is deleted while the worker runs it is no fault of the next job.
func TestWorkLosesItsProgram(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--no-workers", "--set", "contracts=fetchbox")
	site := newOrigin(t, nil)
	id := mustPost(t, s.url, "", site.resources("n", 2))
	program := filepath.Join(t.TempDir(), "program")
	mustScript(t, program, `rm "$0"; echo null`)
	code, output := runWork(t, s.url, []string{"sh", "rm"},
		"--contract", "fetchbox", "default", "--", program)
	if code != cli.ExitUnable || !strings.Contains(output, "no such file or directory") {
		t.Errorf("exit code %d: %s", code, output)
	}
	var j fetchJob
	if !fetchGet(s.url+"/operators/jobs/"+id, &j) || j.Completed != 1 || j.Failed != 0 ||
		j.LastError != nil {
		t.Errorf("the job is %+v", j)
	}
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	any := client.ClaimQuery{Contract: "fetchbox", Worker: "w"}
	repeated, err := c.WorkerAPI().Claim(t.Context(), any, 0)
	if err != nil || len(repeated) != 1 || repeated[0].Attempt != 1 {
		t.Errorf("claimed again is %+v, %v", repeated, err)
	}
}

// FB-087 G-FB-43 Workers outside that are killed use up no try of a download, until there were
// too many of them; then it is one dead letter that says so.
func TestFetchBoxWorkersKilled(t *testing.T) {
	t.Parallel()
	s := launchFetchBox(t, filepath.Join(t.TempDir(), "data"), "--no-workers",
		"--set", "fetchbox.max_lost_runs=3", "--set", "fetchbox.tries=3")
	site := newOrigin(t, nil)
	id := mustPost(t, s.url, "", site.resources("n", 1))
	for _, run := range []struct{ ends, attempt string }{
		{"killed", "1"}, {"fails", "1"}, {"killed", "2"}, {"killed", "2"},
	} {
		started := filepath.Join(t.TempDir(), "began")
		script := `echo $MILLRACE_ATTEMPT >"$0.part"; mv "$0.part" "$0"; `
		if run.ends == "fails" {
			script += "exit 1"
		} else {
			script += "exec sleep 60"
		}
		work := boundedCommand(t, mustMillrace(t), "work", "--server", s.url, "--contract",
			"fetchbox", "--max-jobs", "1", "--quiet", "default", "--", "sh", "-c", script, started)
		if err := work.Start(); err != nil {
			t.Fatal(err)
		}
		var text []byte
		pollUntil(t.Fatalf, "a run that is "+run.ends, func() (is bool) {
			var err error
			text, err = os.ReadFile(started)
			return err == nil
		})
		if run.ends == "killed" {
			_ = work.Process.Kill()
		}
		_ = work.Wait()
		if got := strings.TrimSpace(string(text)); got != run.attempt {
			t.Errorf("the claim after a run that is %s has attempt %s, want %s", run.ends, got,
				run.attempt)
		}
	}
	var deadLetters struct {
		Items []struct {
			Code     string `json:"failure_code"`
			Attempts int
		}
	}
	var j fetchJob
	pollUntil(t.Fatalf, "the end of the job", func() bool {
		return fetchGet(s.url+"/operators/jobs/"+id, &j) && j.Status == "failed"
	})
	if !fetchGet(s.url+"/operators/dlq", &deadLetters) || len(deadLetters.Items) != 1 ||
		deadLetters.Items[0].Code != "SYSTEM_WORKER_LOST" || deadLetters.Items[0].Attempts != 2 {
		t.Errorf("the dead letters are %+v", deadLetters)
	}
	if j.Failed != 1 || j.LastError == nil || j.LastError.Code != "SYSTEM_WORKER_LOST" {
		t.Errorf("the job is %+v", j)
	}
}
