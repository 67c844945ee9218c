package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// runWork runs `millrace work` with nothing on its path but the programs that are named, until it
// ends by itself.
func runWork(t *testing.T, server string, programs []string, args ...string) (code int,
	output string) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := boundedCommand(t, mustMillrace(t),
		append([]string{"work", "--server", server}, args...)...)
	c.Env = []string{"PATH=" + bin, "OBJECTS=" + t.TempDir()}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// G-X-18 What a machine lacks is no job's fault, whatever the contract: the job goes back with all
// its tries, and the worker stops with exit code 3 instead of spending the next one.
func TestWorkWithoutItsProgram(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--no-workers", "--set", "taskflow.max_concurrent=100")
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/nowhere\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"not_found":      {"sh", "-c", "no-such-program"},
		"not_executable": {"sh", "-c", "/dev/null"},
		"not_startable":  {plain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := 1
			job := client.RelaySpec{Queue: name, ID: "j", Timeout: 30 * time.Second,
				MaxRetries: &one, Payload: []byte(`{"n": 1.0}`)}
			if err := c.Relay().Enqueue(t.Context(), []client.RelaySpec{job}, ""); err != nil {
				t.Fatal(err)
			}
			code, output := runWork(t, s.url, []string{"sh"},
				append([]string{name, "--"}, command...)...)
			if code != cli.ExitUnable || !reportsMissingProgram(output) {
				t.Errorf("relay: exit code %d: %s", code, output)
			}
			repeated, err := c.Relay().Claim(t.Context(), name, 1, 0)
			if err != nil || len(repeated) != 1 || string(repeated[0].Payload) != `{"n": 1.0}` ||
				*repeated[0].RetriesRemaining != 1 {
				t.Errorf("relay: claimed again is %+v, %v", repeated, err)
			}

			made, err := c.TaskFlow().Submit(t.Context(),
				client.TaskFlowSpec{Name: "n", Queue: name,
					Retry: client.TaskFlowRetryPolicy{MaxAttempts: 1}})
			if err != nil {
				t.Fatal(err)
			}
			code, output = runWork(t, s.url, []string{"sh"},
				append([]string{name, "--contract", "taskflow", "--"}, command...)...)
			if code != cli.ExitUnable || !reportsMissingProgram(output) {
				t.Errorf("taskflow: exit code %d: %s", code, output)
			}
			if made, err = c.TaskFlow().Get(t.Context(), made.ID); err != nil ||
				made.Status != client.TaskFlowStatusReady || made.FailedAttempts != 0 {
				t.Errorf("taskflow: the job is %+v, %v", made, err)
			}
		})
	}
}

// reportsMissingProgram reports whether the output of `millrace work` says that the command cannot
// be run, as an error in the log too: an operator has to act, whatever the contract.
func reportsMissingProgram(output string) bool {
	return strings.Contains(output, "the command cannot be run") &&
		strings.Contains(output, `level=ERROR msg="the command failed"`) &&
		!strings.Contains(output, "level=WARN")
}

// The script of docs/images-worker.md asks for no job where libvips is missing, and one that is run
// for a job all the same does not make it the picture's fault.
func TestThumbsWithoutLibvips(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--no-workers", "--set", "contracts=images", "--set",
		"log.level=warn")
	var picture imageJob
	imageCall(t, s.url, "POST", "/images/v1/files", []byte("\xff\xd8\xff\xe0 and so on"), 202,
		&picture)
	script, err := filepath.Abs("../../docs/thumbs.sh")
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		var j struct{ Status string }
		imageCall(t, s.url, "GET", "/images/v1/jobs/"+picture.JobID, nil, 200, &j)
		return j.Status
	}

	alone := boundedCommand(t, "/bin/sh", script)
	alone.Env = []string{"PATH=" + filepath.Dir(mustMillrace(t)), "OBJECTS=" + t.TempDir(),
		"MILLRACE_SERVER=" + s.url}
	out, err := alone.CombinedOutput()
	if alone.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "needs vips") ||
		status() != "queued" {
		t.Errorf("by hand: %v: %s; the job is %s", err, out, status())
	}

	code, output := runWork(t, s.url, []string{"sh", "cat"}, "--contract", "images", "process_file",
		"--", script)
	if code != cli.ExitUnable || !strings.Contains(output, "libvips-tools") ||
		status() != "failed_retryable" {
		t.Errorf("for a job: exit code %d: %s; the job is %s", code, output, status())
	}
}
