package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsOfThePage: each command of docs/reliability.md, and of this program on another page,
// is one that can be carried out, with faults, bugs and crash points that there are. NAME is a bug.
func TestCommandsOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages {
		other, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range regexp.MustCompile("`go run \\./torture[^`]*`").FindAll(other, -1) {
			text = append(append(text, '\n'), command...)
		}
	}
	page := strings.Join(strings.Fields(regexp.MustCompile(`(?m) #.*$`).ReplaceAllString(
		string(text), " ;")), " ") // commands in the text are broken into lines
	commands := regexp.MustCompile("`-seed ([^`]+)`|`-bug ([^`]+)`|"+
		"go run \\./torture ((?:-[a-z0-9]+ ?(?:[a-zA-Z0-9][a-zA-Z0-9.-]* ?)?)+)").FindAllStringSubmatch(page, -1)
	if len(commands) < 14 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for _, found := range commands {
		arguments := found[3]
		switch {
		case found[1] != "":
			arguments = "-seed " + found[1]
		case found[2] != "":
			arguments = "-bug " + found[2]
		}
		arguments = strings.Replace(arguments, "-bug NAME", "-bug unsynced", 1)
		p, _, err := readPlan(strings.Fields(arguments), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
		if p.Bug == "" {
			continue
		}
		if _, err := readBug(p.Bug); err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}
