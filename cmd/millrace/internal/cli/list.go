package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/setting"
)

// maxPage is how many items the server answers in one page at most.
const maxPage = 500

// Column is a column of a table, or a line of what [Show] prints.
type Column[T any] struct {
	// Name is in lower case, that of the member in JSON where there is one.
	Name string
	// Get returns the text of an item's cell.
	Get func(T) string
	// Right aligns the cells to the right, as is usual for numbers.
	Right bool
	// Extra columns are printed only where --columns names them.
	Extra bool
	// Keep is for columns that identify the item, such as its name or id, and those without which
	// the list says little: a terminal shows them in full, however narrow it is.
	Keep bool
	// Text is for columns of long texts, which a narrow terminal cuts.
	Text bool
	// Time is for columns of times of [FormatTime], which a terminal shows as ages.
	Time bool
	// Tone colours the cell on a terminal; nil for no colour.
	Tone func(T) Tone
}

// List is a command that prints a list (CL-002).
type List[T any] struct {
	Columns []Column[T]
	// Items returns the items that the command's flags select. It is called for each repetition
	// with --watch. pageSize is how many items one request should read.
	Items func(ctx context.Context, server *client.Admin, pageSize int) iter.Seq2[T, error]
	// Check looks at the command's flags before anything is sent; nil if there is nothing to check.
	// Its error is one of the command line.
	Check func() error
	// Hint is a line of standard error below a table on a terminal; empty for none.
	Hint string
	// Empty returns a line of standard error for a list without items, empty for none; nil where
	// there is nothing to say.
	Empty func(ctx context.Context, server *client.Admin) string
	// Elsewhere returns a line of standard error below an empty table, which says where else there
	// is something to see, empty for nowhere; nil where there is nothing to say. It is not written
	// beside JSON, whose readers ask for what they want.
	Elsewhere func(ctx context.Context, server *client.Admin) string
}

// listFlags are the flags of all lists.
type listFlags struct {
	limit   int
	columns []string
	asJSON  bool
	asLines bool
	watch   time.Duration
}

// Command completes c, which has its name, help and flags of its own. Without Args it takes no
// arguments.
func (l List[T]) Command(p Process, operator *Operator, c *cobra.Command) *cobra.Command {
	var f listFlags
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return l.run(p, c, operator, &f) }
	operator.Register(c)
	c.Flags().IntVar(&f.limit, "limit", 50, "print this many at most; 0 prints all")
	c.Flags().StringSliceVar(&f.columns, "columns", nil, "the `names` of the table's columns, "+
		"with commas: "+strings.Join(columnNames(l.Columns), ", "))
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON array")
	c.Flags().BoolVar(&f.asLines, "jsonl", false, "print a JSON object on each line")
	registerWatch(c, &f.watch)
	CompleteWords(c, "columns", columnNames(l.Columns)...)
	operator.complete(p, c)
	c.MarkFlagsMutuallyExclusive("json", "jsonl", "columns")
	return c
}

// run prints the list, with --watch until a signal.
func (l List[T]) run(p Process, c *cobra.Command, operator *Operator, f *listFlags) error {
	columns, err := selectColumns(l.Columns, f.columns)
	switch {
	case err != nil:
		return WithCode(ExitUsage, err)
	case f.limit < 0:
		return UsageError("--limit must not be below 0")
	case l.Check != nil:
		if err := l.Check(); err != nil {
			return orUsage(err)
		}
	}
	return repeat(p, c, operator, f.watch,
		func(ctx context.Context, server *client.Admin, w io.Writer) error {
			size := maxPage
			if f.limit > 0 {
				size = min(f.limit+1, maxPage) // one more shows whether there are more
			}
			p := p
			if f.watch > 0 && IsTerminal(p.Stdout) {
				p.Stderr = w // the next page would overwrite what is written beside it
			}
			items, more := first(f.limit, l.Items(ctx, server, size))
			isEmpty := true
			err := l.print(p, f, columns, watched(items, &isEmpty), w)
			if isEmpty {
				l.explainEmpty(ctx, p, server, f)
			}
			if *more {
				fmt.Fprintln(p.Stderr, "millrace: there is more; --limit 0 prints all")
			}
			return err
		})
}

// explainEmpty writes what there is to say about a list without items: one line at most.
func (l List[T]) explainEmpty(ctx context.Context, p Process, server *client.Admin, f *listFlags) {
	text := ""
	if l.Empty != nil {
		text = l.Empty(ctx, server)
	}
	if text == "" && l.Elsewhere != nil && !f.asJSON && !f.asLines {
		text = l.Elsewhere(ctx, server)
	}
	if text != "" {
		fmt.Fprintln(p.Stderr, "millrace: "+text)
	}
}

// print prints the items in the form that the flags ask for.
func (l List[T]) print(p Process, f *listFlags, columns []Column[T], items iter.Seq2[T, error],
	w io.Writer) error {
	list := []T{}
	for item, err := range items {
		switch {
		case err != nil:
			return err
		case f.asLines:
			if err := writeLine(w, item); err != nil {
				return err
			}
		default:
			list = append(list, item)
		}
	}
	switch {
	case f.asLines:
		return nil
	case f.asJSON:
		return writeLine(w, list)
	}
	left, err := writeTable(w, terminalOf(p), columns, list)
	if len(left) > 0 {
		fmt.Fprintf(p.Stderr, "millrace: the terminal is too narrow for %s; --columns shows them\n",
			strings.Join(left, ", "))
	}
	if l.Hint != "" && len(list) > 0 && IsTerminal(p.Stdout) {
		fmt.Fprintln(p.Stderr, "millrace: "+l.Hint)
	}
	return err
}

// watched yields the items of a list and notes that there is one.
func watched[T any](all iter.Seq2[T, error], isEmpty *bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range all {
			*isEmpty = false // or there is an error
			if !yield(item, err) {
				return
			}
		}
	}
}

// first yields the first n items of a list, or all of them for 0, and says at the end whether there
// are more.
func first[T any](n int, all iter.Seq2[T, error]) (items iter.Seq2[T, error], more *bool) {
	more = new(bool)
	return func(yield func(T, error) bool) {
		count := 0
		for item, err := range all {
			if n > 0 && count == n {
				*more = true
				return
			}
			count++
			if !yield(item, err) {
				return
			}
		}
	}, more
}

// columnNames returns the names of columns.
func columnNames[T any](columns []Column[T]) []string {
	var names []string
	for _, c := range columns {
		names = append(names, c.Name)
	}
	return names
}

// selectColumns returns the columns that --columns names, which are all to keep, or without it
// those that are not extra.
func selectColumns[T any](columns []Column[T], names []string) ([]Column[T], error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(columns),
			func(c Column[T]) bool { return c.Extra }), nil
	}
	var all []Column[T]
	for _, name := range names {
		name = strings.TrimSpace(name)
		at := slices.IndexFunc(columns, func(c Column[T]) bool { return c.Name == name })
		if at < 0 {
			known := columnNames(columns)
			if similar, ok := setting.Closest(name, known); ok {
				return nil, fmt.Errorf("--columns: there is no column %q; did you mean %q?", name,
					similar)
			}
			return nil, fmt.Errorf("--columns: there is no column %q; there are %s", name,
				strings.Join(known, ", "))
		}
		column := columns[at]
		column.Keep = true
		all = append(all, column)
	}
	return all, nil
}

// writeLine writes a value as one line of JSON. An error is one of the output.
func writeLine(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return WithCode(ExitFailed, enc.Encode(value))
}
