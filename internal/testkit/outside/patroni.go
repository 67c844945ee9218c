package outside

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patroni is two PostgreSQL servers that Patroni keeps, one of them the primary, with an etcd of
// three servers. The superuser postgres has the password of the configuration.
type Patroni struct {
	tb      testing.TB
	members []*patroniMember
	etcd    []*process // the first is on the machine of the first server, and so on
}

// patroniMember is one Patroni with its server.
type patroniMember struct {
	dir, address, api string
	process           *process
}

// NewPatroniFromFile starts two servers with the configuration of the first as a document has it,
// and ends them with the test. Names, addresses and directories are replaced, and times by the
// shortest that Patroni takes. It returns when the second one is a standby whose disk has what is
// committed.
func NewPatroniFromFile(tb testing.TB, config string) *Patroni {
	tb.Helper()
	program, err := exec.LookPath("patroni")
	if err != nil {
		missingProgram(tb, "patroni")
	}
	p := &Patroni{tb: tb}
	etcd := p.startEtcd()
	for range 2 {
		p.members = append(p.members, &patroniMember{dir: serviceDir(tb), address: freeAddress(tb),
			api: freeAddress(tb)})
	}
	for i, m := range p.members {
		text := m.replace(tb, i, etcd, config)
		file := filepath.Join(m.dir, "patroni.yml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
		cmd := serviceCommand(tb, program, file)
		cmd.Dir, cmd.Env = m.dir, append(os.Environ(), "HOME="+m.dir) // for a file of passwords
		m.start(tb, cmd)
		p.await(fmt.Sprintf("the server %d", i), m, []string{"primary", "sync"}[i])
	}
	return p
}

// start starts a Patroni, whose output is logged when the test fails.
func (m *patroniMember) start(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	output, err := os.Create(filepath.Join(m.dir, "output"))
	if err != nil {
		tb.Fatal(err)
	}
	defer output.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	m.process = &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(m.process.ended)
	}()
	tb.Cleanup(func() {
		m.process.kill()
		m.killServer()
		if !tb.Failed() {
			return
		}
		text, err := os.ReadFile(output.Name())
		if err != nil {
			tb.Logf("the output of Patroni cannot be read: %v", err)
			return
		}
		tb.Logf("the output of Patroni:\n%s", text)
	})
}

// replace puts what is of this machine into a configuration.
func (m *patroniMember) replace(tb testing.TB, i int, etcd []string, config string) string {
	tb.Helper()
	replace := []string{"name: pg0", fmt.Sprint("name: pg", i),
		"etcd0.internal:2379, etcd1.internal:2379, etcd2.internal:2379",
		strings.Join(etcd, ", "),
		"0.0.0.0:8008", m.api, "pg0.internal:8008", m.api,
		"0.0.0.0:5432", m.address, "pg0.internal:5432", m.address,
		"/var/lib/postgresql/15/millrace", filepath.Join(m.dir, "data"),
		"/usr/lib/postgresql/15/bin", filepath.Dir(postgresProgram(tb, "pg_controldata")),
		"10.0.0.0/24", "127.0.0.1/32",
		"ttl: 30", "ttl: 20", "loop_wait: 10", "loop_wait: 1", "retry_timeout: 10",
		"retry_timeout: 3"}
	for k := 0; k < len(replace); k += 2 {
		if !strings.Contains(config, replace[k]) {
			tb.Fatalf("the configuration does not have %q", replace[k])
		}
	}
	return strings.NewReplacer(replace...).Replace(config)
}

// startEtcd starts three servers and returns their addresses, once they have a leader.
func (p *Patroni) startEtcd() (addresses []string) {
	p.tb.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		missingProgram(p.tb, "etcd")
	}
	var peers, members []string
	for i := range 3 {
		addresses = append(addresses, freeAddress(p.tb))
		peers = append(peers, "http://"+freeAddress(p.tb))
		members = append(members, fmt.Sprintf("etcd%d=%s", i, peers[i]))
	}
	for i, address := range addresses {
		// A server without the others is not ready, but it serves them.
		started, _ := startProcess(p.tb, "starting peer", exec.Command(program,
			"--data-dir", filepath.Join(p.tb.TempDir(), "etcd"), "--name", fmt.Sprint("etcd", i),
			"--listen-client-urls", "http://"+address, "--advertise-client-urls", "http://"+address,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(members, ",")))
		p.etcd = append(p.etcd, started)
	}
	for _, address := range addresses {
		waitForAnswer(p.tb, "etcd", "http://"+address+"/health")
	}
	return addresses
}

// await waits until Patroni says that a member has a role.
func (p *Patroni) await(what string, m *patroniMember, role string) {
	p.tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(2 * time.Minute); !m.is(role); {
		select {
		case <-tick.C:
		case <-m.process.ended:
			p.tb.Fatalf("%s has ended", what)
		case <-deadline:
			p.tb.Fatalf("timed out waiting for %s to be %s", what, role)
		}
	}
}

// is asks Patroni whether a member has a role.
func (m *patroniMember) is(role string) bool {
	answer, err := http.Get("http://" + m.api + "/" + role)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// primary is the number of the member that can be written to.
func (p *Patroni) primary() int {
	p.tb.Helper()
	i := slices.IndexFunc(p.members, func(m *patroniMember) bool { return m.is("primary") })
	if i < 0 {
		p.tb.Fatal("no member is the primary")
	}
	return i
}

// Addresses are where the servers listen, in the order of their names.
func (p *Patroni) Addresses() []string {
	return []string{p.members[0].address, p.members[1].address}
}

// Exec runs statements in a database of the primary as the superuser, who has a password.
func (p *Patroni) Exec(password, database string, statements ...string) {
	p.tb.Helper()
	host, port, _ := net.SplitHostPort(p.members[p.primary()].address)
	args := []string{"-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", port, "-U", "postgres",
		database}
	for _, statement := range statements {
		args = append(args, "-c", statement)
	}
	cmd := exec.Command(postgresProgram(p.tb, "psql"), args...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	if text, err := cmd.CombinedOutput(); err != nil {
		p.tb.Fatalf("%s: %v\n%s", strings.Join(statements, "; "), err, text)
	}
}

// SwitchOver has a command of patronictl make the standby the primary, in the folder of the file of
// settings of the present one, which it is a standby of then.
func (p *Patroni) SwitchOver(command string) {
	p.tb.Helper()
	if _, err := exec.LookPath("patronictl"); err != nil {
		missingProgram(p.tb, "patronictl")
	}
	from := p.primary()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = p.members[from].dir, append(os.Environ(), "HOME="+p.members[from].dir)
	text, err := cmd.CombinedOutput()
	if err != nil {
		p.tb.Fatalf("%s: %v\n%s", command, err, text)
	}
	p.await("the standby", p.members[1-from], "primary")
	p.await("the former primary", p.members[from], "sync")
}

// KillPrimary ends Patroni, its server and an etcd on the primary, as the loss of the machine does.
func (p *Patroni) KillPrimary() {
	p.tb.Helper()
	i := p.primary()
	p.members[i].process.kill()
	p.members[i].killServer()
	p.etcd[i].kill()
}

// killServer ends the server of a member, if one runs, with its children.
func (m *patroniMember) killServer() {
	text, err := os.ReadFile(filepath.Join(m.dir, "data", "postmaster.pid"))
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGQUIT)
}
