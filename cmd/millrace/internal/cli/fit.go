package cli

import (
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
)

// columnGap is the space between two columns.
const columnGap = 2

// minText is what a narrow terminal leaves of a text, in characters.
const minText = 16

// laidColumn is a column with the cells of its items.
type laidColumn[T any] struct {
	Column[T]
	cells []string
	width int // what the widest cell, or the header, takes
}

// layOut returns the columns with their cells. On a terminal times are short.
func layOut[T any](t terminal, columns []Column[T], items []T) []laidColumn[T] {
	laid := make([]laidColumn[T], len(columns))
	for i, c := range columns {
		l := laidColumn[T]{Column: c, width: lipgloss.Width(c.Name)}
		for _, item := range items {
			cell := Printable(c.Get(item))
			if c.Time && !t.now.IsZero() {
				cell = shortTime(t.now, cell)
			}
			l.cells = append(l.cells, cell)
			l.width = max(l.width, lipgloss.Width(cell))
		}
		laid[i] = l
	}
	return laid
}

// header is the name of the column above its cells.
func (l laidColumn[T]) header() string { return strings.ToUpper(l.Name) }

// cell returns the cell of an item, cut to the width of the column.
func (l laidColumn[T]) cell(item int) string {
	text := l.cells[item]
	if lipgloss.Width(text) <= l.width {
		return text
	}
	return lipgloss.NewStyle().MaxWidth(l.width-1).Render(text) + "…"
}

// isEmpty reports whether there are items and none has any text here.
func (l laidColumn[T]) isEmpty() bool {
	return len(l.cells) > 0 && !slices.ContainsFunc(l.cells, func(c string) bool { return c != "" })
}

// minWidth is the width that the column can shrink to. Texts alone shrink, and never below the
// header.
func (l laidColumn[T]) minWidth() int {
	if !l.Text {
		return l.width
	}
	return min(l.width, max(minText, lipgloss.Width(l.Name)))
}

// fit makes a table as narrow as a terminal, 0 for one without end. Columns without any text go
// first and texts shrink; where that is not enough, columns are left out from the right, texts
// after all others, and their names are returned. Columns to keep stay, even if lines then get too
// long.
func fit[T any](width int, columns []laidColumn[T]) (fitting []laidColumn[T], omitted []string) {
	total := func(of func(laidColumn[T]) int) int {
		sum := columnGap * (len(columns) - 1)
		for _, c := range columns {
			sum += of(c)
		}
		return sum
	}
	natural := func(c laidColumn[T]) int { return c.width }
	if width == 0 || total(natural) <= width {
		return columns, nil
	}
	columns = slices.DeleteFunc(columns, func(c laidColumn[T]) bool {
		return !c.Keep && c.isEmpty()
	})
	for _, texts := range []bool{false, true} {
		for i := len(columns) - 1; i >= 0 && total(laidColumn[T].minWidth) > width; i-- {
			if c := columns[i]; !c.Keep && c.Text == texts {
				omitted = append(omitted, c.Name)
				columns = slices.Delete(columns, i, i+1)
			}
		}
	}
	slices.Reverse(omitted)
	shrinkTexts(columns, total(natural)-width)
	return columns, omitted
}

// shrinkTexts cuts texts until they fit, the widest first.
func shrinkTexts[T any](columns []laidColumn[T], tooMuch int) {
	for ; tooMuch > 0; tooMuch-- {
		widest := -1
		for i, c := range columns {
			canShrink := c.width > c.minWidth()
			if canShrink && (widest < 0 || c.width > columns[widest].width) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		columns[widest].width--
	}
}

// shortTime writes a time of [FormatTime] as the time that has passed, or is still to come.
func shortTime(now time.Time, text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	if ago := now.Sub(at); ago >= 0 {
		return FormatAge(ago) + " ago"
	}
	return "in " + FormatAge(at.Sub(now))
}
