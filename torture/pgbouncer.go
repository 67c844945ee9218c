package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// pooler is a PgBouncer between all nodes and their PostgreSQL, which keeps its address over all of
// its lives.
type pooler struct {
	address, dir string
	owner        *syscall.Credential // nil for the user of torture
	log          *os.File
	cmd          *exec.Cmd // nil before its first start
	ended        chan struct{}
}

// poolerConfig is the configuration of docs/postgresql.md, for a server that asks for no password.
const poolerConfig = `[databases]
* = host=%s port=%s user=%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = 20
server_login_retry = 1
`

// poolerModes are the modes in which PgBouncer fails.
var poolerModes = []string{modeKilled, modeFrozen}

// newPooler starts a PgBouncer before a server. Its log is in the directory of the run.
func newPooler(ctx context.Context, p *plan, to *url.URL) (b *pooler, err error) {
	b = &pooler{}
	if b.dir, err = os.MkdirTemp("", "torture-pgbouncer"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.log, err = os.Create(filepath.Join(p.Dir, "pgbouncer.log")); err != nil {
		return nil, err
	}
	if b.address, err = freeAddress(); err != nil {
		return nil, err
	}
	uid, gid, err := ownerOf(serverUser)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(b.dir, uid, gid); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		b.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	text := fmt.Sprintf(poolerConfig, to.Hostname(), to.Port(), to.User.Username(),
		portOf(b.address))
	if err := os.WriteFile(b.file(), []byte(text), 0o644); err != nil { // its user reads it
		return nil, err
	}
	return b, b.start(ctx)
}

// file is the path of the configuration.
func (b *pooler) file() string { return filepath.Join(b.dir, "pgbouncer.ini") }

// start starts PgBouncer, and returns when it takes connections.
func (b *pooler) start(ctx context.Context) (err error) {
	b.cmd = exec.Command("pgbouncer", b.file())
	b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = b.dir, b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.owner, Setpgid: true}
	if b.ended, err = startProcess(b.cmd); err != nil {
		return err
	}
	return awaitListener(ctx, b.address)
}

// kill ends PgBouncer as a crash does, if it runs.
func (b *pooler) kill() {
	if b.ended != nil {
		_ = b.cmd.Process.Kill()
		<-b.ended
	}
}

// close ends PgBouncer and removes what it has.
func (b *pooler) close() error {
	if b == nil {
		return nil
	}
	b.kill()
	return errors.Join(b.log.Close(), os.RemoveAll(b.dir))
}

// disturbPooler has PgBouncer fail for the length of a fault, and returns when the nodes are ready
// again.
func (r *run) disturbPooler(ctx context.Context, f fault) error {
	heal := context.WithoutCancel(ctx)
	switch f.Mode {
	case modeKilled:
		r.pooler.kill()
		sleep(ctx, f.Length)
		if err := r.pooler.start(heal); err != nil {
			return err
		}
	case modeFrozen:
		if err := freezeFor(ctx, r.pooler.cmd.Process.Pid, f.Length); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is no mode %q to disturb PgBouncer", f.Mode)
	}
	return r.awaitNodes(heal)
}
