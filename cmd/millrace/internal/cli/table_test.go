package cli

import (
	"strings"
	"testing"
)

type row struct{ name, number, text string }

var rowColumns = []Column[row]{
	{Name: "name", Get: func(r row) string { return r.name },
		Tone: func(r row) Tone { return ToneBad }},
	{Name: "number", Right: true, Get: func(r row) string { return r.number }},
	{Name: "text", Get: func(r row) string { return r.text }},
}

// TestTable draws tables as pipes and terminals get them (CL-002): nothing is cut or coloured but
// on a terminal, and no text of others gets beyond its cell.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := []row{{"a", "1", "short"}, {"双幅", "1000", strings.Repeat("long ", 30)},
		{"\x1b[31m\u202e", "22", "two\nlines"}}
	draw := func(to terminal, rows ...row) []string {
		var b strings.Builder
		if err := writeTable(&b, to, rowColumns, rows); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	want := []string{
		`NAME              NUMBER  TEXT`,
		`a                      1  short`,
		`双幅                1000  ` + strings.TrimSpace(rows[1].text),
		`"\x1b[31m\u202e"      22  "two\nlines"`}
	got := draw(terminal{}, rows...)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := draw(terminal{}); len(got) != 1 || got[0] != "NAME  NUMBER  TEXT" {
		t.Errorf("without rows: %q", got)
	}
	narrow := draw(terminal{width: 40}, rows...)
	for _, line := range narrow {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns of 40: %s", n, line)
		}
	}
	if len(narrow) != 4 || !strings.HasSuffix(narrow[2], "…") {
		t.Errorf("cut to 40 columns: %q", narrow)
	}
	empty := row{name: strings.Repeat("n", 32), text: "text"}
	if got := draw(terminal{width: 40}, empty); len(got) != 2 || got[1] != empty.name+"  text" {
		t.Errorf("an empty column is not left out: %q", got)
	}
	if coloured := draw(terminal{colour: true}, rows[0]); !strings.Contains(coloured[1], "\x1b[31m") {
		t.Errorf("no colour on a terminal: %q", coloured)
	}
}
