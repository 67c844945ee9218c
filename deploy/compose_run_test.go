package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// composeRun is what Compose runs of compose.yaml, as processes without containers: each by the
// command and the environment of its service. Only addresses and directories are others.
type composeRun struct {
	*testing.T
	project *types.Project
	dir     string
	store   string            // the URL of the database
	here    *strings.Replacer // of addresses and paths in containers by those on this machine
	nodes   map[string]*exec.Cmd
	urls    map[string]string
}

// freeAddress returns an address of this machine that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// database makes a database of its own on the PostgreSQL of the tests, and returns its URL with the
// options that a setting has.
func (r *composeRun) database(setting string) string {
	r.Helper()
	server := os.Getenv("MILLRACE_TEST_POSTGRES")
	if server == "" && os.Getenv("MILLRACE_TEST_REQUIRE") != "1" {
		r.Skip("skipped: MILLRACE_TEST_POSTGRES names no server")
	}
	program(r.T, "psql")
	store, err := url.Parse(setting)
	if err != nil {
		r.Fatal(err)
	}
	at, err := url.Parse(server)
	if err != nil {
		r.Fatal(err)
	}
	name := strings.ToLower(fmt.Sprintf("millrace_%s_%d", r.Name(), os.Getpid()))
	mustShell(r.T, ".", fmt.Sprintf("psql -qXc 'CREATE DATABASE %s' '%s'", name, server))
	r.Cleanup(func() {
		out, err := exec.Command("psql", "-qXc", "DROP DATABASE "+name+" WITH (FORCE)",
			server).CombinedOutput()
		if err != nil {
			r.Errorf("%v: %s", err, out)
		}
	})
	at.Path, at.RawQuery = name, store.RawQuery
	return at.String()
}

// environment is what a service has in its environment.
func (r *composeRun) environment(service string) (pairs []string) {
	r.Helper()
	for key, value := range r.project.Services[service].Environment {
		if key == "MILLRACE__STORE" {
			continue // both nodes have one database
		}
		pairs = append(pairs, key+"="+r.here.Replace(*value))
	}
	return pairs
}

// start starts a process that is killed with the test.
func (r *composeRun) start(environ []string, path string, args ...string) *exec.Cmd {
	r.Helper()
	var output bytes.Buffer
	c := exec.Command(path, args...)
	c.Dir, c.Env = r.dir, append(os.Environ(), environ...)
	c.Stdout, c.Stderr = &output, &output
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if r.Failed() {
			r.Logf("%s\n%s", path, output.String())
		}
	})
	return c
}

// startServices starts NATS and S3 with their own commands.
func (r *composeRun) startServices() {
	r.Helper()
	natsAt, s3At := freeAddress(r.T), freeAddress(r.T)
	paths := []string{"nats:4222", natsAt, "s3:7070", s3At, ":7070", s3At,
		"/app/versitygw", testProgram(r.T, "versitygw"), "/data", filepath.Join(r.dir, "s3"),
		"/run/secrets/pepper", filepath.Join(r.dir, "pepper")}
	host, port, _ := strings.Cut(natsAt, ":")
	args := []string{"--addr", host, "--port", port}
	for _, v := range r.project.Services["nats"].Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		config := filepath.Join(r.dir, filepath.Base(v.Target))
		text := strings.ReplaceAll(mustRead(r.T, v.Source), "/data", filepath.Join(r.dir, "nats"))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
		paths = append(paths, v.Target, config)
	}
	r.here = strings.NewReplacer(paths...)
	for _, a := range r.project.Services["nats"].Command {
		args = append(args, r.here.Replace(a))
	}
	r.start(nil, testProgram(r.T, "nats-server"), args...)
	var command []string
	for _, a := range r.project.Services["s3"].Entrypoint {
		command = append(command, r.here.Replace(a))
	}
	r.start(r.environment("s3"), command[0], command[1:]...)
	for _, address := range []string{natsAt, s3At} {
		await(r.T, "a server at "+address, func() bool {
			c, err := net.Dial("tcp", address)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
}

// startNode starts a node of the image and waits until the health check of the image succeeds.
func (r *composeRun) startNode(name string) {
	r.Helper()
	address := freeAddress(r.T)
	environ := append(append(imageEnvironment(r.T), r.environment(name)...),
		"MILLRACE__LISTEN="+address, "MILLRACE__DATA_DIR="+filepath.Join(r.dir, name),
		"MILLRACE__STORE="+r.store)
	r.nodes[name] = r.start(environ, mustBinary(r.T), "serve")
	r.urls[name] = "http://" + address
	await(r.T, name+" to be healthy", func() bool {
		_, err := shell(r.Context(), r.dir, mustBinary(r.T)+" health", environ...)
		return err == nil
	})
}

// call makes a request of a client, or of an operator, and wants success.
func (r *composeRun) call(node, method, path, body, contentType string) string {
	r.Helper()
	variable := "MILLRACE__TOKEN"
	if strings.HasPrefix(path, "/operators/") {
		variable = "MILLRACE__OPERATOR__TOKEN"
	}
	return r.send(node, *r.project.Services[node].Environment[variable], method, path, body,
		contentType)
}

// send makes a request under a token, or without one, and wants success.
func (r *composeRun) send(node, token, method, path, body, contentType string) string {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.urls[node]+path,
		strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("X-Fetchbox-Job-Type", "default")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		r.Fatalf("%s %s: %s %v %s", node, path, resp.Status, err, text)
	}
	return string(text)
}

// newComposeRun starts NATS, S3 and both nodes, on a database of their own.
func newComposeRun(t *testing.T) *composeRun {
	t.Helper()
	t.Parallel()
	r := &composeRun{T: t, project: composeProject(t), dir: t.TempDir(),
		nodes: map[string]*exec.Cmd{}, urls: map[string]string{}}
	mustShell(t, r.dir, "openssl rand -hex 32 > pepper && chmod 600 pepper")
	r.startServices()
	r.store = r.database(*r.project.Services["node-a"].Environment["MILLRACE__STORE"])
	r.startNode("node-a")
	r.startNode("node-b")
	return r
}

// TestNodesOfCompose: with the settings of compose.yaml two nodes are healthy on PostgreSQL, NATS
// and S3, each serves what the other was given, and both end on the signal of a stop.
func TestNodesOfCompose(t *testing.T) {
	r := newComposeRun(t)
	r.call("node-a", "POST", "/v2/queues/jobs",
		`[{"queue":"mail","id":"1","timeout":60,"payload":1}]`, "application/json")
	if got := r.call("node-b", "GET", "/v2/queues/mail/jobs", "", ""); !strings.Contains(got,
		`"id":"1"`) {
		t.Errorf("the other node claims %s", got)
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 200, 200))); err != nil {
		t.Fatal(err)
	}
	var made struct {
		FileID string `json:"file_id"`
		JobID  string `json:"job_id"`
	}
	r.decode(r.call("node-a", "POST", "/images/v1/files?sizes=100", picture.String(), "image/png"),
		&made)
	if got := r.call("node-b", "GET", "/images/v1/files/"+made.FileID+"/content", "", ""); got !=
		picture.String() {
		t.Errorf("the other node has %d bytes of the picture, not %d", len(got), picture.Len())
	}
	r.decode(r.call("node-b", "POST", "/jobs", `{"manifest_version":"v1","metadata":{},"resources":[`+
		`{"id":"a","url":"http://127.0.0.1:1/a"}]}`, "application/json"), &made)
	// That the job is there comes from its message in the streams.
	await(t, "the job of FetchBox to be taken from the stream", func() bool {
		return strings.Contains(r.call("node-a", "GET", "/operators/jobs/"+made.JobID, "", ""),
			`"status":"`)
	})
	r.stop()
}

// decode reads an answer.
func (r *composeRun) decode(answer string, into any) {
	r.Helper()
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		r.Fatal(err, answer)
	}
}

// stop stops both nodes, which end well within the time that Compose gives them.
func (r *composeRun) stop() {
	r.Helper()
	for name, c := range r.nodes {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			r.Fatal(name, err)
		}
		grace := time.Duration(*r.project.Services[name].StopGracePeriod)
		hang := time.AfterFunc(grace, func() { _ = c.Process.Kill() })
		if err := c.Wait(); err != nil {
			r.Errorf("%s ends with %v", name, err)
		}
		hang.Stop()
	}
}
