package taskflow_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// program are the settings of a queue whose handler is a program in Python.
func program(t *testing.T, text string, args ...string) *taskflow.Queue {
	t.Helper()
	q := &taskflow.Queue{Handler: "exec", Settings: external.Defaults()}
	q.Command = append([]string{testkit.Python(t), "-c", text}, args...)
	q.Timeout = testkit.WaitTimeout
	return q
}

// exits is a program that does what the payload says.
const exits = `
import json, os, sys
p = json.load(sys.stdin)
os.write(1, p.get("out", "").encode("latin-1") * p.get("times", 1))
os.write(2, p.get("err", "").encode())
if p.get("names"):
    print(json.dumps([os.environ["MILLRACE_" + n] for n in p["names"]]))
    sys.stdout.flush()
os._exit(p.get("code", 0))
`

// G-TF-41 The end of a command is the outcome of the attempt.
func TestHandlerExec(t *testing.T) {
	t.Parallel()
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Queues = map[string]*taskflow.Queue{"x": program(t, exits)}
	})
	s.runServer(t)
	for name, tt := range map[string]struct {
		payload string
		state   job.State
		want    string // the result, or the message of the failure
	}{
		"nothing":      {`{}`, taskflow.Completed, ""},
		"JSON":         {`{"out": " {\"a\":  1}\n"}`, taskflow.Completed, `{"a":  1}`},
		"a text":       {`{"out": "done\n"}`, taskflow.Completed, `"done\n"`},
		"no UTF-8":     {`{"out": "a\u00ff\u0000"}`, taskflow.Completed, `"a` + "\uFFFD" + `\u0000"`},
		"a long text":  {`{"out": "x", "times": 70000}`, taskflow.Completed, `"` + strings.Repeat("x", 64<<10) + `"`},
		"too long":     {`{"out": "x", "times": 2000000}`, taskflow.Ready, "the command wrote more than 1MiB"},
		"its names":    {`{"names": ["QUEUE", "CONTRACT", "ATTEMPT"]}`, taskflow.Completed, `["x", "taskflow", "1"]`},
		"exit code 1":  {`{"code": 1, "err": "some lines\nthe last\n\n"}`, taskflow.Ready, "the last (exit status 1)"},
		"exit code 65": {`{"code": 65, "err": "no such file"}`, taskflow.Failed, "no such file (exit status 65)"},
	} {
		t.Run(name, func(t *testing.T) {
			j := s.awaitEnd(t, s.create(t, "x", tt.payload))
			got := string(j.Result)
			if tt.state != taskflow.Completed {
				got, _ = lastErrorOf(t, j)
			}
			if j.State != tt.state || got != tt.want {
				t.Errorf("got %s with %.80q, want %s with %.80q", j.State, got, tt.state, tt.want)
			}
		})
	}
	t.Run("G-X-18 what is missing is no fault of the job", func(t *testing.T) {
		j := s.awaitEnd(t, s.create(t, "x", `{"code": 127}`))
		if j.State != taskflow.Ready || j.FailedAttempts != 0 || j.Phase != job.Waiting ||
			len(j.Failure) > 0 {
			t.Errorf("got %+v", j)
		}
	})
}

// waiting is a program that makes the file of its argument and waits, whatever it is asked.
const waiting = `
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + "/" + sys.argv[2], "w").close()
while True: signal.pause()
`

// RT-001 G-TF-41 A canceled job ends its command at once, and G-X-13 a stop of the node gives back
// those that do not end.
func TestHandlerExecEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Queues = map[string]*taskflow.Queue{"a": program(t, waiting, dir, "a"),
			"b": program(t, waiting, dir, "b")}
		c.Grace = 0
	})
	stop := s.runServer(t)
	ctx := context.Background()
	started := func(queue string) string {
		id := s.create(t, queue, `{}`)
		testkit.WaitUntil(t, "the command", func() bool {
			_, err := os.Stat(filepath.Join(dir, queue))
			return err == nil
		})
		return id
	}
	running := func() int {
		all, err := filepath.Glob(filepath.Join(s.commands, "*", "run-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	canceled := job.ID{JobType: taskflow.Name, Key: started("a")}
	if _, err := s.engine.Cancel(ctx, canceled); err != nil {
		t.Fatal(err)
	}
	testkit.WaitUntil(t, "the end of the command", func() bool { return running() == 0 })
	stopped := job.ID{JobType: taskflow.Name, Key: started("b")}
	stop()
	if n := running(); n > 0 {
		t.Errorf("%d commands are left", n)
	}
	j, err := s.engine.Get(ctx, stopped)
	if err != nil || j.State != taskflow.Ready || j.FailedAttempts != 0 {
		t.Errorf("got %+v, %v", j, err)
	}
}
