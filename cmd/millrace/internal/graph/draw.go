// Package graph submits graphs of TaskFlow jobs and draws them as text.
//
//	●      extract   COMPLETED
//	├─╮
//	● │    measure   COMPLETED
//	│ ◐    pack      RUNNING
//	├─╯
//	○      publish   PENDING
//
// A drawing has a line for each job, dependencies above their dependents. On its left run lanes:
// one for each job further down that depends on a job above. A line below a job connects it to the
// lanes of its dependents.
package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// statusMarks are the characters that stand for a job. A status that this version does not have is
// drawn as "?".
var statusMarks = map[client.TaskFlowStatus]string{
	client.TaskFlowStatusPending: "○", client.TaskFlowStatusReady: "◎",
	client.TaskFlowStatusRunning:   "◐",
	client.TaskFlowStatusCompleted: "●", client.TaskFlowStatusFailed: "✗",
	client.TaskFlowStatusBlocked: "⊘",
}

// toASCII replaces the characters of a drawing for terminals without them. Each has one character
// in its place, so that columns stay aligned.
var toASCII = strings.NewReplacer("│", "|", "─", "-", "├", "+", "┤", "+", "┼", "+", "┬", "+", "┴", "+",
	"╭", "+", "╮", "+", "╰", "+", "╯", "+", "○", "o", "◎", "O", "◐", "@", "●", "*", "✗", "x", "⊘", "#")

// Draw returns the drawing of a graph. An arrow points at the job with the id; an empty id leaves
// it out. With ascii the drawing has ASCII characters only. Names and queues that could change the
// terminal are quoted.
//
// It makes all rows first, since the width of each column depends on all of them, and writes them
// afterwards. The same graph gives the same drawing, in whatever order its nodes come.
func Draw(g client.TaskFlowGraph, id string, ascii bool) string {
	nodes, next := orderNodes(g)
	rows := make([]row, 0, 2*len(nodes))
	var l lanes
	for i, node := range nodes {
		mark := cmp.Or(statusMarks[node.Status], "?")
		rows = append(rows, row{rails: l.pass(i, mark), node: &nodes[i]})
		if rails := l.connect(next[i]); rails != "" {
			rows = append(rows, row{rails: rails})
		}
	}
	width, names, queues := 0, 0, 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.rails))
		if row.node != nil {
			names = max(names, utf8.RuneCountInString(cli.Printable(row.node.Name)))
			queues = max(queues, utf8.RuneCountInString(cli.Printable(row.node.Queue)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		rails := row.rails
		if ascii {
			rails = toASCII.Replace(rails)
		}
		if row.node == nil {
			b.WriteString(rails + "\n")
			continue
		}
		line := fmt.Sprintf("%s  %s  %-9s  %s  %s", pad(rails, width),
			pad(cli.Printable(row.node.Name), names), row.node.Status,
			pad(cli.Printable(row.node.Queue), queues), row.node.ID)
		if n := row.node.FailedAttempts; n > 0 {
			line += fmt.Sprintf("  failed %d×", n)
		}
		if strings.EqualFold(row.node.ID, id) && len(nodes) > 1 {
			line += "  ←"
		}
		if ascii {
			line = strings.NewReplacer("×", "x", "←", "<-").Replace(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// row is one line of a drawing.
type row struct {
	// rails are the lanes, left of the job.
	rails string
	// node is nil for a line between jobs.
	node *client.TaskFlowGraphJob
}

// pad fills a text with spaces up to a width in characters.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
}

// orderNodes returns the nodes in an order in which dependencies come before their dependents, and
// for each node the positions of its dependents in that order. Edges that lead out of a truncated
// graph are left out. Nodes of a dependency cycle, which no server sends, would come last.
//
// Nodes are sorted by name first, and by id where names are equal: of several possible orders it
// chooses the same each time.
func orderNodes(g client.TaskFlowGraph) (ordered []client.TaskFlowGraphJob, next [][]int) {
	all := slices.Clone(g.Jobs)
	slices.SortStableFunc(all, func(a, b client.TaskFlowGraphJob) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	index := map[string]int{}
	for i, n := range all {
		index[n.ID] = i
	}
	open, out := make([]int, len(all)), make([][]int, len(all))
	for _, e := range g.Edges {
		from, known := index[e.From]
		to, toKnown := index[e.To]
		if known && toKnown && !slices.Contains(out[from], to) {
			out[from] = append(out[from], to)
			open[to]++
		}
	}
	order, position := topologicalOrder(open, out), make([]int, len(all))
	for at, i := range order {
		position[i] = at
	}
	next = make([][]int, len(order))
	for at, i := range order {
		ordered = append(ordered, all[i])
		for _, to := range out[i] {
			if position[to] > at {
				next[at] = append(next[at], position[to])
			}
		}
		slices.Sort(next[at])
	}
	return ordered, next
}

// topologicalOrder orders nodes by their dependencies: open counts those of each node and is used
// up, out lists its dependents. It goes depth first, which keeps lanes short: a dependent follows
// its last dependency at once where it can. Of nodes that are free at the same time the one with
// the lower index comes first.
func topologicalOrder(open []int, out [][]int) (order []int) {
	var stack []int
	for i := len(open) - 1; i >= 0; i-- {
		if open[i] == 0 {
			stack = append(stack, i)
		}
	}
	done := make([]bool, len(open))
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		done[i] = true
		order = append(order, i)
		released := []int{}
		for _, to := range out[i] {
			if open[to]--; open[to] == 0 {
				released = append(released, to)
			}
		}
		slices.Sort(released)
		slices.Reverse(released)
		stack = append(stack, released...)
	}
	for i := range open {
		if !done[i] {
			order = append(order, i)
		}
	}
	return order
}

// lanes are the vertical lines of a drawing at one row. Each leads down to one job. For every job
// in the order of the drawing, Draw calls pass and then connect:
//
//	pass      ● │    the lane of the job ends in its mark, other lanes go through
//	connect   ├─╯    lanes to its dependents start at the mark, or join those that lead there
//
// A column whose lane has ended is free for the next lane, which keeps a drawing narrow.
type lanes struct {
	// to has for each column the position of that job plus 1, or 0 where the column is free.
	to []int
	// at is the column of the job that was drawn last.
	at int
}

// pass draws the line of a job. The lane that led to it ends there; a job without one takes a free
// column.
func (l *lanes) pass(job int, mark string) string {
	if l.at = slices.Index(l.to, job+1); l.at < 0 {
		l.at = l.take(job + 1)
	}
	var b strings.Builder
	for i, to := range l.to {
		switch {
		case i == l.at:
			b.WriteString(mark + " ")
		case to != 0:
			b.WriteString("│ ")
		default:
			b.WriteString("  ")
		}
	}
	l.to[l.at] = 0
	return strings.TrimRight(b.String(), " ")
}

// take starts a lane to a job, given as in to, in the first free column and returns the column.
func (l *lanes) take(to int) int {
	i := slices.Index(l.to, 0)
	if i < 0 {
		i = len(l.to)
		l.to = append(l.to, 0)
	}
	l.to[i] = to
	return i
}

// connect starts lanes from the job that was drawn last to its dependents, or joins the lanes that
// lead there already. The first new lane goes straight down in the column of the job, others take
// free columns. It returns the line that shows this, empty where one lane goes straight down.
func (l *lanes) connect(dependents []int) string {
	opened, joined := map[int]bool{}, map[int]bool{}
	var fresh []int
	for _, job := range dependents {
		if i := slices.Index(l.to, job+1); i >= 0 {
			joined[i] = true
		} else {
			fresh = append(fresh, job)
		}
	}
	straight := len(fresh) > 0
	for i, job := range fresh {
		if i == 0 {
			l.to[l.at] = job + 1
			continue
		}
		opened[l.take(job+1)] = true
	}
	if len(opened)+len(joined) == 0 {
		return ""
	}
	first, last := l.at, l.at
	for i := range l.to {
		if opened[i] || joined[i] {
			first, last = min(first, i), max(last, i)
		}
	}
	var b strings.Builder
	for i, to := range l.to {
		ends := lineDirections{left: i > first && i <= last, right: i >= first && i < last}
		switch {
		case i == l.at:
			ends.up, ends.down = true, straight
		case joined[i]:
			ends.up, ends.down = true, true
		case opened[i]:
			ends.down = true
		case to != 0: // a lane of other jobs crosses behind the connection
			ends = lineDirections{up: true, down: true}
		}
		b.WriteString(ends.draw())
		if i >= first && i < last {
			b.WriteString("─")
		} else {
			b.WriteString(" ")
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// lineDirections are the directions in which a character leads from its middle.
type lineDirections struct{ up, down, left, right bool }

// lineChars are the characters for all directions that occur.
var lineChars = map[lineDirections]string{
	{}:                                              " ",
	{up: true, down: true}:                          "│",
	{left: true, right: true}:                       "─",
	{up: true, right: true}:                         "╰",
	{up: true, left: true}:                          "╯",
	{down: true, right: true}:                       "╭",
	{down: true, left: true}:                        "╮",
	{up: true, left: true, right: true}:             "┴",
	{down: true, left: true, right: true}:           "┬",
	{up: true, down: true, right: true}:             "├",
	{up: true, down: true, left: true}:              "┤",
	{up: true, down: true, left: true, right: true}: "┼",
}

// draw returns the character.
func (a lineDirections) draw() string { return lineChars[a] }
