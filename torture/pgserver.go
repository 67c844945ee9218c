package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pgServer is one PostgreSQL server, which keeps its address over all of its lives.
type pgServer struct {
	number  int
	address string
	dir     string              // of its data, and of its socket
	owner   *syscall.Credential // nil for the user of torture
	options []string            // of its program
	log     *os.File
	life    int // counts its directories of data

	cmd   *exec.Cmd // nil before its first start
	ended chan struct{}
}

// newPgServer prepares a server. Its log is in one directory and its data in another one, which the
// user of the servers gets.
func newPgServer(number int, logs, dir string, options ...string) (*pgServer, error) {
	for _, name := range []string{"initdb", "postgres", "pg_basebackup"} {
		if _, err := findProgram(name); err != nil {
			return nil, err
		}
	}
	uid, gid, err := ownerOf(serverUser)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, fmt.Sprintf("postgres%d.log", number)))
	if err != nil {
		return nil, err
	}
	s := &pgServer{number: number, address: address, dir: dir, log: log, options: options}
	if os.Getuid() == 0 {
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return s, nil
}

// data is where the server has its data in this life.
func (s *pgServer) data() string {
	return filepath.Join(s.dir, fmt.Sprintf("data%d-%d", s.number, s.life))
}

// renew removes the data of a server that has ended, for another life.
func (s *pgServer) renew() error {
	err := os.RemoveAll(s.data())
	s.life++
	return err
}

// findProgram finds a program of PostgreSQL: on the path or, of the newest version, where Debian
// installs it.
func findProgram(name string) (string, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return findDebianProgram(name)
	}
	return file, nil
}

// findDebianProgram finds a program in the directories of Debian's packages, which are not on the
// path.
func findDebianProgram(name string) (string, error) {
	files, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("the program %s of PostgreSQL is not installed", name)
	}
	version := func(file string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		return n
	}
	return slices.MaxFunc(files, func(a, b string) int { return version(a) - version(b) }), nil
}

// program makes a command of PostgreSQL, which the user of the servers runs.
func (s *pgServer) program(name string, args ...string) *exec.Cmd {
	file, err := findProgram(name)
	if err != nil { // newPgServer has found it before
		file = name
	}
	cmd := exec.Command(file, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Setpgid: true}
	return cmd
}

// command runs a program of PostgreSQL to its end.
func (s *pgServer) command(name string, args ...string) error {
	if out, err := s.program(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// create makes the data of a new server, and starts it.
func (s *pgServer) create(ctx context.Context) error {
	if err := s.command("initdb", "-D", s.data(), "-U", serverUser, "-A", "trust", "-E", "UTF8",
		"--no-locale", "--data-checksums"); err != nil {
		return err
	}
	return s.begin(ctx)
}

// begin starts the server, and waits until it answers.
func (s *pgServer) begin(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	return s.await(ctx, "SELECT true")
}

// start starts the server.
func (s *pgServer) start() error {
	_, port, _ := strings.Cut(s.address, ":")
	cmd := s.program("postgres", append([]string{"-D", s.data(), "-p", port, "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1"}, s.options...)...)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	ended, err := startProcess(cmd)
	if err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	return nil
}

// checkPages has PostgreSQL check each page of a database: checksums, tables, and that the indexes
// have what the tables have. What it finds is damaged; "" is nothing.
func (s *pgServer) checkPages(database string) (damage string, err error) {
	host, port, _ := strings.Cut(s.address, ":")
	cmd := s.program("pg_amcheck", "--host", host, "--port", port, "--username", serverUser,
		"--install-missing", "--heapallindexed", "--rootdescend", database)
	const foundDamage = 2
	out, err := cmd.CombinedOutput()
	failed, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "", nil
	case ended && failed.ExitCode() == foundDamage:
		return string(out), nil
	}
	return "", fmt.Errorf("pg_amcheck: %w: %s", err, out)
}

// isRunning reports whether the process of the server has been started and has not ended.
func (s *pgServer) isRunning() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// freeze stops all processes of the server, and returns when they have stopped.
func (s *pgServer) freeze() error { return freezeTree(s.cmd.Process.Pid) }

// freezeTree stops the processes of a server by the first of them, which is stopped before the
// others, so that it starts no more.
func freezeTree(pid int) error {
	if err := freezeProcess(pid); err != nil {
		return err
	}
	children, err := childrenOf(pid)
	errs := []error{err}
	for _, pid := range children {
		err := freezeProcess(pid)
		if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// kill ends all processes of the server at once, as the loss of its machine does. Were the first
// killed alone, sessions that wait for the standby would see that and let others see what they have
// committed. A server that does not run is left as it is.
func (s *pgServer) kill() error {
	if !s.isRunning() {
		return nil
	}
	err := killTree(s.cmd.Process.Pid)
	<-s.ended
	return err
}

// killTree ends the processes of a server at once, by the first of them.
func killTree(pid int) error {
	err := freezeTree(pid)
	children, listed := childrenOf(pid)
	for _, child := range append(children, pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	return errors.Join(err, listed)
}

// stop ends the server in order: it ends its sessions, and sends its standby all that it has.
func (s *pgServer) stop() error { return s.end(os.Interrupt) }

// end ends the server by a signal that it ends at.
func (s *pgServer) end(signal os.Signal) error {
	if err := s.cmd.Process.Signal(signal); err != nil {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(clusterTimeout):
		return errors.Join(fmt.Errorf("server %d did not end within %s", s.number,
			clusterTimeout), s.kill())
	}
}

// childrenOf returns the processes that a process has started.
func childrenOf(pid int) (all []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	for _, field := range bytes.Fields(text) {
		child, err := strconv.Atoi(string(field))
		if err != nil {
			return nil, err
		}
		all = append(all, child)
	}
	return all, nil
}
