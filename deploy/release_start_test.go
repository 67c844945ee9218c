package deploy

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// newUser is somebody who follows docs/start.md with the files of a release.
type newUser struct {
	*testing.T
	dir     string   // has the files
	environ []string // of all terminals
	address string   // of the server
}

// startPrograms are how programs of docs/start.md stand there, are saved and run, by their
// language on the page. The test executes `run`, or exec where that is another command: `go run`
// fails after Ctrl-C whatever its program does.
var startPrograms = map[string]struct{ fence, file, run, exec string }{
	"Python":     {"```python\n", "program.py", "python3 program.py", ""},
	"TypeScript": {"```js\n", "program.mjs", "node program.mjs", ""},
	"Go":         {"```go\n", "program.go", "go run program.go", "./program"},
}

// withoutInstall takes the installation of a client out of commands: the second would be refused.
var withoutInstall = strings.NewReplacer("npm install", "true", "go work init", "true")

// checkStart follows docs/start.md as somebody does who has a language and not the repository: with
// the archive alone it starts the server, gets the clients, and runs the programs of each contract.
// Only those of Go have Go. The first one of each language runs in a project of its own too: those
// of Python and TypeScript with the packages, that of Go with the module of the archive.
func checkStart(t *testing.T, out string) {
	t.Helper()
	page := mustRead(t, "../docs/start.md")
	u := &newUser{T: t, dir: t.TempDir()}
	first := sectionOf(t, page, "## A first job")
	serve := blockOf(t, first, "```sh\n")
	u.take(out, serve)
	u.serve(serve)
	folder := regexp.MustCompile(`(?m) && cd (\S+)$`).FindStringSubmatch(serve)
	if folder == nil {
		t.Fatalf("the commands enter no folder: %s", serve)
	}
	u.dir = filepath.Join(u.dir, folder[1])
	programs := 0
	for language, how := range startPrograms {
		commands := blockOf(t, tabOf(t, first, language), "```sh\n")
		get, isRun := strings.CutSuffix(commands, how.run+"\n")
		if !isRun || !strings.Contains(first, "Save this as `"+how.file+"`") {
			t.Errorf("the page does not run %s: %s", how.file, commands)
		}
		for _, part := range strings.Split(page, "\n## ")[1:] {
			want := regexp.MustCompile("\nIt prints `(.+?)`").FindStringSubmatch(part)
			if want == nil {
				continue
			}
			u.run(language, get, blockOf(t, tabOf(t, part, language), how.fence), want[1],
				strings.HasPrefix(part, "A first job\n"))
			get = withoutInstall.Replace(get)
			programs++
		}
	}
	if programs != 15 {
		t.Errorf("%d programs were run, want five of each language", programs)
	}
	if _, err := os.Stat(filepath.Join(u.dir, "millrace-data", "millrace.db")); err != nil {
		t.Error(err)
	}
	project := sectionOf(t, page, "### In a project of yours")
	u.run("Go", blockOf(t, tabOf(t, project, "Go"), "```sh\n")+"cp \"$OLDPWD/program.go\" .\ngo mod tidy\n",
		blockOf(t, tabOf(t, first, "Go"), startPrograms["Go"].fence), "sent to ada", true)
	u.dir = t.TempDir()
	for _, language := range []string{"Python", "TypeScript"} {
		how, get := startPrograms[language], blockOf(t, tabOf(t, project, language), "```sh\n")
		u.take(out, get)
		u.run(language, get, blockOf(t, tabOf(t, first, language), how.fence), "sent to ada", true)
	}
}

// checkReadme runs the commands that the README of an unpacked archive begins with: a server on a
// free port in the place of its own, a worker that ends when there are no jobs left, and the others
// as they stand, those of Windows with the program of this system.
func checkReadme(t *testing.T, folder string) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^    (\./millrace|echo) .*$`).FindAllString(
		sectionOf(t, mustRead(t, filepath.Join(folder, "README.md")), "## First"), -1)
	windows := regexp.MustCompile(`(?m)^    millrace\.exe .*$`).FindAllString(
		mustRead(t, "release/readme.go"), -1)
	if len(lines) != 4 || len(windows) != 2 {
		t.Fatalf("the README has other commands: %q %q", lines, windows)
	}
	n := startProgram(t, filepath.Join(folder, "millrace"))
	forTest := strings.NewReplacer("./millrace serve", "./millrace health",
		"./millrace work ", "./millrace work --until-empty ", "millrace.exe", "./millrace",
		"http://the-server:8080", n.url)
	var printed string
	for _, line := range append(lines, windows...) {
		printed += mustShell(t, folder, forTest.Replace(line), n.environ)
	}
	if !strings.Contains(printed, `{"to":"ada"}`) {
		t.Errorf("the worker has not printed the payload:\n%s", printed)
	}
}

// sectionOf returns the section of a page with a heading.
func sectionOf(t *testing.T, page, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section
}

// tabOf returns the tab of a language in a section.
func tabOf(t *testing.T, section, language string) string {
	t.Helper()
	_, tab, found := strings.Cut(section, "\n**"+language+"**\n")
	if !found {
		t.Fatalf("there is no tab of %s", language)
	}
	end := regexp.MustCompile(`(?m)^(\*\*\w+\*\*|<!-- /tabs -->)$`).FindStringIndex(tab)
	return tab[:end[0]]
}

// blockOf returns the first block of a text with a fence.
func blockOf(t *testing.T, text, fence string) string {
	t.Helper()
	_, block, found := strings.Cut(text, "\n"+fence)
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatalf("there is no block %q in %s", fence, text)
	}
	return block
}

// take puts the files of the release that commands name into the folder.
func (u *newUser) take(out, commands string) {
	u.Helper()
	all := regexp.MustCompile(`millrace[-_]1\.2\.3\S*\.(?:tar\.gz|tgz|whl)`).FindAllString(
		commands, -1)
	if len(all) != 1 {
		u.Fatalf("the commands name the files %q: %s", all, commands)
	}
	text := mustRead(u.T, filepath.Join(out, all[0]))
	if err := os.WriteFile(filepath.Join(u.dir, all[0]), []byte(text), 0o600); err != nil {
		u.Fatal(err)
	}
}

// serve runs the commands that end with the server, on a free port in the place of 8080, until the
// test ends.
func (u *newUser) serve(commands string) {
	u.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		u.Fatal(err)
	}
	u.address = l.Addr().String()
	l.Close()
	// Whoever calls Go, or asks a registry, fails.
	bin := u.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\nexit 97\n"), 0o700); err != nil {
		u.Fatal(err)
	}
	u.environ = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "PYTHONPATH=", "PIP_NO_INDEX=1",
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_CONFIG_FILE=" + os.DevNull,
		"npm_config_offline=true", "npm_config_audit=false", "npm_config_fund=false",
		"npm_config_cache=" + u.TempDir()}
	before, found := strings.CutSuffix(commands, "./millrace serve\n")
	if !found {
		u.Fatalf("the commands do not end with the server: %s", commands)
	}
	var output bytes.Buffer
	c := exec.Command("sh", "-ec", before+"exec ./millrace serve\n") // so that it is what is killed
	c.Dir, c.Stdout, c.Stderr = u.dir, &output, &output
	c.Env = append(append(os.Environ(), u.environ...), "MILLRACE__LISTEN="+u.address)
	if err := c.Start(); err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if u.Failed() {
			u.Log(output.String())
		}
	})
	await(u.T, "the server to be ready", func() bool {
		resp, err := http.Get("http://" + u.address + "/health/ready")
		if err != nil {
			return false // it does not listen yet
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// run saves a program in a file and runs it, in a terminal in which the client was got by commands,
// until it ends, which prints want. One that goes on is stopped as by Ctrl-C.
func (u *newUser) run(language, get, code, want string, goesOn bool) {
	u.Helper()
	how := startPrograms[language]
	code = strings.ReplaceAll(code, "127.0.0.1:8080", u.address)
	if err := os.WriteFile(filepath.Join(u.dir, how.file), []byte(code), 0o600); err != nil {
		u.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(u.Context(), time.Minute)
	defer cancel()
	run, environ := how.run, append(os.Environ(), u.environ...)
	if how.exec != "" {
		run = how.exec
		get += "go build -o program program.go\n"
		environ = append(environ, "PATH="+os.Getenv("PATH"), "GOPROXY=off", "GOFLAGS=")
	}
	c := exec.CommandContext(ctx, "sh", "-ec", get+"exec "+run)
	c.Dir, c.Env = u.dir, environ
	var failure bytes.Buffer
	c.Stderr = &failure
	stdout, err := c.StdoutPipe()
	if err != nil {
		u.Fatal(err)
	}
	if err := c.Start(); err != nil {
		u.Fatal(err)
	}
	printed, sent := "", false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		printed += lines.Text() + "\n"
		if goesOn && !sent && strings.Contains(printed, want) {
			_ = c.Process.Signal(os.Interrupt)
			sent = true
		}
	}
	if err := c.Wait(); err != nil || !strings.Contains(printed, want) {
		u.Errorf("%s with %q prints %q without %q: %v\n%s", language, get, printed, want, err,
			&failure)
	}
}
