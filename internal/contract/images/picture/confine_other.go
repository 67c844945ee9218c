//go:build !linux

package picture

import "os/exec"

// apart leaves the command as it is: the context still kills it, a parent that is killed does not.
func apart(*exec.Cmd) {}

// confine leaves the limits to the runtime's memory limit and the parent's patience: only Linux has
// all of them.
func confine(Limits) error { return nil }

func peakMemory() int64 { return 0 }
