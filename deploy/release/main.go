// Command release builds what a release of Millrace has, from a commit: archives for each platform,
// Debian packages, a Homebrew formula, the clients for Python and TypeScript, SBOMs and checksums.
// Two builds of one commit with the same Go are the same, byte for byte. `make release` runs it;
// docs/releases.md describes the files.
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are what binaries are built for. That of Windows has the commands that talk to a
// server, and no server.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"},
	{"darwin", "arm64"}, {"windows", "amd64"}}

// platform is an operating system with an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// program is the name of the binary.
func (p platform) program() string {
	if p.os == "windows" {
		return "millrace.exe"
	}
	return "millrace"
}

func main() {
	root := flag.String("root", "..", "the repository")
	out := flag.String("out", "../dist", "an empty or new directory for the files")
	only := flag.String("only", "", "platforms such as linux/amd64, with commas between them; all if empty")
	tools := flag.String("tools", "", "where the compiler of TypeScript is kept; if empty, in the "+
		"user's cache, beside the programs of the tests")
	flag.Parse()
	if err := run(*root, *out, *only, *tools); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is a release while it is made.
type release struct {
	root, out, work string
	tools           string    // where the compiler of TypeScript is kept
	version         string    // of the tag of the commit, or one that Go makes of the commit
	time            time.Time // of the commit
	built           []built
	completions     map[string][]byte // of each shell
	packed          map[platform]string
	clients         []file // those of other languages, as every archive has them
}

// built is a binary.
type built struct {
	platform
	path string
	info *buildinfo.BuildInfo
}

// run makes a release of the commit that is checked out.
func run(root, out, only, tools string) error {
	if tools == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		tools = filepath.Join(cache, "millrace-test")
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := &release{root: root, out: out, work: work, tools: tools, packed: map[platform]string{}}
	for _, step := range []func() error{
		r.readCommit,
		r.makeOut,
		func() error { return r.build(only) },
		r.complete,
		r.goModule,
		r.wheel,
		r.typescript,
		r.archive,
		r.packageDebian,
		r.writeSBOMs,
		r.writeFormula,
		r.sum,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Println("millrace", r.version, "is in", out)
	return nil
}

// readCommit reads the time of the commit, which all files get. What is not committed would be in
// no later build.
func (r *release) readCommit() error {
	changed, err := r.output("git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return errors.New("there are changes that are not committed:\n" + changed)
	}
	text, err := r.output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	r.time = time.Unix(seconds, 0).UTC()
	return err
}

// makeOut makes the directory of the files. It must be empty, as all its files get a checksum.
func (r *release) makeOut() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return fmt.Errorf("the directory %s is not empty", r.out)
	}
	return nil
}

// build builds the binaries. Go itself writes the version into them, by the tag of the commit.
func (r *release) build(only string) error {
	for _, p := range platforms {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.String()) {
			continue
		}
		b, err := r.buildFor(p)
		if err != nil {
			return err
		}
		r.built = append(r.built, b)
		if r.version = b.info.Main.Version; !strings.HasPrefix(r.version, "v") {
			return fmt.Errorf("the version is %q, as Go found no commit: it needs a clone, and "+
				"reads no linked work tree of git", r.version)
		}
	}
	if len(r.built) == 0 {
		return fmt.Errorf("no platform is %q", only)
	}
	return nil
}

func (r *release) buildFor(p platform) (built, error) {
	path, err := filepath.Abs(filepath.Join(r.work, p.os+"_"+p.arch, p.program()))
	if err != nil {
		return built{}, err
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w", "-o", path,
		"./cmd/millrace")
	c.Dir, c.Stderr = r.root, os.Stderr
	c.Env = append(c.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1",
		"GOARM64=v8.0", "GOOS="+p.os, "GOARCH="+p.arch)
	if err := c.Run(); err != nil {
		return built{}, fmt.Errorf("building for %s: %w", p, err)
	}
	info, err := buildinfo.ReadFile(path)
	return built{p, path, info}, err
}

// shells are what completions are made for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// complete lets a binary of this machine print the completions.
func (r *release) complete() error {
	here := platform{runtime.GOOS, runtime.GOARCH}
	at := slices.IndexFunc(r.built, func(b built) bool { return b.platform == here })
	if at < 0 {
		b, err := r.buildFor(here)
		if err != nil {
			return err
		}
		return r.completeBy(b.path)
	}
	return r.completeBy(r.built[at].path)
}

func (r *release) completeBy(program string) error {
	r.completions = map[string][]byte{}
	for _, shell := range shells {
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("the completion of %s: %w", shell, err)
		}
		r.completions[shell] = text
	}
	return nil
}

// output runs a program in the repository and returns what it prints, without white space around
// it.
func (r *release) output(program string, args ...string) (string, error) {
	c := exec.Command(program, args...)
	c.Dir, c.Stderr = r.root, os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// plainVersion is the version without its v, as packages have it.
func (r *release) plainVersion() string { return strings.TrimPrefix(r.version, "v") }

// name is the name of a file of a platform.
func (r *release) name(p platform, end string) string {
	return fmt.Sprintf("millrace_%s_%s_%s%s", r.plainVersion(), p.os, p.arch, end)
}
