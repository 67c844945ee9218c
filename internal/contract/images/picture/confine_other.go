//go:build !linux

package picture

import "os/exec"

// isolateProcess leaves the command as it is: the end of its context kills the child, the end of
// the parent does not.
func isolateProcess(*exec.Cmd) {}

// applyLimits does nothing, as only Linux has all the limits. The memory limit of the Go runtime
// and the timeout of the parent remain.
func applyLimits(Limits) error { return nil }

// peakMemory is unknown.
func peakMemory() int64 { return 0 }
