//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// setProcessGroup does nothing: there are no process groups here.
func setProcessGroup(*exec.Cmd) {}

// signalGroup ends the process: there are no groups and no signals here.
func signalGroup(p *os.Process, _ os.Signal) error { return p.Kill() }
