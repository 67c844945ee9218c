package cli

import (
	"strings"
	"testing"
	"time"
)

type row struct{ name, number, text, at string }

var rowColumns = []Column[row]{
	{Name: "name", Keep: true, Get: func(r row) string { return r.name },
		Tone: func(r row) Tone { return ToneBad }},
	{Name: "number", Right: true, Get: func(r row) string { return r.number }},
	{Name: "text", Text: true, Get: func(r row) string { return r.text }},
}

// TestTable draws tables as pipes and terminals get them (CL-002): nothing is cut or coloured but
// on a terminal, and no text of others gets beyond its cell.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := []row{{name: "a", number: "1", text: "short"},
		{name: "双幅", number: "1000", text: strings.Repeat("long ", 30)},
		{name: "\x1b[31m\u202e", number: "22", text: "two\nlines"}}
	draw := func(to terminal, rows ...row) []string {
		var b strings.Builder
		if _, err := writeTable(&b, to, rowColumns, rows); err != nil {
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
	narrow := draw(terminal{width: 44}, rows...)
	for _, line := range narrow {
		if n := len([]rune(line)); n > 44 {
			t.Errorf("%d columns of 44: %s", n, line)
		}
	}
	if len(narrow) != 4 || !strings.HasSuffix(narrow[2], "…") {
		t.Errorf("cut to 44 columns: %q", narrow)
	}
	empty := row{name: strings.Repeat("n", 32), text: "text"}
	if got := draw(terminal{width: 40}, empty); len(got) != 2 || got[1] != empty.name+"  text" {
		t.Errorf("an empty column is not left out: %q", got)
	}
	if coloured := draw(terminal{colour: true}, rows[0]); !strings.Contains(coloured[1], "\x1b[31m") {
		t.Errorf("no colour on a terminal: %q", coloured)
	}
}

// TestTableFits narrows a table (CL-002): texts shrink, then other columns are left out from the
// right and named, and what identifies is whole on a terminal of any width.
func TestTableFits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	columns := []Column[row]{rowColumns[0],
		{Name: "at", Time: true, Get: func(r row) string { return r.at }}, rowColumns[1],
		rowColumns[2]}
	items := []row{
		{"taskflow/mail", "17", "connection refused by mail.example.com", "2026-03-01T11:51:46Z"},
		{"relay/in", "4", "too late", "2026-03-01T13:30:00Z"}}
	for _, c := range []struct {
		width       int
		now         time.Time
		left, table string
	}{
		{0, time.Time{}, "", `
NAME           AT                    NUMBER  TEXT
taskflow/mail  2026-03-01T11:51:46Z      17  connection refused by mail.example.com
relay/in       2026-03-01T13:30:00Z       4  too late
`},
		{60, now, "", `
NAME           AT         NUMBER  TEXT
taskflow/mail  8m14s ago      17  connection refused by mai…
relay/in       in 1h30m        4  too late
`},
		{44, now, "number", `
NAME           AT         TEXT
taskflow/mail  8m14s ago  connection refuse…
relay/in       in 1h30m   too late
`},
		{31, now, "at, number", `
NAME           TEXT
taskflow/mail  connection refu…
relay/in       too late
`},
		{5, now, "text, at, number", `
NAME
taskflow/mail
relay/in
`},
	} {
		var b strings.Builder
		b.WriteString("\n")
		left, err := writeTable(&b, terminal{width: c.width, now: c.now}, columns, items)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(left, ", "); b.String() != c.table || got != c.left {
			t.Errorf("width %d: without %q%s\nwant without %q%s", c.width, got, b.String(), c.left,
				c.table)
		}
	}
	chosen, err := selectColumns(columns, []string{"at", "number", "name"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	left, err := writeTable(&b, terminal{width: 5}, chosen, items)
	if err != nil || len(left) > 0 || !strings.Contains(b.String(), "\n2026-03-01T11:51:46Z ") {
		t.Errorf("columns that were asked for: %v, without %q\n%s", err, left, b.String())
	}
}
