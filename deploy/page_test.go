package deploy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shellBlocks returns the commands of a section of docs/deploy.md.
func shellBlocks(t *testing.T, section string) []string {
	t.Helper()
	_, text, found := strings.Cut(mustRead(t, "../docs/deploy.md"), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	if !found || len(blocks) == 0 {
		t.Fatal("the page has no commands of ", section)
	}
	return blocks
}

// command returns the only command of a section that begins with a text.
func command(t *testing.T, section, prefix string) string {
	t.Helper()
	var found []string
	for _, block := range shellBlocks(t, section) {
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, prefix) {
				found = append(found, line)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %q %d times", section, prefix, len(found))
	}
	return found[0]
}

// shellBlock returns the only block of a section that begins with a text.
func shellBlock(t *testing.T, section, prefix string) string {
	t.Helper()
	var found []string
	for _, block := range shellBlocks(t, section) {
		if strings.HasPrefix(block, prefix) {
			found = append(found, block)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks that begin with %q", section, len(found), prefix)
	}
	return found[0]
}

// TestImage builds the image with buildah, runs a server and its health check in it, and stops it
// as an engine does. The isolation chroot of buildah needs neither control groups nor namespaces of
// the kernel; TestImageInPodman has both.
func TestImage(t *testing.T) {
	t.Parallel()
	program(t, "buildah")
	mustBinary(t)
	dir := t.TempDir()
	conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(dir, "graph"), filepath.Join(dir, "run"))
	if err := os.WriteFile(filepath.Join(dir, "storage.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"CONTAINERS_STORAGE_CONF=" + filepath.Join(dir, "storage.conf"),
		"BUILDAH_ISOLATION=chroot"}
	build := command(t, "Image", "buildah build ")
	if strings.Count(build, "deploy/image") != 1 {
		t.Fatal("the context is not named: ", build)
	}
	mustShell(t, "..", strings.Replace(build, "deploy/image", contextDir, 1), env...)
	made := mustShell(t, ".", `buildah inspect --type image --format `+
		`'{{.Docker.Config.User}} {{.Docker.Config.Healthcheck.Test}}' millrace`, env...)
	if strings.TrimSpace(made) != "65532:65532 [CMD /bin/millrace health]" {
		t.Errorf("the image has %s", made)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	id := strings.TrimSpace(mustShell(t, ".", "buildah from millrace", env...))
	mustShell(t, ".", "buildah config --env MILLRACE__LISTEN="+address+" "+id, env...)
	server := exec.Command("buildah", "run", id, "--", "/bin/millrace", "serve")
	server.Env = append(os.Environ(), env...)
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		output.Close()
		if text, err := os.ReadFile(output.Name()); err == nil && t.Failed() {
			t.Log(string(text))
		}
	})
	await(t, "the health check of the image to succeed", func() bool {
		_, err := shell(t.Context(), ".", "buildah run "+id+" -- /bin/millrace health", env...)
		return err == nil
	})
	if status, body := (node{url: "http://" + address}).get(t, "/health/ready"); status != 200 {
		t.Errorf("readiness answers %d: %s", status, body)
	}
	checkProcess(t, server)
}

// checkProcess wants the program that a command runs in the image to be of the user of the image,
// and the command to end well once that program has got the signal of a stop.
func checkProcess(t *testing.T, command *exec.Cmd) {
	t.Helper()
	pid := command.Process.Pid
	for {
		children, err := shell(t.Context(), ".",
			fmt.Sprintf("cat /proc/%d/task/*/children", pid))
		if err != nil {
			t.Fatal(err, children)
		}
		if len(strings.Fields(children)) == 0 {
			break
		}
		if pid, err = strconv.Atoi(strings.Fields(children)[0]); err != nil {
			t.Fatal(err)
		}
	}
	checkUser(t, mustRead(t, fmt.Sprintf("/proc/%d/status", pid)))
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not end after SIGTERM")
	}
}

// checkUser wants the status of a process to be that of Millrace as the user of the image.
func checkUser(t *testing.T, status string) {
	t.Helper()
	if !strings.HasPrefix(status, "Name:\tmillrace\n") ||
		!strings.Contains(status, "\nUid:\t65532\t65532\t65532\t65532\n") ||
		!strings.Contains(status, "\nGid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("the process is %s", status)
	}
}

// maxExposure is the most that systemd-analyze may find of what a compromised service could reach,
// of 10.
const maxExposure = 1.5

// TestUnit: systemd knows all that the unit says, which keeps the service away from what it does
// not need.
func TestUnit(t *testing.T) {
	t.Parallel()
	program(t, "systemd-analyze")
	path := mustBinary(t)
	unit := mustRead(t, "millrace.service")
	if strings.Count(unit, "/usr/local/bin/millrace ") != 1 {
		t.Fatal("the unit does not start /usr/local/bin/millrace")
	}
	file := filepath.Join(t.TempDir(), "millrace.service")
	unit = strings.Replace(unit, "/usr/local/bin/millrace ", path+" ", 1)
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	page := mustRead(t, "../docs/deploy.md")
	verify := regexp.MustCompile("`(systemd-analyze verify .*?)`").FindStringSubmatch(page)
	if verify == nil || !strings.Contains(verify[1], "deploy/millrace.service") {
		t.Fatalf("the page does not verify the unit: %q", verify)
	}
	if out := mustShell(t, ".", strings.Replace(verify[1], "deploy/millrace.service", file,
		1)); out != "" {
		t.Error(out)
	}
	out := mustShell(t, ".", "systemd-analyze security --offline=true --no-pager "+file)
	found := regexp.MustCompile(`exposure level for \S+: ([\d.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatal(out)
	}
	exposure, err := strconv.ParseFloat(found[1], 64)
	if err != nil || exposure > maxExposure {
		t.Errorf("%v: %s", err, out)
	}
	grace := mustShell(t, t.TempDir(), path+" config | grep '^shutdown_grace '")
	stop := regexp.MustCompile(`TimeoutStopSec=(\d+)`).FindStringSubmatch(unit)
	if !strings.Contains(grace, "25s") || stop == nil || stop[1] != "35" {
		t.Errorf("the unit waits %v for %s", stop, grace)
	}
}

// belowRoot has commands of systemd act below a root, which no system runs from: a service is
// enabled there and not started, and has no entries in the journal.
func belowRoot(commands, root string) string {
	return strings.NewReplacer("systemctl daemon-reload && ", "",
		"systemctl enable --now ", "systemctl --root="+root+" enable ",
		"journalctl ", "journalctl --root="+root+" ").Replace(commands)
}

// checkEnabled wants the service that a page enables to start with the system below a root.
func checkEnabled(t *testing.T, root string) {
	t.Helper()
	const link = "etc/systemd/system/multi-user.target.wants/millrace.service"
	unit, err := os.Readlink(filepath.Join(root, link))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, unit)); err != nil {
		t.Error(err)
	}
}

// TestInstallOfThePage runs the commands that install the unit, below another root.
func TestInstallOfThePage(t *testing.T) {
	t.Parallel()
	program(t, "systemctl")
	root := t.TempDir()
	commands := strings.Join(shellBlocks(t, "systemd"), "")
	unit := regexp.MustCompile(`journalctl -u (\S+)\n`).FindStringSubmatch(commands)
	mustShell(t, "..", "set -e\n"+belowRoot(strings.NewReplacer(" /etc/", " "+root+"/etc/",
		" /usr/", " "+root+"/usr/", "deploy/image/millrace", mustBinary(t)).Replace(commands), root))
	checkEnabled(t, root)
	if unit == nil || unit[1] != "millrace" {
		t.Errorf("the page reads the journal of %q", unit)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/local/bin/millrace")); err != nil {
		t.Error(err)
	}
	out := mustShell(t, root, "usr/local/bin/millrace config --config etc/millrace/millrace.toml "+
		">config 2>errors; cat errors")
	if out != "" {
		t.Error(out)
	}
}

// TestPrometheusOfThePage runs the commands that check the rules.
func TestPrometheusOfThePage(t *testing.T) {
	t.Parallel()
	program(t, "promtool")
	for _, block := range shellBlocks(t, "Prometheus and Grafana") {
		mustShell(t, "..", "set -e\n"+block)
	}
}
