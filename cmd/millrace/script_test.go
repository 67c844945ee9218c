package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// watchedProgram is the name of this test binary where it runs as Millrace: tests with the race
// detector watch it too.
const watchedProgram = "watched-millrace"

func TestMain(m *testing.M) {
	testscript.Main(builtM{m}, map[string]func(){watchedProgram: main})
}

// minParallel is how many tests run at a time, or more where there are more processors. Most wait
// for processes: with two at a time the package takes longer than the ten minutes of go test.
const minParallel = 5

// setParallel sets -test.parallel, unless the command line has it.
func setParallel() {
	flag.Parse()
	isGiven := false
	flag.Visit(func(f *flag.Flag) { isGiven = isGiven || f.Name == "test.parallel" })
	if !isGiven {
		_ = flag.Set("test.parallel", fmt.Sprint(max(minParallel, runtime.GOMAXPROCS(0))))
	}
}

// builtM runs the tests with the program as it is shipped first in PATH. Processes that tests start
// are that one, so that limits and figures are those that users meet; it is built without the race
// detector, which the tests of packages have. A few start watchedProgram.
type builtM struct{ testscript.TestingM }

func (b builtM) Run() int {
	setParallel()
	// as under nohup: the programs that tests start would ignore it too
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "millrace-built-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "millrace"), ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "millrace does not build:", err)
		return 1
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.TestingM.Run()
}

// mustMillrace returns the path of the program as it is shipped.
func mustMillrace(t testing.TB) string { return mustFind(t, "millrace") }

// mustWatched returns the path of Millrace with the race detector, where the tests have it.
func mustWatched(t testing.TB) string { return mustFind(t, watchedProgram) }

func mustFind(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestScripts runs every command as a process of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, "MILLRACE_SERVER=", "MILLRACE_TOKEN=", "TMPDIR="+e.WorkDir,
				"GORACE="+os.Getenv("GORACE"))
			if filepath.Base(e.WorkDir) == "script-inbox" { // the one that needs PostgreSQL
				e.Vars = append(e.Vars, "STORE="+pgtest.URL(t))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":     scriptCode,
			"server":   scriptServer,
			"stop":     scriptStop,
			"http":     scriptHTTP,
			"await":    scriptAwait,
			"grown":    scriptGrown,
			"forge":    scriptForge,
			"meets":    scriptMeets,
			"origin":   scriptOrigin,
			"pictures": scriptPictures,
			"signed":   scriptSigned,
			"sql":      scriptSQL,
		},
	})
}

// testTimeout bounds what must come soon. A test that passes never waits for it, however slow the
// machine is.
const testTimeout = 2 * time.Minute

// boundedCommand is a command that a test waits for. It is killed when it has not ended within
// testTimeout, so a command that hangs fails its test, and not all of the package.
func boundedCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, name, args...)
	c.WaitDelay = 10 * time.Second // programs that it started may hold its output
	return c
}

// scriptCode is `code N PROGRAM [ARG...]`: the program exits with N, within a time in which nothing
// hangs.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [arg...]")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = scriptEnviron(ts)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(ts.Stdout(), &out), io.MultiWriter(ts.Stderr(), &errs)
	ts.Check(cmd.Start())
	timer := time.AfterFunc(testTimeout, func() { cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit code %s, want %s (%v)\n%s%s", got, args[0], cmd.ProcessState, &out, &errs)
	}
}

func scriptEnviron(ts *testscript.TestScript) []string {
	var environ []string
	for _, name := range []string{"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "WORK",
		"MILLRACE_SERVER", "MILLRACE_TOKEN", "MILLRACE_OPERATOR_TOKEN", "MILLRACE__LISTEN",
		"MILLRACE__RELAY__TOKEN"} {
		if value := ts.Getenv(name); value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	return environ
}

// scriptServer is `server NAME [ARG...]`: a server with its data in $WORK/NAME; MILLRACE_SERVER
// becomes its address.
func scriptServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: server name [arg...]")
	}
	path, err := exec.LookPath("millrace")
	ts.Check(err)
	s, err := launch(path, ts.MkAbs(args[0]), scriptEnviron(ts), args[1:]...)
	ts.Check(err)
	ts.Defer(func() {
		s.kill()
		ts.Logf("[server %s]\n%s", args[0], s.stderr.String())
	})
	ts.Setenv("MILLRACE_SERVER", s.url)
	servers.Store(scriptKey{ts, args[0]}, s)
}

type scriptKey struct {
	script *testscript.TestScript
	name   string
}

// servers are the servers of all scripts, which run side by side.
var servers sync.Map // scriptKey to *launched

// scriptStop is `stop NAME`: SIGTERM, after which the server ends with exit code 0.
func scriptStop(ts *testscript.TestScript, _ bool, args []string) {
	s, ok := servers.Load(scriptKey{ts, args[0]})
	if !ok {
		ts.Fatalf("there is no server %s", args[0])
	}
	ts.Check(s.(*launchedServer).terminate())
}

// scriptHTTP is `http METHOD PATH STATUS [BODY]` against MILLRACE_SERVER; the answer is the
// standard output.
func scriptHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: http method path status [body]")
	}
	status, body := scriptRequest(ts, args)
	if strings.Contains(args[1], "/health") { // a server listens a moment before its workers claim
		pollUntil(ts.Fatalf, "the health to be "+args[2], func() bool {
			status, body = scriptRequest(ts, args)
			return status == args[2]
		})
	}
	_, _ = ts.Stdout().Write(body)
	if status != args[2] {
		ts.Fatalf("%s %s: status %s, want %s: %s", args[0], args[1], status, args[2], body)
	}
}

// scriptRequest makes a request: method, path, the status that is not looked at, body.
func scriptRequest(ts *testscript.TestScript, args []string) (status string, body []byte) {
	req, err := http.NewRequest(args[0], ts.Getenv("MILLRACE_SERVER")+args[1],
		strings.NewReader(strings.Join(args[3:], " ")))
	ts.Check(err)
	if len(args) > 3 {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := ts.Getenv("MILLRACE_TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	ts.Check(err)
	return strconv.Itoa(resp.StatusCode), body
}

// scriptForge is `forge key`, which makes a ForgeRun client whose key is MILLRACE_TOKEN, with the
// ids CLIENT and KEY_ID, from then on, `forge job BODY`, which submits a job whose id is JOB from
// then on, or `forge webhook URL`, which registers a webhook for jobs that succeed whose id is
// WEBHOOK from then on.
func scriptForge(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case !neg && len(args) == 1 && args[0] == "key":
		var made struct {
			Client string `json:"client_id"`
			Key    string `json:"api_key"`
			KeyID  string `json:"key_id"`
		}
		forgePost(ts, "/v1/clients", "", &made)
		forgePost(ts, "/v1/clients/"+made.Client+"/keys", "{}", &made)
		ts.Setenv("MILLRACE_TOKEN", made.Key)
		ts.Setenv("CLIENT", made.Client)
		ts.Setenv("KEY_ID", made.KeyID)
	case !neg && len(args) == 2 && args[0] == "job":
		var made struct {
			Job string `json:"job_id"`
		}
		forgePost(ts, "/v1/jobs", args[1], &made)
		ts.Setenv("JOB", made.Job)
	case !neg && len(args) == 2 && args[0] == "webhook":
		var made struct {
			Webhook string `json:"webhook_id"`
		}
		forgePost(ts, "/v1/webhooks", `{"url":"`+args[1]+`","events":["job_succeeded"]}`, &made)
		ts.Setenv("WEBHOOK", made.Webhook)
	default:
		ts.Fatalf("usage: forge key | forge job body | forge webhook url")
	}
}

func forgePost(ts *testscript.TestScript, path, body string, answer any) {
	req, err := http.NewRequest(http.MethodPost, ts.Getenv("MILLRACE_SERVER")+path,
		strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	if token := ts.Getenv("MILLRACE_TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		ts.Fatalf("POST %s: %s", path, resp.Status)
	}
	ts.Check(json.NewDecoder(resp.Body).Decode(answer))
}

// scriptMeets is `meets PATH PATTERN`: until the answer to a GET matches the pattern.
func scriptMeets(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: meets path pattern")
	}
	want, body := strings.Join(args[1:], " "), []byte(nil)
	pattern, err := regexp.Compile(want)
	ts.Check(err)
	pollUntil(func(format string, a ...any) {
		ts.Fatalf(format+": "+string(body), a...)
	}, want+" at "+args[0], func() bool {
		req, err := http.NewRequest(http.MethodGet, ts.Getenv("MILLRACE_SERVER")+args[0], nil)
		ts.Check(err)
		req.Header.Set("Authorization", "Bearer "+ts.Getenv("MILLRACE_TOKEN"))
		resp, err := http.DefaultClient.Do(req)
		ts.Check(err)
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		return err == nil && pattern.Match(body)
	})
}

// scriptAwait is `await FILE [TEXT]`: until the file holds the text, or anything.
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	want := strings.Join(args[1:], " ")
	pollUntil(ts.Fatalf, args[0]+" to be written", func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && len(text) > 0 && strings.Contains(string(text), want)
	})
}

// scriptGrown is `grown DIR N`: exactly N files are in it, none of them empty.
func scriptGrown(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if want, _ := strconv.Atoi(args[1]); len(entries) != want {
		ts.Fatalf("%d files in %s, want %d", len(entries), args[0], want)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Size() == 0 {
			ts.Fatalf("%s is empty: %v", e.Name(), err)
		}
	}
}

// pollUntil polls for what gives no signal of its own.
func pollUntil(fatal func(string, ...any), what string, condition func() bool) {
	pollWithin(testTimeout, fatal, what, condition)
}

// pollWithin is pollUntil for what may take longer, such as the leases of nodes that were killed.
func pollWithin(limit time.Duration, fatal func(string, ...any), what string,
	condition func() bool) {
	if !testkit.Poll(limit, condition) {
		fatal("timed out waiting for %s", what)
	}
}

// launchedServer is a server process of a test.
type launchedServer struct {
	cmd    *exec.Cmd
	url    string
	stderr *testkit.LogBuffer
	ended  chan struct{}
}

// launch starts a server on a data directory and waits until it listens. Its pool of connections is
// small, as many nodes of tests share one PostgreSQL.
func launch(binary, dir string, environ []string, args ...string) (*launchedServer, error) {
	cmd := exec.Command(binary, append([]string{"serve", "--config", os.DevNull, "--set",
		"data_dir=" + dir, "--set", "listen=127.0.0.1:0", "--set", "postgres.max_connections=6"},
		args...)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = filepath.Dir(dir), environ, &syscall.SysProcAttr{}
	child.KillWithParent(cmd) // also where the tests are ended by their time-out
	s := &launchedServer{cmd: cmd, stderr: &testkit.LogBuffer{}, ended: make(chan struct{})}
	cmd.Stderr = s.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	hang := time.AfterFunc(testTimeout, func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	hang.Stop()
	go func() {
		defer close(s.ended)
		_ = cmd.Wait()
	}()
	if _, url, ok := strings.Cut(strings.TrimSpace(line), cli.ListeningOn); ok && err == nil {
		s.url = strings.Fields(url)[0]
		return s, nil
	}
	s.kill()
	return nil, errors.New("the server did not start: " + line + s.stderr.String())
}

// Kill ends the process as a crash would and waits until it is gone.
func (s *launchedServer) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// terminate asks the process to end; it must do so by itself, with exit code 0.
func (s *launchedServer) terminate() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	hang := time.AfterFunc(testTimeout, func() { s.cmd.Process.Kill() })
	defer hang.Stop()
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return errors.New("the server ended with " + s.cmd.ProcessState.String() + "\n" +
			s.stderr.String())
	}
	return nil
}
