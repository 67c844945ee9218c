package stream_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fillDisk makes every file of messages below a directory that is open be on a full disk, and
// reports whether there is one.
func fillDisk(t *testing.T, dir string) (filled bool) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		name, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if !strings.HasPrefix(name, dir) || filepath.Ext(name) != ".blk" {
			continue
		}
		n := 0
		for _, c := range fd.Name() {
			n = 10*n + int(c-'0')
		}
		if err := syscall.Dup3(int(full.Fd()), n, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		filled = true
	}
	return filled
}

// TestDiskFull: the embedded server, which takes nothing more after a write that failed, works
// again when the disk does, by itself, and holds what it had acknowledged.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Listen = "127.0.0.1:0"
	w := mustFixture(t, c)
	w.mustPublish(t, newMessages("logs.a", "before", 20)...)
	address := w.Address()
	if !fillDisk(t, c.Dir) {
		t.Fatal("no file of messages is open")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failures := 0
	for {
		_, err := w.Publish(ctx, newMessages("logs.a", "after", 1))
		if err == nil {
			break
		}
		if failures++; ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if got := dataOf(w.mustRead(t, "LOGS", "logs.a", 0, 100)); failures == 0 || len(got) != 21 ||
		got[0] != "before0" || got[20] != "after0" {
		t.Errorf("after %d failures got %v", failures, got)
	}
	if w.Address() != address {
		t.Errorf("it moved from %s to %s", address, w.Address())
	}
	if err := w.Ping(ctx); err != nil {
		t.Error(err)
	}
}
