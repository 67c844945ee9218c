package object_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/millrace/millrace/internal/object"
)

// memoryWatcher is a body of zeroes that looks at the memory while it is read.
type memoryWatcher struct {
	left, every, next int64
	peak              uint64
}

func (w *memoryWatcher) Read(p []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	if w.left <= w.next {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		w.peak = max(w.peak, m.HeapAlloc)
		w.next = w.left - w.every
	}
	n := min(int64(len(p)), w.left)
	clear(p[:n])
	w.left -= n
	return int(n), nil
}

// TestPutMemory puts an object that is several times as large as the memory it may take.
func TestPutMemory(t *testing.T) {
	forEachBackend(t, func(t *testing.T, w *fixture) {
		const size, allowed = 256 << 20, 64 << 20
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		body := &memoryWatcher{left: size, every: 8 << 20, next: size}
		info, err := w.Put(t.Context(), "", "large", body, object.Attributes{})
		if err != nil || info.Size != size {
			t.Fatalf("got %+v, %v", info, err)
		}
		if body.peak > before.HeapAlloc+allowed {
			t.Errorf("it took %d MiB", (body.peak-before.HeapAlloc)>>20)
		}
		read, info, err := w.Open(t.Context(), "", "large")
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		if n, err := io.Copy(io.Discard, read); n != size || info.Size != size || err != nil {
			t.Errorf("got %d bytes of %d: %v", n, info.Size, err)
		}
	})
}
