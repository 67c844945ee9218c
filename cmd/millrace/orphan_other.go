//go:build !linux

package main

import "os/exec"

// killWithParent does nothing: only the kernel of Linux can.
func killWithParent(*exec.Cmd) {}
