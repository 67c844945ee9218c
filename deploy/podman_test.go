package deploy

import (
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
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

// podmanRun runs a container whose commands the script has.
const podmanRun = "podman run --detach --name node "

// TestImageInPodman builds the image with podman, and runs it by the command of docs/deploy.md,
// with its network, volume, control groups and user: it passes its health check, ends on a stop,
// and keeps its jobs. Then it runs as in a pod of deploy/kubernetes, and makes a variant of a
// picture, for which it starts itself. All is in a network of its own, whose ports and rules are
// nobody else's. A registry would keep maxImage of the image at most.
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
	checkPodLimits(t)
	writePicture(t, file("picture.png"))
	build := strings.Replace(command(t, "Image", "buildah build "), "buildah", "podman", 1)
	run := shellBlock(t, "Image", "docker run ")
	script := strings.NewReplacer("BUILD", strings.Replace(build, "deploy/image", contextDir, 1),
		"RUN", strings.Replace(run, "docker run ", podmanRun, 1),
		"LIMITED", strings.NewReplacer("docker run ", podmanRun, "-v millrace:/data ",
			strings.ReplaceAll(podLimits, "DIR", dir)+" ").Replace(run),
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
	if got := mustRead(t, file("ended")); got != "exited 0\nexited 0\n" {
		t.Errorf("stops leave the containers %s", got)
	}
	if got := mustRead(t, file("kept")); !strings.Contains(got, `"id":"1"`) {
		t.Errorf("after a stop and a start the volume has %s", got)
	}
	checkUser(t, mustRead(t, file("pod-status")))
	for _, limit := range []string{"CapBnd:\t0000000000000000", "CapEff:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(mustRead(t, file("pod-status")), "\n"+limit+"\n") {
			t.Errorf("as in a pod the process has no %q: %s", limit, mustRead(t, file("pod-status")))
		}
	}
	if f, err := os.Open(file("variant")); err != nil {
		t.Error(err)
	} else if variant, _, err := image.DecodeConfig(f); err != nil || variant.Width != 100 {
		t.Errorf("the variant is %+v: %v", variant, errors.Join(err, f.Close()))
	}
	checkPushed(t, file("pushed"))
}

// podLimits are how podman runs a container as the pods of deploy/kubernetes are: nothing but the
// directory of the data can be written, and that belongs to the group of the pod.
const podLimits = "--read-only --read-only-tmpfs=false --cap-drop all " +
	"--security-opt no-new-privileges --user 65532:65532 --volume DIR/data:/data"

// checkPodLimits: podLimits are what the manifests say.
func checkPodLimits(t *testing.T) {
	t.Helper()
	for name, d := range mustManifests(t).deployments {
		pod := d.Spec.Template.Spec
		group, container := *pod.SecurityContext.FSGroup, pod.Containers[0]
		c := container.SecurityContext
		got := fmt.Sprintf("%t %v %t %d:%d %s", *c.ReadOnlyRootFilesystem, c.Capabilities.Drop,
			*c.AllowPrivilegeEscalation, *pod.SecurityContext.RunAsUser,
			*pod.SecurityContext.RunAsGroup, container.VolumeMounts[0].MountPath)
		if (got != "true [ALL] false 65532:65532 /data") || (group != 65532) ||
			(pod.Volumes[0].EmptyDir == nil) || !*pod.SecurityContext.RunAsNonRoot ||
			(pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault) {
			t.Errorf("%s has pods with other limits than the test: %s", name, got)
		}
	}
}

// writePicture writes a picture for Images.
func writePicture(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	picture := image.NewGray(image.Rect(0, 0, 400, 200))
	if err := errors.Join(png.Encode(f, picture), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// checkPushed: the files that make up the image have no more than maxImage bytes, as they are when
// it was pushed to a directory with compressed layers.
func checkPushed(t *testing.T, dir string) {
	t.Helper()
	size := int64(0)
	for _, name := range names(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	t.Logf("the compressed image has %d bytes", size)
	if (size > maxImage) || (size < maxImage/4) {
		t.Errorf("the compressed image has %d bytes: %v", size, names(t, dir))
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
podman rm --force --time 10 node
podman push --compress millrace dir:DIR/pushed
mkdir --mode 2775 DIR/data
chgrp 65532 DIR/data
chmod 2775 DIR/data
LIMITED
healthy
podman inspect --format "{{.State.Pid}}" node >DIR/pid
cat /proc/$(cat DIR/pid)/status >DIR/pod-status
images() {
	curl -sf -H "Authorization: Bearer $MILLRACE__TOKEN" http://127.0.0.1:8080/images/v1/"$@"
}
images files -F file=@DIR/picture.png -F sizes=100 >DIR/file
id=$(sed "s/.*\"file_id\":\"\([^\"]*\)\".*/\1/" DIR/file)
for try in $(seq 100); do
	if images files/$id/variants/100 >DIR/variant; then break; fi
	sleep 0.2
done
podman stop node
podman inspect --format "{{.State.Status}} {{.State.ExitCode}}" node >>DIR/ended
`
