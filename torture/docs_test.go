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
	commands := commandsOf(string(text))
	if len(commands) < 100 {
		t.Fatalf("the pages have %d commands", len(commands))
	}
	for _, arguments := range commands {
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

var (
	wholeCommand = regexp.MustCompile(
		`go run \./torture ((?:-[a-z0-9]+ ?(?:[a-zA-Z0-9][a-zA-Z0-9.-]* ?)?)+)`)
	flagsInText = regexp.MustCompile("`(?:go run \\./torture )?(-[^`]+)`")
	rowOfTable  = regexp.MustCompile(`(?m)^\|.*\|$`)
	blockOfPage = regexp.MustCompile("(?ms)^```.*?^```$")
)

// commandsOf returns the flags of each command of torture on a page: those behind its name, those
// of a span of the text that has a seed, a bug or several flags, and in a row of a table those of
// the first cell together with those of each other one. A span with one other flag alone describes
// that flag and is no command.
func commandsOf(page string) (all []string) {
	// Commands in the text are broken into lines.
	inOneLine := strings.Join(strings.Fields(regexp.MustCompile(`(?m) #.*$`).ReplaceAllString(
		page, " ;")), " ")
	for _, found := range wholeCommand.FindAllStringSubmatch(inOneLine, -1) {
		all = append(all, found[1])
	}
	page = blockOfPage.ReplaceAllString(page, "")
	for _, row := range rowOfTable.FindAllString(page, -1) {
		first, others, _ := strings.Cut(row[1:], "|")
		head := ""
		if found := flagsInText.FindStringSubmatch(first); found != nil {
			head = found[1] + " "
		}
		cells := flagsInText.FindAllStringSubmatch(others, -1)
		for _, found := range cells {
			all = append(all, head+found[1])
		}
		if head != "" && len(cells) == 0 {
			all = append(all, head)
		}
	}
	text := strings.Join(strings.Fields(rowOfTable.ReplaceAllString(page, "")), " ")
	for _, found := range flagsInText.FindAllStringSubmatch(text, -1) {
		named := strings.HasPrefix(found[1], "-seed ") || strings.HasPrefix(found[1], "-bug ")
		if named || strings.Count(found[1], " -") > 0 {
			all = append(all, found[1])
		}
	}
	return all
}
