// Package outside runs servers of others as processes of their own, for tests that must hold
// against the real thing: NewNATS, S3, NewSQS, PostgreSQL and PgBouncer.
//
// Those of PostgreSQL are where the system has them. The others are built into a directory of the
// user's cache, or into MILLRACE_TEST_BIN. A test that does not find its program is skipped; where
// MILLRACE_TEST_REQUIRE=1 says that nothing may be skipped it is built, which takes minutes, or the
// test fails.
package outside

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// program is something that go install builds.
type program struct{ module, command, version string }

// natsProgram has the version that is embedded.
var natsProgram = sync.OnceValue(func() program {
	const module = "github.com/nats-io/nats-server/v2"
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		version = []byte("unknown")
	}
	return program{module: module, command: "nats-server",
		version: strings.TrimSpace(string(version))}
})

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

// path gives the program's file.
func (p program) path(tb testing.TB) string {
	tb.Helper()
	buildMu.Lock()
	defer buildMu.Unlock()
	dir := filepath.Join(programDir(tb), p.command+"-"+p.version)
	file := filepath.Join(dir, p.command)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		tb.Skipf("skipped: there is no %s", file)
	}
	build := exec.Command("go", "install", p.module+"@"+p.version)
	build.Dir = os.TempDir() // outside of our module
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("go install %s: %v\n%s", p.module, err, text)
	}
	return file
}

// freeAddress gives an address that nobody listens on.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// process is a running program.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	output *io.PipeWriter
}

// startProcess runs a program until a line of its output holds ready, and gives the lines up to
// that one.
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

// kill ends the process as a crash does, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
