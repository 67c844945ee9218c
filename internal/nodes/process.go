package nodes

import (
	"os"
	"runtime"
	"runtime/metrics"
)

// readRuntime returns the bytes that the process has from the system, and its goroutines.
func readRuntime() (memory int64, goroutines int) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()), runtime.NumGoroutine()
}

// countOpenFiles returns how many files and connections the process has open; -1 where the system
// does not show it.
func countOpenFiles() int {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return -1
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return len(names) - 1 // without dir
}
