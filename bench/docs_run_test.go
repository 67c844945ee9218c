package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMain removes the binary that the tests have built.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := millrace.remove(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// smaller are flags behind those of a command of the page, so that it ends in seconds: the last of
// several counts. Where a flag needs a folder, OUT is one of the test.
var smaller = map[string]string{
	"":       "-n 200 -warmup 20 -rounds 1 -clients 8 -timeout 2m -max-time 8m",
	"counts": "-batch 10 -rounds 1",
	"sizes":  "-n 100 -clients 4",
	"nodes":  "-nodes 1,2 -n 200 -clients 4 -rounds 1",
	"curves": "-n 200 -max 200 -clients 8 -rounds 1 -out OUT -timeout 2m -max-time 5m",
	"ageing": "-out OUT -rate 40 -batch 1 -clients 4 -backlog 10 -time 900ms -every 300ms " +
		"-hold-from 300ms -keep 0s",
	"admin": "-n 2000 -rate 40 -clients 4 -rounds 1 -past 20s -warm 0s -time 2m",
	"watchers": "-n 2000 -load 40 -rate 40 -clients 4 -consoles 6 -events 3 -rounds 1 -time 100ms " +
		"-past 20s",
	"webhooks":    "-n 200 -clients 4 -rounds 1",
	"submissions": "-n 100 -clients 4 -rounds 1 -rate 20 -time 500ms",
	"idle":        "-settle 0s -time 1s",
	"pair":        "-n 200 -warmup 20 -rounds 1 -timeout 1m -max-time 5m",
}

// alone are flags without a value.
var alone = []string{"list", "full", "contracts", "nats"}

// commandOfThePage is a command of the page: the subcommand, or "", its flags, and the rest.
type commandOfThePage struct {
	name        string
	flags, rest []string
}

// readCommand reads the arguments of a command. An ellipsis stands for what the reader has.
func readCommand(text string) (c commandOfThePage) {
	args := strings.Fields(strings.NewReplacer("'", "", " case …", " floor-sqlite", "-other …",
		"-other .", "…", "").Replace(text + " "))
	if len(args) > 0 && commands[args[0]] != nil {
		c.name, args = args[0], args[1:]
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		n := 2
		if name := strings.TrimLeft(args[0], "-"); slices.Contains(alone, name) {
			n = 1
			if name == "full" { // -max is in its place
				args = args[1:]
				continue
			}
		}
		c.flags, args = append(c.flags, args[:n]...), args[n:]
	}
	c.rest = args
	return c
}

// bounded returns the arguments of a command with what makes it small, in the folder out.
func (c commandOfThePage) bounded(out string) (args []string) {
	if c.name != "" {
		args = append(args, c.name)
	}
	for i, word := range c.flags {
		switch {
		case i > 0 && slices.Contains([]string{"--json", "-latency"}, c.flags[i-1]):
			word = filepath.Join(out, filepath.Base(word))
		case i > 0 && c.flags[i-1] == "-other":
			word = "."
		}
		args = append(args, word)
	}
	args = append(args, strings.Fields(strings.ReplaceAll(smaller[c.name], "OUT", out))...)
	if c.name == "curves" && slices.Equal(c.rest, []string{"backlog"}) {
		args = append(args, "-max", "1000") // which is its smallest size
	}
	if c.name == "ageing" && !strings.Contains(fmt.Sprint(c.flags), "-hold-to 0") {
		args = append(args, "-hold-to", "600ms")
	}
	if c.name == "ageing" || c.name == "sizes" || c.name == "nodes" {
		// The user postgres has no way into folders of the test.
		return append(append(args, "-dir", os.TempDir()), c.rest...)
	}
	return append(append(args, "-dir", out), c.rest...)
}

// difference is what two commands differ in beyond numbers and names of files.
func (c commandOfThePage) difference() string {
	text := fmt.Sprint(c.name, c.rest)
	for _, flag := range c.flags {
		name := strings.TrimLeft(flag, "-")
		if slices.Contains([]string{"list", "latency", "hold-to", "on", "only", "ref"}, name) {
			text += " " + name
		}
	}
	return text
}

// TestRunsOfThePages runs the commands of bench/README.md, and those in the text of documents, with
// few jobs, several at a time, as nothing is measured. What several of them say with other numbers
// alone is run once, and one that is for all cases runs those that no other command has. COMMIT and
// FOLDER are a reader's: pair compares this tree with itself.
func TestRunsOfThePages(t *testing.T) {
	others := map[string]bool{} // the cases that no command names
	for _, c := range cases {
		others[c.Name] = true
	}
	all := append(commandsOfThePage(t), commandsInText(t)...)
	for _, c := range all {
		for _, name := range c.rest {
			delete(others, name)
		}
	}
	ran := map[string]bool{}
	for _, c := range all {
		if c.name == "" && len(c.rest) == 0 {
			for _, one := range cases {
				if others[one.Name] {
					c.rest = append(c.rest, one.Name)
				}
			}
		}
		if ran[c.difference()] {
			continue
		}
		ran[c.difference()] = true
		args := c.bounded(t.TempDir())
		t.Run(strings.Join(append([]string{c.name}, c.rest...), " "), func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), args, &stdout, &stderr); code != 0 || stdout.Len() == 0 {
				t.Errorf("%q: exit code %d: %s\n%s", args, code, &stderr, &stdout)
			}
		})
	}
	if len(ran) < 50 {
		t.Errorf("the pages have %d commands that differ", len(ran))
	}
}

// commandsOfThePage are the runs in the blocks of bench/README.md. It checks the other lines.
func commandsOfThePage(t *testing.T) (all []commandOfThePage) {
	t.Helper()
	page, err := os.ReadFile("../bench/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	for _, one := range block.FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(one[1]) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimSpace(line)
			words, isRun := strings.CutPrefix(line+" ", "go run . ")
			if !isRun {
				checkOther(t, line)
				continue
			}
			all = append(all, readCommand(words))
		}
	}
	return all
}

// commandsInText are the runs in the text of documents, with the figures that they gave.
func commandsInText(t *testing.T) (all []commandOfThePage) {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	span := regexp.MustCompile("`(?:cd\\s+bench\\s+&&\\s+)?go\\s+run\\s+\\.\\s+([^`]+)`")
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range span.FindAllStringSubmatch(string(page), -1) {
			all = append(all, readCommand(found[1]))
		}
	}
	return all
}

// checkOther carries out a line of the page that is no run of this program, or says that it is one
// that no test can.
func checkOther(t *testing.T, line string) {
	t.Helper()
	switch {
	case line == "cd bench", line == "go test ./...": // which is where this test is
	case strings.HasPrefix(line, "git worktree add "): // COMMIT is the reader's
	case strings.HasPrefix(line, "(cd .. && go test -run xxx -bench "):
		command := strings.Replace(line, " -bench ", " -benchtime 1x -bench ", 1)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "BenchmarkDownloads") {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	default:
		t.Errorf("no test runs %q", line)
	}
}
