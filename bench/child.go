package main

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// Child is a process the bench started. Only such processes are ever stopped, through the handle
// kept here and never by name.
type Child struct {
	cmd        *exec.Cmd
	done       chan struct{} // closed when the process has been waited for
	stopSignal os.Signal     // what Stop sends
}

func startChild(cmd *exec.Cmd) (*Child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, done: make(chan struct{}), stopSignal: os.Interrupt}
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // how it ended is of no interest once it has
	}()
	return c, nil
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Stop asks the process to end and kills it after five seconds. It may be called again.
func (c *Child) Stop() error {
	err := c.cmd.Process.Signal(c.stopSignal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
		c.Kill()
		<-c.done
	}
	return nil
}

// Kill ends the process at once.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }
