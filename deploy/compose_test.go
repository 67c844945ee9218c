package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composePrelude stands for what the commands of the page cannot do here: no container is started,
// no user changes, and what would be asked is written down.
const composePrelude = `set -e
docker() { test "$*" = "compose up -d" && ls compose.yaml pepper .env; }
chown() { echo "$*" >>chown; }
curl() { test "$1" = -s && echo "$2" >>curl; }
`

// composeFolder carries out the commands of the page in a folder that has the files of this one.
func composeFolder(t *testing.T) (dir string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir = filepath.Join(root, "deploy")
	mustShell(t, root, "mkdir deploy && ln -s "+here+"/[a-z]*.yaml "+here+"/[a-z]*/ deploy")
	mustShell(t, root, composePrelude+strings.Join(shellBlocks(t, "Compose"), "\n"))
	return dir
}

// composeProject reads compose.yaml as Compose does, with its schema, after the commands of the
// page.
func composeProject(t *testing.T) *types.Project {
	t.Helper()
	dir := composeFolder(t)
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")},
		cli.WithEnvFiles(filepath.Join(dir, ".env")), cli.WithDotEnv)
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestComposeOfThePage: the pepper is of the user of the image, readable to nobody else, where the
// nodes have it mounted from, and readiness is asked at the ports of both nodes.
func TestComposeOfThePage(t *testing.T) {
	t.Parallel()
	p := composeProject(t)
	pepper := p.Secrets["pepper"].File
	info, err := os.Stat(pepper)
	if err != nil || info.Mode() != 0o600 || info.Size() < 64 {
		t.Errorf("the pepper is %+v, %v", info, err)
	}
	user := dockerfile(t, `^USER (\d+):`)
	if got := mustRead(t, filepath.Join(p.WorkingDir, "chown")); got != user+" pepper\n" {
		t.Errorf("the pepper is given to %q, and the user is %s", got, user)
	}
	want := ""
	for _, name := range []string{"node-a", "node-b"} {
		want += "localhost:" + p.Services[name].Ports[0].Published + "/health/ready\n"
	}
	if got := mustRead(t, filepath.Join(p.WorkingDir, "curl")); got != want {
		t.Errorf("the page asks %q, and the nodes are at %q", got, want)
	}
}

// TestCompose: the file is one of Compose, the nodes have settings that Millrace starts with, all
// images have a version, and those of S3 and NATS are the versions that the tests of Millrace run.
func TestCompose(t *testing.T) {
	t.Parallel()
	p := composeProject(t)
	for _, name := range []string{"node-a", "node-b"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for key, value := range s.Environment {
			settings[key] = *value
		}
		checkSettings(t, "compose.yaml, "+name, settings)
		checkGrace(t, "compose.yaml, "+name, settings, time.Duration(*s.StopGracePeriod), 0)
		if s.Ports[0].Target != imagePort(t) {
			t.Errorf("%s has port %d", name, s.Ports[0].Target)
		}
	}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, tag, _ := strings.Cut(filepath.Base(s.Image), ":")
		if !regexp.MustCompile(`^v?\d+\.\d+`).MatchString(tag) && s.Image != "millrace:latest" {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
	}
	outside := mustRead(t, "../internal/testkit/outside/program.go")
	if _, tag, _ := strings.Cut(p.Services["s3"].Image, ":"); !strings.Contains(outside,
		`version: "`+tag+`"`) {
		t.Errorf("the tests run another S3 than %s", p.Services["s3"].Image)
	}
	_, tag, _ := strings.Cut(p.Services["nats"].Image, ":")
	if !strings.Contains(mustRead(t, "../go.mod"), "nats-io/nats-server/v2 v"+tag+"\n") {
		t.Errorf("the tests run another NATS than %s", p.Services["nats"].Image)
	}
	var targets []string
	for name := range p.Services {
		if strings.HasPrefix(name, "node-") {
			targets = append(targets, name)
		}
	}
	for _, name := range targets {
		if !strings.Contains(mustRead(t, "compose/prometheus.yml"), `"`+name+`:8080"`) {
			t.Errorf("Prometheus does not ask %s", name)
		}
	}
}

// testPrograms returns the directory of the programs that tests need.
func testPrograms(t *testing.T) string {
	t.Helper()
	if cache := os.Getenv("MILLRACE_TEST_BIN"); cache != "" {
		return cache
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "millrace-test")
}

// testProgram returns a server that the tests of Millrace have built.
func testProgram(t *testing.T, name string) string {
	t.Helper()
	cache := testPrograms(t)
	found, err := filepath.Glob(filepath.Join(cache, name+"-*", name))
	if err != nil || len(found) == 0 {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal("there is no ", name, " in ", cache, ": run TestPrograms of testkit/outside")
		}
		t.Skip("skipped: there is no ", name, " in ", cache)
	}
	return found[0]
}

// checkSettings has Millrace read an environment: every key is one of its settings, and with the
// settings of the image a server would start.
func checkSettings(t *testing.T, where string, settings map[string]string) {
	t.Helper()
	environ := imageEnvironment(t)
	for key, value := range settings {
		environ = append(environ, key+"="+value)
	}
	out, err := shell(t.Context(), t.TempDir(), mustBinary(t)+" config --json 2>&1 >config.json || "+
		"exit 1", environ...)
	if err != nil || out != "" {
		t.Errorf("%s: %v: %s", where, err, out)
	}
}

// checkGrace: what stops a container waits longer than the server, whose pause comes first.
func checkGrace(t *testing.T, where string, settings map[string]string, given,
	pause time.Duration) {
	t.Helper()
	grace, err := time.ParseDuration(settings["MILLRACE__SHUTDOWN_GRACE"])
	if err != nil {
		t.Fatal(where, err)
	}
	if given < pause+grace+5*time.Second {
		t.Errorf("%s: %s is not enough for a pause of %s and a stop of %s", where, given, pause,
			grace)
	}
}
