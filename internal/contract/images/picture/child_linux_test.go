package picture

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watch makes the pipe a hanging child opens, and returns channels: it is open, and it is closed
// again by the end of all that held it.
func watch(t *testing.T, dir string) (open, closed chan error) {
	t.Helper()
	pipe := filepath.Join(dir, "alive")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	open, closed = make(chan error, 1), make(chan error, 1)
	go func() {
		f, err := os.Open(pipe)
		open <- err
		if err != nil {
			return
		}
		defer f.Close()
		_, err = io.ReadAll(f)
		closed <- err
	}()
	return open, closed
}

// as is a processor whose child is this test binary in a role.
func as(tb testing.TB, role string, limits Limits) *Processor {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return &Processor{Command: []string{self, role}, Limits: limits}
}

func TestChildIsKilled(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, p *Processor, dir string) chan error {
		ended := make(chan error, 1)
		go func() {
			_, _, err := p.Run(ctx, strings.NewReader("a picture"), []int{100}, dir)
			ended <- err
		}()
		return ended
	}
	for _, role := range []string{"hang", "deep"} {
		t.Run(""+role+" at the end of its time", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open, closed := watch(t, dir)
			ended := run(context.Background(),
				as(t, role, Limits{Pixels: 1, Memory: 1 << 30, Timeout: 5 * time.Second}), dir)
			waitFor(t, "the start of the child", open)
			var e *Error
			if err := waitFor(t, "the end of Run", ended); !errors.As(err, &e) ||
				e.Type != Timeout || e.Final {
				t.Errorf("got %v", err)
			}
			waitFor(t, "the end of the child", closed)
		})
		t.Run(""+role+" when the context ends", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			open, closed := watch(t, dir)
			ctx, cancel := context.WithCancelCause(context.Background())
			ended := run(ctx, as(t, role, wideImage), dir)
			waitFor(t, "the start of the child", open)
			gone := errors.New("the lock was lost")
			cancel(gone)
			var e *Error
			if err := waitFor(t, "the end of Run", ended); !errors.Is(err, gone) ||
				errors.As(err, &e) {
				t.Errorf("got %v, want the cause of the context's end", err)
			}
			waitFor(t, "the end of the child", closed)
		})
	}
	t.Run("with its parent", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		open, closed := watch(t, dir)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		parent := exec.Command(self, "parent", self, dir)
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the start of the child", open)
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = parent.Wait() // killed
		waitFor(t, "the end of the child", closed)
	})
}

func TestChildDies(t *testing.T) {
	t.Parallel()
	t.Run("by a panic", func(t *testing.T) {
		t.Parallel()
		if e := mustFail(t, as(t, "panic", wideImage), nil, Crashed,
			false); !strings.Contains(e.Msg, "at the disco") {
			t.Errorf("got %v", e)
		}
	})
	t.Run("by a kill", func(t *testing.T) {
		t.Parallel()
		if e := mustFail(t, as(t, "killed", wideImage), nil, Crashed,
			false); !strings.Contains(e.Msg, "killed") {
			t.Errorf("got %v", e)
		}
	})
	for _, mib := range []int64{64, 200, 400, 600} {
		t.Run(fmt.Sprintf("by its memory limit of %d MiB", mib), func(t *testing.T) {
			t.Parallel()
			mustFail(t, assertWithin(t, Limits{Pixels: 50_000_000, Memory: mib << 20,
				Timeout: DefaultTimeout}),
				gunzip(t, "50mpx-progressive-cmyk.jpg.gz"), OutOfMemory, false)
		})
	}
	t.Run("by its time limit", func(t *testing.T) {
		t.Parallel()
		mustFail(t, assertWithin(t, Limits{Pixels: 50_000_000, Memory: DefaultMemory,
			Timeout: 20 * time.Millisecond}),
			gunzip(t, "50mpx-progressive-cmyk.jpg.gz"), Timeout, false)
	})
	t.Run("by its time limit in a JPEG of many scans", func(t *testing.T) {
		t.Parallel()
		if err := decodeAll(manyScans(640, 3)); err != nil {
			t.Fatalf("with a few scans: %v", err)
		}
		mustFail(t, assertWithin(t, Limits{Pixels: 50_000_000, Memory: DefaultMemory,
			Timeout: 500 * time.Millisecond}), manyScans(5000, 20_000), Timeout, false)
	})
	t.Run("a child that cannot be started is no fault of the picture", func(t *testing.T) {
		t.Parallel()
		p := &Processor{Command: []string{filepath.Join(t.TempDir(), "none")}, Limits: wideImage}
		_, _, err := p.Run(context.Background(), strings.NewReader(""), []int{1}, t.TempDir())
		var e *Error
		if !errors.Is(err, os.ErrNotExist) || errors.As(err, &e) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nor is a reader that fails", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("the object storage is unavailable")
		_, _, err := assertWithin(t, wideImage).Run(context.Background(),
			io.MultiReader(strings.NewReader("\xff\xd8"), failingReader{broken}), []int{1},
			t.TempDir())
		var e *Error
		if !errors.Is(err, broken) || errors.As(err, &e) {
			t.Errorf("got %v", err)
		}
	})
}

// manyScans is a progressive JPEG of side × side pixels with scans that say of all blocks, in some
// bytes, that there is nothing new.
func manyScans(side, scans int) []byte {
	length := []byte{byte(side >> 8), byte(side)}
	oneCode := append([]byte{0x10, 1}, make([]byte, 15)...)
	b := slices.Concat([]byte{0xff, 0xd8}, segment(0xc2, []byte{8}, length, length,
		[]byte{1, 1, 0x11, 0}), segment(0xc4, oneCode, []byte{0xe0}))
	// Each code has one bit and ends 16,384 blocks with 14 more, all of which are zero.
	blocks := (side + 7) / 8 * ((side + 7) / 8)
	scan := append(segment(markerSOS, []byte{1, 1, 0, 1, 63, 0}),
		make([]byte, (blocks/16384+1)*15/8+1)...)
	return slices.Concat(b, bytes.Repeat(scan, scans), []byte{0xff, markerEOI})
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func gunzip(tb testing.TB, name string) []byte {
	tb.Helper()
	z, err := gzip.NewReader(bytes.NewReader(fixture(tb, name)))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestSurroundings(t *testing.T) {
	t.Setenv("MILLRACE_SECRET", secret)
	dir := t.TempDir()
	p := as(t, "look", Limits{Pixels: 1, Memory: 1 << 30, Timeout: time.Minute})
	_, _, err := p.Run(context.Background(), strings.NewReader(""), []int{1}, dir)
	if want := fmt.Sprint(": ", 0, " ", dir, " ", true, " ", 1<<30, " ", 1<<30, " ", 0,
		" <nil>"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the child sees %v, want %s", err, want)
	}
}

func TestReportIsChecked(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, how string) error {
		_, _, err := as(t, "lie", wideImage).Run(context.Background(), strings.NewReader(how),
			[]int{1}, t.TempDir())
		return err
	}
	if err := run(t, "the truth"); err != nil {
		t.Errorf("a good report: %v", err)
	}
	for how := range lies {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var e *Error
			if err := run(t, how); !errors.As(err, &e) || e.Type != Crashed || e.Final {
				t.Errorf("got %v", err)
			}
		})
	}
}
