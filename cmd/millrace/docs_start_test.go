package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// tabbed is a program or commands of a document, of one language.
type tabbed struct{ section, language, code string }

var tabLine = regexp.MustCompile(`^\*\*(.+)\*\*$`)

// The sections of docs/start.md that have commands in their tabs.
const (
	firstJob   = "A first job"
	ownProject = "In a project of yours"
)

// tabsOf returns the programs in the tabs of a document, in its order. Those of curl are commands.
func tabsOf(page string) []tabbed {
	all, _ := readTabs(page)
	return all
}

// commandsIn returns the commands in the tab of a language in a section of a document, with which
// its programs are run.
func commandsIn(t *testing.T, page, section, language string) string {
	t.Helper()
	_, all := readTabs(page)
	for _, one := range all {
		if one.section == section && one.language == language {
			return one.code
		}
	}
	t.Fatalf("the section %q has no commands for %s", section, language)
	return ""
}

// readTabs returns what stands in the tabs of a document, in its order.
func readTabs(page string) (programs, commands []tabbed) {
	section, language, code, fence := "", "", []string(nil), ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		switch bold := tabLine.FindStringSubmatch(line); {
		case fence != "" && line == "```":
			one := tabbed{section, language, strings.Join(code, "\n") + "\n"}
			if fence == "```sh" && language != "curl" {
				commands = append(commands, one)
			} else {
				programs = append(programs, one)
			}
			fence, code = "", nil
		case fence != "":
			code = append(code, line)
		case strings.HasPrefix(line, "```") && language != "":
			fence = line
		case regexp.MustCompile("^###? ").MatchString(line):
			section = strings.TrimLeft(line, "# ")
		case bold != nil:
			language = bold[1]
		case line == "<!-- /tabs -->":
			language = ""
		}
	}
	return programs, commands
}

// reader is somebody who follows a document: with a server, in a folder beside the repository.
type reader struct {
	*testing.T
	server  *launchedServer
	root    string   // the repository
	app     string   // a folder of its own beside the repository
	environ []string // variables of the programs
	tidy    string   // runs a program of Go in a module of the reader's own, if there is one
}

// newReader starts a server for a reader.
func newReader(t *testing.T) *reader {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(root, filepath.Join(dir, "millrace")); err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, root: root, app: filepath.Join(dir, "my-app")}
	if err := os.Mkdir(r.app, 0o777); err != nil {
		t.Fatal(err)
	}
	// No test can be the child that processes a picture.
	r.server = launchIn(t, filepath.Join(r.app, "millrace-data"),
		"--set", "log.level=warn")
	awaitReady(t, r.server.url)
	r.environ = []string{"MILLRACE_SERVER=" + r.server.url,
		"PYTHONPATH=" + filepath.Join(root, "clients", "python")}
	return r
}

// run runs a program, or commands, of a document, which print want, and returns all that they
// print. One that goes on is stopped, as by Ctrl-C, when it has printed want.
func (r *reader) run(one tabbed, want string, goesOn bool) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testTimeout)
	defer cancel()
	c, output := r.start(ctx, one, want)
	if goesOn {
		go func() {
			select {
			case <-output.seen:
				_ = child.SignalGroup(c.Process, os.Interrupt)
			case <-ctx.Done():
			}
		}()
	}
	if err := c.Wait(); err != nil || !strings.Contains(output.String(), want) {
		r.Errorf("%s, %s: %v, without %q:\n%s", one.section, one.language, err, want,
			output.String())
	}
	return output.String()
}

// start starts a program, or commands, of a document, and watches for what it prints.
func (r *reader) start(ctx context.Context, one tabbed, want string) (*exec.Cmd,
	*watchedOutput) {
	r.Helper()
	c := r.command(ctx, one.language, r.address(one.code))
	c.Env = append(os.Environ(), r.environ...)
	child.SetProcessGroup(c)
	c.Cancel = func() error { return child.SignalGroup(c.Process, os.Kill) }
	output := &watchedOutput{want: want, seen: make(chan struct{})}
	c.Stdout, c.Stderr = output, output
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	return c, output
}

// address puts the address of the server into a text.
func (r *reader) address(text string) string {
	address := strings.TrimPrefix(r.server.url, "http://")
	return strings.NewReplacer("127.0.0.1:8080", address, "localhost:8080", address).Replace(text)
}

// command makes the command that runs a program of a language.
func (r *reader) command(ctx context.Context, language, code string) *exec.Cmd {
	r.Helper()
	file := func(name string) string {
		mustWriteFile(r.T, r.app, name, []byte(code))
		return filepath.Join(r.app, name)
	}
	var c *exec.Cmd
	switch language {
	case "curl":
		c = exec.CommandContext(ctx, "bash", "-ec", code)
	case "Python":
		c = exec.CommandContext(ctx, "python3", file("program.py"))
	case "TypeScript":
		c = exec.CommandContext(ctx, "node", file("program.mjs"))
	case "Go":
		if r.tidy != "" {
			file("main.go")
			c = exec.CommandContext(ctx, "bash", "-ec", r.tidy)
			break
		}
		source, binary := file("main.go"), filepath.Join(r.app, "program")
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, source)
		build.Dir = r.root
		if out, err := build.CombinedOutput(); err != nil {
			r.Fatalf("%v: %s", err, out)
		}
		c = exec.CommandContext(ctx, binary)
	default:
		r.Fatalf("no test runs %s", language)
	}
	c.Dir = r.app
	return c
}

// watchedOutput keeps what a program prints, and says when that has a text.
type watchedOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
	once sync.Once
}

// Write implements io.Writer.
func (o *watchedOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if strings.Contains(o.text.String(), o.want) {
		o.once.Do(func() { close(o.seen) })
	}
	return len(b), nil
}

func (o *watchedOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Each program of docs/start.md does what the page says, in each language. The first one is run by
// the commands of the page.
func TestStartOfTheDocs(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/start.md"]
	printed := map[string]string{}
	section := ""
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		if found := regexp.MustCompile("^It prints `(.+?)`").FindStringSubmatch(line); found != nil {
			printed[section] = found[1]
		}
	}
	if len(printed) != 5 || printed[firstJob] == "" {
		t.Fatalf("the page says of %d contracts what is printed: %v", len(printed), printed)
	}
	for _, language := range []string{"curl", "Go", "Python", "TypeScript"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			r, ran := newReader(t), 0
			if language == "TypeScript" {
				outside.InstallClient(t, filepath.Join(r.root, "clients", "typescript"), r.app)
			}
			for _, one := range tabsOf(page) {
				want := printed[one.section]
				switch {
				case one.language != language || want == "":
					continue
				case one.section == firstJob && language != "curl":
					r.runFirst(page, one, want)
				default:
					r.run(one, want, false)
				}
				if ran++; one.section == firstJob && language == "Go" {
					r.makeModule(page) // in which the others are run
				}
			}
			if ran != len(printed) {
				t.Errorf("%d programs, want %d", ran, len(printed))
			}
		})
	}
}

// runFirst runs the first program of docs/start.md by the commands of the page. Of the clients for
// TypeScript and Go an archive has packages, which TestRelease uses; here that for TypeScript is
// there already, and a program of Go is run in the folder of the repository, and by no `go run`,
// which fails after Ctrl-C whatever the program does.
func (r *reader) runFirst(page string, one tabbed, want string) {
	r.Helper()
	commands := commandsIn(r.T, page, one.section, one.language)
	names := map[string]string{"Python": "program.py", "TypeScript": "program.mjs", "Go": "program.go"}
	name := names[one.language]
	if !strings.Contains(page, "Save this as `"+name+"`") {
		r.Errorf("the page does not save %s", name)
	}
	mustWriteFile(r.T, r.app, name, []byte(r.address(one.code)))
	own := *r
	own.environ = []string{"MILLRACE_SERVER=" + r.server.url, "PYTHONPATH="}
	program := filepath.Join(r.app, "program")
	edits := strings.NewReplacer("$PWD/clients", r.root+"/clients",
		"npm install ./clients/typescript.tgz\n", "", "go work init ./clients/go\n", "",
		"go run program.go", "cd "+r.root+"\ngo build -o "+program+" "+program+".go\nexec "+program)
	own.run(tabbed{one.section, "curl", edits.Replace(commands)}, want, true)
}

// makeModule makes a module in the folder of the reader by the commands of docs/start.md, and has
// programs of Go run in it by the command of the page. No module is downloaded: what the client
// needs is there, as this test was compiled with it, and -e lets modules be missing that only tests
// of the client import.
func (r *reader) makeModule(page string) {
	r.Helper()
	r.environ = append(r.environ, "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=")
	commands := commandsIn(r.T, page, ownProject, "Go")
	const archive = "../millrace_1.2.3_linux_amd64/clients/go" // TestRelease makes one
	if !strings.Contains(commands, archive) {
		r.Errorf("the module is not that of an archive: %s", commands)
	}
	r.run(tabbed{ownProject, "curl", strings.Replace(commands, archive, "../millrace", 1)}, "", false)
	found := regexp.MustCompile("run it with `(go mod tidy [^`]+)`").FindStringSubmatch(page)
	if found == nil {
		r.Fatal("the page does not say how a program of Go is run")
	}
	const tidy, offline = "go mod tidy", "go mod tidy -e"
	r.tidy = strings.Replace(found[1], tidy, offline, 1)
	if err := os.Remove(filepath.Join(r.app, "program.go")); err != nil {
		r.Fatal(err)
	}
	r.run(tabbed{"an empty program", "Go", "package main\n\nimport _ " +
		`"github.com/millrace/millrace/client"` + "\n\nfunc main() {}\n"}, "", false)
	// The module may be told again where the client is, as docs/taskflow.md does.
	block := blockWith(r.T, codeBlocks(r.T, "taskflow.md", "sh"), "go mod edit")
	r.run(tabbed{"taskflow.md", "curl", strings.Replace(block, tidy, offline, 1)}, "", false)
}

// TestInstallingOfTheDocs: docs/start.md and the README build the binary in one way, which does,
// here into a folder of the test. The server starts there, and another terminal finds the commands.
// What is installed for TypeScript is what the README of the client has, whose test installs it.
func TestInstallingOfTheDocs(t *testing.T) {
	t.Parallel()
	readme := documents(t)["README.md"]
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	blocks, app, address := codeBlocks(t, "start.md", "sh"), t.TempDir(), freeAddress(t)
	r := &reader{T: t, root: root, app: app, server: &launchedServer{url: "http://" + address},
		environ: []string{"MILLRACE__LISTEN=" + address, "MILLRACE_SERVER=http://" + address}}
	commands := blockWith(t, blocks, "go build")
	build, isServed := strings.CutSuffix(commands, "\n./millrace serve\n")
	if !isServed || !strings.Contains(readme, "```sh\n"+build+" && export PATH=") ||
		!strings.Contains(readme, "```sh\nmillrace serve ") {
		t.Errorf("the page and the README do not start the server in one way: %s", commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	c, output := r.start(ctx, tabbed{"From the repository", "curl", "cd " + root + "\n" +
		strings.NewReplacer("-o millrace", "-o "+app+"/millrace",
			"./millrace serve", "cd "+app+"\n./millrace serve").Replace(commands)}, cli.ListeningOn)
	t.Cleanup(func() {
		cancel()
		_ = c.Wait()
	})
	select {
	case <-output.seen:
	case <-ctx.Done():
		t.Fatal("the server does not start: ", output)
	}
	path, _, _ := strings.Cut(blockWith(t, blocks, "export PATH"), "\n")
	r.run(tabbed{"another terminal", "curl", path + "\ncommand -v millrace\nmillrace health"},
		filepath.Join(app, "millrace"), false)
	typescript, err := os.ReadFile("../../clients/typescript/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for command := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(blockWith(t, blocks,
		"npm --prefix")), "\n", " && "), " && ") {
		command = strings.Replace(command, "mkdir -p", "mkdir", 1)
		if !strings.Contains(string(typescript), command) {
			t.Errorf("no test runs %s", command)
		}
	}
}
