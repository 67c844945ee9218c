//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// signalGroup ends the process: there are no groups and no signals here.
func signalGroup(p *os.Process, _ os.Signal) error { return p.Kill() }
