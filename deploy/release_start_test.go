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
	environ []string // of the first terminal
	address string   // of the server
}

// startPrograms are how programs of docs/start.md are saved and run, by their language on the page.
var startPrograms = map[string][2]string{
	"**Python**\n\n```python\n": {"program.py", "python3 program.py"},
	"**TypeScript**\n\n```js\n": {"program.mjs", "node program.mjs"},
}

// checkStart follows docs/start.md as somebody does who has Python and Node.js, but neither Go nor
// the repository: it starts the server, installs the clients, and runs the programs of each
// contract.
func checkStart(t *testing.T, out string) {
	t.Helper()
	page := mustRead(t, "../docs/start.md")
	_, section, found := strings.Cut(page, "\n### With a release\n")
	section, rest, hasNext := strings.Cut(section, "\n### ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if !found || !hasNext || len(blocks) != 3 {
		t.Fatalf("the section about releases has %d blocks, want 3", len(blocks))
	}
	u := &newUser{T: t, dir: t.TempDir()}
	for _, name := range regexp.MustCompile(`millrace[-_]1\.2\.3\S*\.(?:tar\.gz|tgz|whl)`).FindAllString(
		section, -1) {
		text := mustRead(t, filepath.Join(out, name))
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.serve(blocks[0][1])
	// The commands change the PATH of the terminal, in which the programs are run then.
	text := mustShell(t, u.dir, blocks[1][1]+"printf '\\n%s' \"$PATH\"", u.environ...)
	path := text[strings.LastIndex(text, "\n")+1:]
	if !strings.HasPrefix(path, filepath.Join(u.dir, "venv", "bin")+":") {
		t.Fatalf("the PATH is %s", path)
	}
	mustShell(t, u.dir, blocks[2][1], u.environ...)
	programs := 0
	for _, part := range strings.Split(rest, "\n## ")[1:] {
		want := regexp.MustCompile("\nIt prints `(.+?)`").FindStringSubmatch(part)
		name, _, _ := strings.Cut(part, ":")
		for tab, how := range startPrograms {
			_, code, found := strings.Cut(part, "\n"+tab)
			if !found || want == nil {
				continue
			}
			if !strings.Contains(page, "`"+how[0]+"`") || !strings.Contains(page, "`"+how[1]+"`") {
				t.Errorf("the page does not run %s", how)
			}
			code, _, _ = strings.Cut(code, "```")
			u.run(path, name, code, want[1], how)
			programs++
		}
	}
	if programs != 10 {
		t.Errorf("%d programs were run, want five of Python and five of Node.js", programs)
	}
	if _, err := os.Stat(filepath.Join(u.dir, "millrace-data", "millrace.db")); err != nil {
		t.Error(err)
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
	before, found := strings.CutSuffix(commands, "millrace serve\n")
	if !found {
		u.Fatalf("the commands do not end with the server: %s", commands)
	}
	var output bytes.Buffer
	c := exec.Command("sh", "-ec", before+"exec millrace serve\n") // so that it is what is killed
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

// run saves a program in a file and runs it by a command until it ends, which prints want. The
// worker of Relay goes on, and is stopped as by Ctrl-C.
func (u *newUser) run(path, name, code, want string, how [2]string) {
	u.Helper()
	code = strings.ReplaceAll(code, "127.0.0.1:8080", u.address)
	if err := os.WriteFile(filepath.Join(u.dir, how[0]), []byte(code), 0o600); err != nil {
		u.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(u.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", "exec "+how[1])
	c.Dir, c.Env = u.dir, append(append(os.Environ(), u.environ...), "PATH="+path)
	var failure bytes.Buffer
	c.Stderr = &failure
	stdout, err := c.StdoutPipe()
	if err != nil {
		u.Fatal(err)
	}
	if err := c.Start(); err != nil {
		u.Fatal(err)
	}
	printed, goesOn := "", name == "Relay"
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		printed += lines.Text() + "\n"
		if goesOn && strings.Contains(printed, want) {
			_ = c.Process.Signal(os.Interrupt)
			goesOn = false
		}
	}
	if err := c.Wait(); err != nil || !strings.Contains(printed, want) {
		u.Errorf("%s prints %q without %q: %v\n%s", name, printed, want, err, &failure)
	}
}
