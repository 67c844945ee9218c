package external

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/setting"
)

const (
	// stopDelay is the time between SIGTERM and SIGKILL for a command that has to end. A pool of
	// workers that stops waits a second for its handlers (worker.Pool.Run).
	stopDelay = 500 * time.Millisecond
	// maxLog is how much of the standard error of a command is kept, in bytes: its end.
	maxLog = 8 << 10
)

// runner calls a command:
//
//	exit code                                 the call
//	0                                         has the standard output as its answer
//	64 to 78                                  failed, and would fail again (sysexits.h)
//	126, 127                                  was not made: something is missing on this machine
//	any other, a signal, time-out, output     failed, and may succeed when it is repeated
type runner struct {
	Settings
	factory Factory
	program string        // found in PATH, absolute
	environ []string      // of the settings
	dir     string        // the directories of its processes are made here
	slots   chan struct{} // one for each process; nil is no bound
}

// findProgram returns the absolute path of a program. One with a slash in it is looked for from the
// working directory of the command.
func findProgram(name, dir string) (string, error) {
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Call implements Handler. The process has a directory of its own, for its temporary files too,
// which is removed when it has ended. Nothing of the server's own settings is in its environment.
func (r *runner) Call(ctx context.Context, c *Call) (Answer, error) {
	if !r.acquire(ctx) {
		return Answer{}, context.Cause(ctx)
	}
	defer r.release()
	dir, err := os.MkdirTemp(r.dir, "run-")
	if err != nil {
		return Answer{}, &Failure{Retryable: true, Missing: true,
			Message: "the command has no working directory"}
	}
	defer os.RemoveAll(dir)
	log := &child.Tail{Max: maxLog}
	process := child.Process{
		Args: slices.Concat(r.factory.Child, r.limits().Arguments(), []string{r.program},
			r.Command[1:]),
		Dir:       cmp.Or(r.Directory, dir),
		Env:       slices.Concat(r.factory.Environ, []string{"TMPDIR=" + dir}, r.environ, variables(c)),
		Stdin:     bytes.NewReader(c.Body),
		Stderr:    log,
		MaxStdout: int(r.MaxOutput),
		Timeout:   r.Timeout,
		StopDelay: stopDelay,
	}
	stdout, err := process.Run(ctx)
	answer := Answer{Log: strings.ToValidUTF8(string(log.Text), "\uFFFD")}
	switch {
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case err != nil:
		return answer, r.failure(err, log)
	}
	answer.Body = stdout
	return answer, nil
}

// acquire waits for a slot and returns false if ctx ends before.
func (r *runner) acquire(ctx context.Context) bool {
	if r.slots == nil {
		return true
	}
	select {
	case r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *runner) release() {
	if r.slots != nil {
		<-r.slots
	}
}

// limits are what the kernel enforces. Processor time counts on every processor and so exceeds the
// time limit; it ends what has left the group of the command, or has outlived the server.
func (r *runner) limits() child.Limits {
	return child.Limits{Memory: r.Memory,
		CPU: (r.Timeout + time.Second) * time.Duration(runtime.NumCPU())}
}

// variables are the names of a call as a command gets them.
func variables(c *Call) []string {
	all := make([]string, len(c.Names))
	for i, n := range c.Names {
		all[i] = "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(n.Name, "-", "_")) + "=" + n.Value
	}
	return all
}

// failure classifies the end of a process. The last line that it has written to its standard error
// is the message, as it says most of what went wrong.
func (r *runner) failure(err error, log *child.Tail) *Failure {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, child.ErrTimeout):
		return &Failure{Type: typeTimeout, Retryable: true,
			Message: fmt.Sprintf("the command took longer than %s", setting.FormatDuration(r.Timeout))}
	case errors.Is(err, child.ErrOutput):
		return &Failure{Type: typeOutput, Retryable: true,
			Message: fmt.Sprintf("the command wrote more than %s", setting.FormatSize(r.MaxOutput))}
	case !errors.As(err, &exit):
		return &Failure{Retryable: true, Missing: true,
			Message: "the command cannot be run"}
	}
	message := exit.String()
	if last := log.LastLine(); last != "" {
		message = CleanText(last) + " (" + message + ")"
	}
	code := exit.ExitCode()
	return &Failure{Type: typeExit, Message: message,
		Retryable: code < 64 || code > 78,
		Missing:   code == child.ExitNotExecutable || code == child.ExitNotFound}
}
