package admin_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage more often than usual: with the race detector each byte of the heap
// takes several bytes of memory, and these tests send and read large bodies.
func TestMain(m *testing.M) {
	debug.SetGCPercent(30)
	os.Exit(m.Run())
}
