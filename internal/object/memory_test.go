package object_test

import (
	"io"
	"runtime"
	"testing"

	"github.com/millrace/millrace/internal/object"
)

// watcher is a body of zeroes that looks at the memory while it is read.
type watcher struct {
	left, every, next int64
	most              uint64
}

func (w *watcher) Read(p []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	if w.left <= w.next {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		w.most = max(w.most, m.HeapAlloc)
		w.next = w.left - w.every
	}
	n := min(int64(len(p)), w.left)
	clear(p[:n])
	w.left -= n
	return int(n), nil
}

// TestPutMemory puts an object that is several times as large as the memory it may take.
func TestPutMemory(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const size, room = 256 << 20, 64 << 20
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		body := &watcher{left: size, every: 8 << 20, next: size}
		info, err := w.Put(t.Context(), "", "large", body, object.Attributes{})
		if err != nil || info.Size != size {
			t.Fatalf("got %+v, %v", info, err)
		}
		if body.most > before.HeapAlloc+room {
			t.Errorf("it took %d MiB", (body.most-before.HeapAlloc)>>20)
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
