package child_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit"
)

// The test binary is also a parent to kill, and the process between it and the program.
const (
	parentMain        = "parent"
	anotherThreadMain = "another-thread"
)

// otherMain is the main function of the processes of TestExecEndsWithItsParent, and does nothing in
// the others.
func otherMain() {
	if len(os.Args) < 2 {
		return
	}
	switch os.Args[1] {
	case parentMain:
		c := exec.Command(os.Args[0], anotherThreadMain, "--", "/bin/sh", "-c",
			"exec 9>alive; exec sleep 100")
		child.SetProcessGroup(c)
		child.KillWithParent(c)
		runtime.LockOSThread()
		_ = c.Run()
		os.Exit(1)
	case anotherThreadMain:
		become := func() {
			runtime.LockOSThread()
			os.Exit(child.Exec(os.Args[2:], os.Environ(), os.Stderr))
		}
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			become()
		}
		go become()
		select {}
	}
}

// The kernel kills the program with its parent, whatever thread of the process between them became
// the program: each thread has a parent death signal of its own.
func TestExecEndsWithItsParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened, closed := alive(t, dir)
	c := exec.CommandContext(t.Context(), os.Args[0], parentMain)
	c.Dir = dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "the start of the program", opened)
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = c.Wait()
	testkit.Receive(t, "the end of the program", closed)
}
