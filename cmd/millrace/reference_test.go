package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// update writes docs/reference instead of comparing with it:
//
//	go test ./cmd/millrace -run TestReference -update
var update = flag.Bool("update", false, "write docs/reference")

// checkReference compares a page of docs/reference with what the code says.
func checkReference(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "reference", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == text {
		return
	}
	have, want := strings.Split(string(got), "\n"), strings.Split(text, "\n")
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i] != want[i] {
			t.Fatalf("docs/reference/%s differs from the code from line %d on; go test "+
				"./cmd/millrace -run TestReference -update writes it:\n%s", name, i+1,
				strings.Join(want[min(i, len(want)):min(i+3, len(want))], "\n"))
		}
	}
}

// page builds a page in Markdown.
type page struct{ strings.Builder }

// line adds a line.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// row adds a row of a table, in whose cells a bar is escaped.
func (p *page) row(cells ...string) {
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(cells[i], "|", `\|`), "\n", " ")
	}
	p.line("| %s |", strings.Join(cells, " | "))
}

// table begins a table with these headings.
func (p *page) table(headings ...string) {
	p.line("")
	p.row(headings...)
	p.line("|%s", strings.Repeat(" --- |", len(headings)))
}

// code marks a text as code; "" stays "".
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
