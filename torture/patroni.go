package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patroniCluster is three PostgreSQL servers that Patroni keeps, one of them the primary, with an
// etcd. Where it is synchronous a commit is on two servers before it is answered.
type patroniCluster struct {
	dir         string // open to the user of the servers, so not the directory of the run
	synchronous bool
	etcd        *etcdServer
	members     [3]*patroniMember
	primary     int
}

// etcdServer is the process in which the members agree who the primary is.
type etcdServer struct {
	address string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// patroniMember is a machine of the cluster: a Patroni and its server. Others reach it, and it
// reaches the etcd, through proxies; clients of the database do not.
type patroniMember struct {
	dir     string
	server  *pgServer // its address alone
	api     string    // address of Patroni
	proxies patroniProxies
	file    string // its configuration
	log     *os.File
	cmd     *exec.Cmd // nil before its first start
	ended   chan struct{}
}

// patroniProxies carry what a network between machines does.
type patroniProxies struct{ server, api, etcd *proxy }

// patroniTimeout bounds each step that waits for Patroni. Its lease of the primary is 20 s.
const patroniTimeout = 2 * time.Minute

// newPatroni starts a cluster. Its logs are in the directory of the run.
func newPatroni(ctx context.Context, p *plan) (_ *patroniCluster, err error) {
	for _, name := range []string{"patroni", "etcd"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "torture-patroni")
	if err != nil {
		return nil, err
	}
	c := &patroniCluster{dir: dir, synchronous: p.Only == faultPatroni}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.etcd, err = startEtcd(ctx, filepath.Join(p.Dir, "etcd")); err != nil {
		return nil, err
	}
	for i := range c.members {
		if c.members[i], err = newPatroniMember(i, p.Dir, dir, c.etcd.address); err != nil {
			return nil, err
		}
		if err := c.members[i].configure(c.synchronous); err != nil {
			return nil, err
		}
		if err := c.members[i].start(); err != nil {
			return nil, err
		}
		if i > 0 {
			continue
		}
		if err := c.members[i].awaitRole(ctx, "primary"); err != nil {
			return nil, err
		}
	}
	return c, c.awaitStandbys(ctx)
}

// startEtcd starts an etcd, and returns when it takes connections.
func startEtcd(ctx context.Context, dir string) (e *etcdServer, err error) {
	e = &etcdServer{}
	if e.address, err = freeAddress(); err != nil {
		return nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	e.cmd = exec.Command("etcd", "--data-dir", dir, "--name", "etcd0",
		"--listen-client-urls", "http://"+e.address, "--advertise-client-urls", "http://"+e.address,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "etcd0=http://"+peer)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if e.ended, err = startProcess(e.cmd); err != nil {
		return nil, err
	}
	return e, awaitListener(ctx, e.address)
}

// newPatroniMember prepares a member.
func newPatroniMember(number int, logs, dir, etcd string) (m *patroniMember, err error) {
	m = &patroniMember{dir: filepath.Join(dir, fmt.Sprint("pg", number))}
	m.file = filepath.Join(m.dir, "patroni.yml")
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, err
	}
	if m.log, err = os.Create(filepath.Join(logs, fmt.Sprintf("patroni%d.log",
		number))); err != nil {
		return nil, err
	}
	if m.server, err = newPgServer(number, logs, m.dir); err != nil {
		return nil, err
	}
	if m.api, err = freeAddress(); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		to   **proxy
		from string
	}{{&m.proxies.server, m.server.address}, {&m.proxies.api, m.api}, {&m.proxies.etcd, etcd}} {
		if *p.to, err = newProxy(p.from); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// patroniConfig is the configuration of docs/scaling.md without passwords, with the shortest times
// that Patroni takes, and through the proxies. The disks are not synced: processes are killed, and
// no machine loses power.
const patroniConfig = `scope: torture
name: NAME
restapi: {listen: "API", connect_address: "TO_API"}
etcd3: {hosts: ["TO_ETCD"], use_proxies: true}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: SYNCHRONOUS
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 100
        fsync: "off"
        wal_keep_size: 512MB
        wal_sender_timeout: 5s
  initdb: [{encoding: UTF8}, no-locale]
postgresql:
  listen: SERVER
  connect_address: TO_SERVER
  data_dir: DIR/data
  bin_dir: PROGRAMS
  pgpass: DIR/pgpass
  basebackup: {checkpoint: fast}
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
  parameters: {unix_socket_directories: DIR}
  pg_hba:
    - local all all trust
    - host all all 127.0.0.1/32 trust
    - host replication all 127.0.0.1/32 trust
`

// configure writes the configuration of the member.
func (m *patroniMember) configure(synchronous bool) error {
	program, err := findDebianProgram("pg_rewind")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("TO_API", m.proxies.api.address(), "TO_ETCD",
		m.proxies.etcd.address(), "TO_SERVER", m.proxies.server.address(), "NAME",
		filepath.Base(m.dir), "API", m.api, "SERVER", m.server.address, "DIR", m.dir, "PROGRAMS",
		filepath.Dir(program), "SYNCHRONOUS", fmt.Sprint(synchronous)).Replace(patroniConfig)
	return os.WriteFile(m.file, []byte(text), 0o644) // its user reads it
}

// start starts Patroni, which starts its server.
func (m *patroniMember) start() (err error) {
	m.cmd = m.server.program("patroni", m.file)
	m.cmd.Env = append(m.cmd.Environ(), "HOME="+m.dir)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.ended, err = startProcess(m.cmd)
	return err
}

// postmaster returns the first process of the server; 0 where none runs.
func (m *patroniMember) postmaster() (pid int) {
	text, err := os.ReadFile(filepath.Join(m.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		return 0
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(name)) != "postgres" {
		return 0 // the file is that of a server that was killed
	}
	return pid
}

// freeze stops all processes of the machine. Patroni is stopped first, so that it starts none.
func (m *patroniMember) freeze() error {
	if err := freezeProcess(m.cmd.Process.Pid); err != nil {
		return err
	}
	if pid := m.postmaster(); pid != 0 {
		return freezeTree(pid)
	}
	return nil
}

// kill ends all processes of the machine at once, where it runs.
func (m *patroniMember) kill() error {
	if m.cmd == nil {
		return nil
	}
	_ = m.cmd.Process.Signal(syscall.SIGSTOP) // so that it does not see the end of its server
	var err error
	if pid := m.postmaster(); pid != 0 {
		err = killTree(pid)
	}
	_ = m.cmd.Process.Kill()
	<-m.ended
	return err
}

// all returns the proxies.
func (p *patroniProxies) all() []*proxy { return []*proxy{p.server, p.api, p.etcd} }

// cut has proxies swallow what is sent. When they are mended all connections of that time are lost,
// with what was sent over them.
func cut(proxies []*proxy, isCut bool) {
	for _, p := range proxies {
		if !isCut {
			p.reset()
		}
		p.stall(isCut)
	}
}

// is asks Patroni whether the member has a role.
func (m *patroniMember) is(role string) bool {
	client := &http.Client{Timeout: time.Second}
	resp, err := client.Get("http://" + m.api + "/" + role)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// awaitRole waits until the member has a role.
func (m *patroniMember) awaitRole(ctx context.Context, role string) error {
	for began := time.Now(); !m.is(role); {
		if time.Since(began) > patroniTimeout {
			return fmt.Errorf("%s was not %s within %s: %s", m.dir, role, patroniTimeout, endOf(m.log))
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// close ends all machines and removes their data.
func (c *patroniCluster) close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, m := range c.members {
		if m == nil {
			continue
		}
		errs = append(errs, m.kill(), m.log.Close(), m.server.log.Close())
		for _, p := range m.proxies.all() {
			errs = append(errs, p.Close())
		}
	}
	if c.etcd != nil && c.etcd.ended != nil {
		_ = c.etcd.cmd.Process.Kill()
		<-c.etcd.ended
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
