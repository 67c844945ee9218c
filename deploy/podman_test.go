package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// podmanSettings are settings of a machine without systemd. The limits are what a process may have
// that is not allowed to raise its own.
const podmanSettings = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
image_default_transport = "docker://"
`

// TestImageInPodman builds the image with podman, and runs it by the command of docs/deploy.md,
// with its network, volume, control groups and user: it passes its health check, ends on a stop,
// and keeps its jobs. All is in a network of its own, whose ports and rules are nobody else's.
func TestImageInPodman(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"podman", "unshare", "ip", "curl"} {
		program(t, name)
	}
	mustBinary(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"containers.conf": podmanSettings,
		"storage.conf": fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
			file("graph"), file("run"))} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := strings.Replace(command(t, "Image", "buildah build "), "buildah", "podman", 1)
	run := shellBlock(t, "Image", "docker run ")
	script := strings.NewReplacer("BUILD", strings.Replace(build, "deploy/image", contextDir, 1),
		"RUN", strings.Replace(run, "docker run ", "podman run --detach --name node ", 1),
		"DIR", dir).Replace(podmanScript)
	out, err := shell(t.Context(), "..", "unshare --mount --net sh -ec '"+script+"' 2>&1",
		"CONTAINERS_CONF="+file("containers.conf"), "CONTAINERS_STORAGE_CONF="+file("storage.conf"),
		"MILLRACE__TOKEN="+strings.Repeat("t", 32), "MILLRACE__OPERATOR__TOKEN="+
			strings.Repeat("o", 32))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(mustRead(t, file("pid"))))
	if err != nil || pid < 2 {
		t.Fatal(pid, err)
	}
	checkUser(t, mustRead(t, file("status")))
	if got := mustRead(t, file("ended")); got != "exited 0\n" {
		t.Errorf("a stop leaves the container %s", got)
	}
	if got := mustRead(t, file("kept")); !strings.Contains(got, `"id":"1"`) {
		t.Errorf("after a stop and a start the volume has %s", got)
	}
}

// podmanScript runs the container twice. Where a kernel has both versions of control groups, podman
// takes the older one, and only where it does not see the newer.
const podmanScript = `
exec 3>&1
ip link set lo up
umount /sys/fs/cgroup/unified || true
BUILD
healthy() {
	for try in $(seq 100); do
		if podman healthcheck run node; then return; fi
		sleep 0.2
	done
	podman logs node
	exit 1
}
jobs() {
	curl -sSf -H "Authorization: Bearer $MILLRACE__TOKEN" -H "Content-Type: application/json" \
		http://127.0.0.1:8080/v2/queues/"$@"
}
trap "podman rm --force --time 0 node" EXIT
RUN
healthy
podman inspect --format "{{.State.Pid}}" node >DIR/pid
cat /proc/$(cat DIR/pid)/status >DIR/status
jobs jobs -d "[{\"queue\":\"mail\",\"id\":\"1\",\"timeout\":60,\"payload\":1}]"
podman stop node
podman inspect --format "{{.State.Status}} {{.State.ExitCode}}" node >DIR/ended
podman start node
healthy
jobs mail/jobs >DIR/kept
`
