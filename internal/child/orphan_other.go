//go:build !linux

package child

import "os/exec"

// KillWithParent does nothing: only the kernel of Linux can kill a process with its parent.
func KillWithParent(*exec.Cmd) {}

// killThreadWithParent does nothing, as KillWithParent does.
func killThreadWithParent() error { return nil }
