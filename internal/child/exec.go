package child

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
)

// Subcommand is the command of the server's binary whose main function is Exec.
const Subcommand = "child"

// The exit codes of a shell for a program that cannot be run, or is not there.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// Exec sets the limits of its arguments (Limits.Arguments) and becomes the program that comes
// behind them, with the environment and the standard files of this process. It returns only where
// that is impossible: the exit code, after a line on stderr.
func Exec(args, environ []string, stderr io.Writer) (code int) {
	limits, program, err := parseArguments(args)
	if err != nil {
		return cannotRun(stderr, err)
	}
	path, err := exec.LookPath(program[0])
	if err != nil {
		return cannotRun(stderr, err)
	}
	// A garbage collection starts threads, which the limit of memory may refuse. One that is
	// running ends before it, and none follows.
	debug.SetGCPercent(-1)
	runtime.GC()
	// The program has the parent death signal of the thread that becomes it, which need not be the
	// one that the parent started.
	runtime.LockOSThread()
	if err := killThreadWithParent(); err != nil {
		return cannotRun(stderr, err)
	}
	if err := limits.Apply(); err != nil {
		return cannotRun(stderr, err)
	}
	return cannotRun(stderr, fmt.Errorf("%s: %w", path, syscall.Exec(path, program, environ)))
}

// cannotRun reports why a program cannot be run.
func cannotRun(stderr io.Writer, err error) (code int) {
	fmt.Fprintln(stderr, "millrace: the command cannot be run:", err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return ExitNotFound
	}
	return ExitNotExecutable
}

// inherited are the variables of the server that its programs have too. None of them holds a
// secret, as settings may.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ"}

// Environ returns those variables of an environment that programs of the server have too: the
// inherited ones, and those of the locale.
func Environ(environ []string) (kept []string) {
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			kept = append(kept, pair)
		}
	}
	return kept
}
