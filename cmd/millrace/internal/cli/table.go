package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"golang.org/x/term"
)

// Tone is what the colour of a cell says.
type Tone int

// The tones of cells. ToneNone is no colour.
const (
	ToneNone Tone = iota
	ToneGood
	ToneWarn
	ToneBad
)

// terminal says how a table is drawn. The zero value is for a file or pipe: no colour, and
// nothing is cut or shortened.
type terminal struct {
	width  int // 0 is without end
	colour bool
	now    time.Time // zero where times are written in full
}

// terminalOf returns what standard output is. NO_COLOR, with any value, takes the colours away.
func terminalOf(p Process) terminal {
	if !IsTerminal(p.Stdout) {
		return terminal{}
	}
	width, _, err := term.GetSize(int(p.Stdout.(*os.File).Fd()))
	if err != nil {
		width = 0
	}
	return terminal{width: width, now: p.Now(),
		colour: p.Env("NO_COLOR") == "" && p.Env("TERM") != "dumb"}
}

// style returns how a cell looks.
func (t terminal) style(tone Tone) lipgloss.Style {
	s := lipgloss.NewStyle()
	if !t.colour {
		return s
	}
	switch tone {
	case ToneGood:
		return s.Foreground(lipgloss.Green)
	case ToneWarn:
		return s.Foreground(lipgloss.Yellow)
	case ToneBad:
		return s.Foreground(lipgloss.Red)
	}
	return s
}

// writeTable writes a line for each item below the names of the columns. On a terminal it is made
// to fit as [fit] says, and returns the names of the columns that were left out. A cell is one
// line, whatever its text holds.
func writeTable[T any](w io.Writer, t terminal, columns []Column[T], items []T) ([]string, error) {
	shown, left := fit(t.width, layOut(t, columns, items))
	return left, writeText(w, drawTable(t, shown, items).Render())
}

// drawTable makes the table.
func drawTable[T any](t terminal, columns []laidColumn[T], items []T) *table.Table {
	headers := make([]string, len(columns))
	for i, c := range columns {
		headers[i] = c.header()
	}
	drawn := table.New().Headers(headers...).Wrap(false).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderColumn(false).BorderHeader(false).
		StyleFunc(func(row, column int) lipgloss.Style {
			s := t.style(ToneNone)
			if row >= 0 && columns[column].Tone != nil {
				s = t.style(columns[column].Tone(items[row]))
			}
			if row == table.HeaderRow {
				s = s.Bold(t.colour)
			}
			if columns[column].Right {
				s = s.Align(lipgloss.Right)
			}
			if column < len(columns)-1 {
				s = s.PaddingRight(2)
			}
			return s
		})
	for i := range items {
		row := make([]string, len(columns))
		for j, c := range columns {
			row[j] = c.cell(i)
		}
		drawn.Row(row...)
	}
	return drawn
}

// writeMembers writes a line for each column: its name and the text of the thing. Columns whose
// text is empty are left out.
func writeMembers[T any](w io.Writer, t terminal, columns []Column[T], thing T) error {
	type member struct{ name, text string }
	var members []member
	for _, c := range columns {
		if text := c.Get(thing); text != "" {
			members = append(members, member{c.Name, text})
		}
	}
	names := 0
	for _, m := range members {
		names = max(names, len(m.name))
	}
	text := ""
	for _, m := range members {
		text += fmt.Sprintf("%-*s  %s\n", names, m.name, Printable(m.text))
	}
	return writeText(w, text)
}

// writeText writes text without the spaces at the ends of its lines, and a newline. An error is one
// of the output.
func writeText(w io.Writer, text string) error {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return WithCode(ExitFailed, err)
}
