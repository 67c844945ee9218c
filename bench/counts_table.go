package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// countedDatabase is a database with the columns of its table, and what prepares it for counts of a
// number of rounds.
type countedDatabase struct {
	name    string
	columns []costColumn
	setup   func(ctx context.Context, env *Env, rounds int) (countFunc, error)
}

// countFunc returns what the verbs cost jobs of a kind in batches of a size.
type countFunc func(ctx context.Context, kind jobKind, size int) ([]verbCost, error)

// costColumn is a figure with its heading and how many decimals it has.
type costColumn struct {
	figure   figure
	heading  string
	decimals int
}

var countedDatabases = []countedDatabase{
	{name: "SQLite", setup: setupSQLiteCounts, columns: []costColumn{
		{figInserted, "rows inserted", 2}, {figUpdated, "updated", 2}, {figDeleted, "deleted", 2},
		{figEntries, "index entries added", 2}, {figEntriesRemoved, "removed", 2},
		{figLog, "log bytes", 0}, {figAllocations, "allocations", 0}, {figHeap, "bytes", 0}}},
	{name: "PostgreSQL", setup: setupPostgresCounts, columns: []costColumn{
		{figInserted, "rows inserted", 2}, {figUpdated, "updated", 2}, {figHot, "of these HOT", 2},
		{figDeleted, "deleted", 2}, {figLocked, "locked", 2},
		{figEntries, "index entries added", 2}, {figLog, "WAL bytes", 0},
		{figAllocations, "allocations", 0}, {figHeap, "bytes", 0}}},
}

// writeTo counts all kinds of jobs in batches of these sizes and writes the table, in Markdown, and
// the statements of each kind.
func (db countedDatabase) writeTo(ctx context.Context, env *Env, sizes []int, rounds int,
	to io.Writer) error {
	count, err := db.setup(ctx, env, rounds)
	if err != nil {
		return err
	}
	var lines []costLine
	for _, kind := range jobKinds {
		for _, size := range sizes {
			fmt.Fprintf(env.Log, "%s, %s, batches of %d\n", db.name, kind.name, size)
			costs, err := count(ctx, kind, size)
			if err != nil {
				return fmt.Errorf("%s, batches of %d: %w", kind.name, size, err)
			}
			for _, c := range costs {
				lines = append(lines, costLine{kind.name, size, c})
			}
		}
	}
	return db.writeLines(to, lines)
}

// costLine is a line of a table.
type costLine struct {
	kind  string
	batch int
	verbCost
}

func (db countedDatabase) writeLines(to io.Writer, lines []costLine) error {
	fmt.Fprintf(to, "%s, for each job:\n\n", db.name)
	w := tabwriter.NewWriter(to, 0, 0, 0, ' ', 0)
	row := func(cells []string) {
		fmt.Fprintln(w, "| "+strings.Join(cells, "\t | ")+"\t |")
	}
	head := []string{"job", "batch", "verb", "statements in a transaction", "statements"}
	for _, c := range db.columns {
		head = append(head, c.heading)
	}
	row(head)
	row(slices.Repeat([]string{"---"}, len(head)))
	for _, l := range lines {
		cells := []string{l.kind, fmt.Sprint(l.batch), l.verb, number(l.inTransaction, 1),
			number(l.cost[figStatements], 3)}
		for _, c := range db.columns {
			cells = append(cells, number(l.cost[c.figure], c.decimals))
		}
		row(cells)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "\nStatements of a transaction on %s:\n\n%s\n", db.name,
		statementsOf(lines))
	return err
}

// number writes a figure with at most so many decimals, and none where all are zero. One that is
// not known is a dash.
func number(value float64, decimals int) string {
	if math.IsNaN(value) {
		return "-"
	}
	text := fmt.Sprintf("%.*f", decimals, value)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// statementsOf lists the statements of each kind of job and verb once for all sizes of batches that
// have the same.
func statementsOf(lines []costLine) string {
	var text strings.Builder
	written := map[string]bool{}
	for _, l := range lines {
		line := fmt.Sprintf("- %s, %s: %s\n", l.kind, l.verb, strings.Join(l.statements, ", "))
		if !written[line] {
			written[line] = true
			text.WriteString(line)
		}
	}
	return text.String()
}

// lastTransaction returns the statements from the last BEGIN on.
func lastTransaction(names []string) []string {
	for i := len(names) - 1; i >= 0; i-- {
		if strings.HasPrefix(names[i], "BEGIN") {
			return names[i:]
		}
	}
	return names
}
