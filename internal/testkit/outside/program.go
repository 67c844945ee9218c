// Package outside runs real servers as processes, for tests that must hold against the real thing:
// NATS, S3, SQS, PostgreSQL and PgBouncer; and programs that check what others meet: axe-core and
// TypeScript.
//
// Each server has a directory and a port of its own, so tests with servers do not meet. They can be
// killed and started again on the same port, which is how an outage is made:
//
//	New… ──> URL, Setting ──> the code under test
//	           Kill, Stop ──> Restart, Start        what was acknowledged must still be there
//
// PostgreSQL and PgBouncer must be installed on the system. The other programs are built into a
// directory of the user's cache, or into MILLRACE_TEST_BIN. A test whose program is missing is
// skipped. With MILLRACE_TEST_REQUIRE=1 nothing is skipped: the program is built, which takes
// minutes, or the test fails.
package outside

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// program is a program that go install builds. The version is fixed, so a test finds the same
// behaviour everywhere.
type program struct{ module, command, version string }

// natsProgram is the NATS server, in the version that the product embeds.
var natsProgram = sync.OnceValue(func() program {
	const module = "github.com/nats-io/nats-server/v2"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		version = []byte("unknown")
	}
	return program{module: module, command: "nats-server",
		version: strings.TrimSpace(string(version))}
})

// s3Program is an S3 server that keeps objects as files, so tests can look at them.
func s3Program() program {
	return program{module: "github.com/versity/versitygw/cmd/versitygw", command: "versitygw",
		version: "v1.8.0"}
}

// buildMu keeps the tests of a binary from building a program twice.
var buildMu sync.Mutex

// programDir is the directory of the programs.
func programDir(tb testing.TB) string {
	tb.Helper()
	if dir := os.Getenv("MILLRACE_TEST_BIN"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(cache, "millrace-test")
}

// path returns the program's file and builds it if necessary. Only one goroutine builds at a
// time, also for different programs: the build uses all processors. The version is part of the
// path, so another version is built beside it.
func (p program) path(tb testing.TB) string {
	tb.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	dir := filepath.Join(programDir(tb), p.command+"-"+p.version)
	file := filepath.Join(dir, p.command)
	if exists(file) {
		return file
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		tb.Skipf("skipped: there is no %s", file)
	}
	build := exec.Command("go", "install", p.module+"@"+p.version)
	build.Dir = os.TempDir() // outside of this module
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("go install %s: %v\n%s", p.module, err, text)
	}
	return file
}

// exists reports whether there is a file. Any error counts as none, and the program is built again.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// freeAddress returns an address that no process listens on. Another process may take it before the
// program does; that is rare, and the program then fails to start.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// process is a running program. It ends with its test, also when the test fails.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	output *io.PipeWriter
}

// startProcess starts a program and waits until a line of its output contains ready. It returns the
// lines up to that one. A program that ends before it is ready fails the test with all that it has
// said. Later output is discarded, since a full pipe would stop the program.
func startProcess(tb testing.TB, ready string, cmd *exec.Cmd) (*process, []string) {
	tb.Helper()
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{}), output: write}
	go func() {
		_ = cmd.Wait()
		write.Close()
		close(p.ended)
	}()
	tb.Cleanup(p.kill)
	var lines []string
	scan := bufio.NewScanner(read)
	for scan.Scan() {
		lines = append(lines, scan.Text())
		if strings.Contains(scan.Text(), ready) {
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return p, lines
		}
	}
	tb.Fatalf("%s ended:\n%s", cmd.Path, strings.Join(lines, "\n"))
	return nil, nil
}

// waitForAnswer waits until a server answers, which may be later than it says that it listens. It
// gives up after ten seconds and fails the test.
func waitForAnswer(tb testing.TB, name, url string) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		answer, err := http.Get(url)
		if err != nil {
			<-tick.C
			continue
		}
		answer.Body.Close()
		return
	}
	tb.Fatalf("the %s server does not answer", name)
}

// kill ends the process as a crash does, and waits until it has ended. It may be called twice,
// since it is also called when the test is over.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
