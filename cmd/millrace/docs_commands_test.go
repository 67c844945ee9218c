package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var shellBlocks = regexp.MustCompile("(?s)```sh\n(.*?)```")

// documents are the pages for users and the requirements of the contracts, with their text, by
// their paths in the repository. Tests of internal/arch have the decisions.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root, texts := filepath.Join("..", ".."), map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/contracts/*.md",
		"docs/reference/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(name)] = string(text)
		}
	}
	return texts
}

// Commands of the documents are written one way, and what they use is made before they use it.
func TestCommandsOfTheDocs(t *testing.T) {
	t.Parallel()
	made := map[string]*regexp.Regexp{ // what a command uses, and how a page makes it
		"graph.json": regexp.MustCompile(`cat > graph\.json`),
		"load.sh":    regexp.MustCompile(`cat > load\.sh`),
		"photo.jpg":  regexp.MustCompile(`cp [^ ]+ photo\.jpg`),
		"photo.png":  regexp.MustCompile(`cp [^ ]+ photo\.png`),
		"$KEY":       regexp.MustCompile(`\bKEY=`),
		"$CLIENT":    regexp.MustCompile(`\bCLIENT=`),
		"$JOBS":      regexp.MustCompile(`\bJOBS=`),
	}
	for name, text := range documents(t) {
		if name == "docs/start.md" { // whose first commands need no PATH
			text = strings.ReplaceAll(text, "\n./millrace serve\n", "\n")
		}
		if at := strings.Index(text, "./millrace "); at >= 0 && text[at-1] != '.' {
			t.Errorf("%s: a command is written %q", name, text[at:at+20])
		}
		before := ""
		for _, block := range shellBlocks.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				for used, how := range made {
					if strings.Contains(line, used) && !how.MatchString(before+line) {
						t.Errorf("%s uses %s and does not make it: %s", name, used, line)
					}
				}
				before += line
			}
		}
	}
	if !strings.Contains(documents(t)["README.md"], `export PATH="$PWD:$PATH"`) {
		t.Error("the README does not say how millrace is put on the path")
	}
	for _, file := range regexp.MustCompile(`cp (internal/\S+) photo`).FindAllStringSubmatch(
		documents(t)["docs/images.md"], -1) {
		if _, err := os.Stat(filepath.Join("../..", file[1])); err != nil {
			t.Error(err)
		}
	}
}

// The graph and the command of docs/taskflow.md work together as they are.
func TestGraphOfTheDocs(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=taskflow")
	dir, script := t.TempDir(), "set -e\n"
	for _, block := range shellBlocks.FindAllStringSubmatch(documents(t)["docs/taskflow.md"], -1) {
		if strings.Contains(block[1], "cat > graph.json") ||
			strings.Contains(block[1], "cat > load.sh") {
			// for its worker, which the page has in another terminal
			script += strings.ReplaceAll(block[1], "--wait ", "")
		}
	}
	script = strings.Replace(script, "--concurrency 4", "--concurrency 4 --max-jobs 2", 1)
	c := exec.Command("sh", "-c", script)
	c.Dir, c.Env = dir, append(os.Environ(), "MILLRACE_SERVER="+s.url)
	hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
	defer hang.Stop()
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `got {"from":"a"}, attempt 1`) {
		t.Errorf("%v: %s", err, out)
	}
}

// The commands of docs/forgerun.md work together as they are: a worker runs the job of the client
// on a server without workers.
func TestForgeRunOfTheDocs(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/forgerun.md"]
	flag := "--no-workers"
	if !strings.Contains(page, "`millrace serve "+flag+"`") {
		t.Fatal("the page does not say how the server is started for a worker")
	}
	s := launchNode(t, "data", "--set", "contracts=forgerun", flag)
	script := "set -e\n"
	for _, block := range shellBlocks.FindAllStringSubmatch(page, -1) {
		if strings.Contains(block[1], "CLIENT=") || strings.Contains(block[1], "millrace work") {
			script += block[1]
		}
	}
	const report = "sleep 2; curl -s localhost:8080/v1/jobs/$JOB/report" // comes after the worker
	if strings.Count(script, report) != 1 {
		t.Fatalf("the page does not read the report once: %s", script)
	}
	script = strings.Replace(script, report, "curl -s localhost:8080/v1/jobs/$JOB", 1)
	script = strings.Replace(script, "--contract", "--max-jobs 1 --contract", 1) +
		`curl -s localhost:8080/v1/jobs/$JOB/report -H "Authorization: Bearer $KEY"`
	c := exec.Command("sh", "-c", strings.ReplaceAll(script, "localhost:8080",
		strings.TrimPrefix(s.url, "http://")))
	c.Env = append(os.Environ(), "MILLRACE_SERVER="+s.url)
	hang := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
	defer hang.Stop()
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"outcome":"SUCCESS"`) {
		t.Errorf("%v: %s", err, out)
	}
}
