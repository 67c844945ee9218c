package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The screen is made anew, line by line, from the last reading of the server. It fits the terminal
// exactly: the tables share the lines that are left between head and foot, and no line is longer
// than the terminal is wide.

var (
	bold    = lipgloss.NewStyle().Bold(true)
	marking = lipgloss.NewStyle().Reverse(true)
	bad     = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warn    = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// View implements tea.Model. Changed lines are drawn over the old ones.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the screen, as many as it has and none longer.
func (m *model) lines() []string {
	lines := append(m.head(), "")
	if m.last.err != nil {
		lines[len(lines)-1] = bad.Render("no answer, trying again: " +
			cli.Printable(m.last.err.Error()))
	}
	if m.job != 0 {
		lines = append(lines, m.jobLines()...)
	} else {
		height := max(2, m.height-len(lines)-4) // for both tables without their headings
		queues := max(1, height-min(height/3, max(1, len(m.last.workers))))
		lines = append(lines, m.queueLines(queues)...)
		lines = append(lines, "")
		lines = append(lines, m.workerLines(height-queues)...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, m.height-1)], m.foot())
	for i, line := range lines {
		lines[i] = cut(line, m.width)
	}
	return lines
}

// head returns the lines above the tables.
func (m *model) head() []string {
	var sum client.AdminQueue
	started, failed := 0.0, 0.0
	for _, q := range m.last.queues {
		sum.Ready += q.Ready
		sum.Leased += q.Leased
		sum.Waiting += q.Waiting + q.Delayed
		sum.Dead += q.Dead
		started += orZero(q.StartedPerMinute)
		failed += orZero(q.FailedPerMinute)
	}
	counted := fmt.Sprintf("%d queues", len(m.last.queues))
	if len(m.last.queues) == maxQueues {
		counted = fmt.Sprintf("the first %d queues by %s", maxQueues, m.order)
	}
	return []string{
		bold.Render("millrace top") + "  " + m.address + "  " + m.now().Format(time.TimeOnly) + "  " +
			fmt.Sprintf("%s, %d workers", counted, len(m.last.workers)),
		fmt.Sprintf("ready %s  running %s  waiting %s  dead %s  started %.1f/min  failed %.1f/min",
			short(sum.Ready), short(sum.Leased), short(sum.Waiting), short(sum.Dead),
			started, failed),
		"succeeded " + chart(m.last.succeeded),
		"failed    " + chart(m.last.failed),
	}
}

// bars are the heights of a chart, the first for nothing.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// chart draws values, with the greatest of them behind.
func chart(values []float64) string {
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if v > 0 {
			i = 1 + int(v/highest*float64(len(bars)-2))
		}
		b.WriteRune(bars[i])
	}
	return fmt.Sprintf("%s %g in 10s", b.String(), highest)
}

// column is a column of a table: its width, positive where it is aligned to the right.
type column struct {
	name  string
	width int
}

// row lays out the cells of a line. The first column has what the others leave.
func row(width int, columns []column, cells ...string) string {
	left := width
	for _, c := range columns[1:] {
		left -= max(c.width, -c.width) + 1
	}
	line := pad(cells[0], -max(8, left))
	for i, c := range columns[1:] {
		line += " " + pad(cells[i+1], c.width)
	}
	return line
}

// pad cuts a text to a width or fills it up, in front where the width is positive.
func pad(text string, width int) string {
	n := max(width, -width)
	text = cut(text, n)
	space := strings.Repeat(" ", n-lipgloss.Width(text))
	if width > 0 {
		return space + text
	}
	return text + space
}

// cut cuts a line to a width.
func cut(text string, width int) string {
	if lipgloss.Width(text) <= width {
		return text
	}
	return lipgloss.NewStyle().Inline(true).MaxWidth(width).Render(text)
}

// table lays out a table with a marked line, so many lines of it that the marked one is there.
func table(m *model, p pane, columns []column, rows [][]string, height int) []string {
	columns, rows = withoutSpare(m.width, columns, rows)
	var names []string
	for _, c := range columns {
		names = append(names, strings.ToUpper(c.name))
	}
	lines := []string{bold.Render(row(m.width, columns, names...))}
	begin := max(0, min(m.marked[p]-height/2, len(rows)-height))
	for i := begin; i < min(len(rows), begin+height); i++ {
		line := row(m.width, columns, rows[i]...)
		if i == m.marked[p] && p == m.pane {
			line = marking.Render(line)
		}
		lines = append(lines, line)
	}
	for len(lines) < height+1 {
		lines = append(lines, "")
	}
	return lines
}

// spareColumns are the columns of both tables that a narrow terminal does without, the first first,
// where names would be cut otherwise.
var spareColumns = []string{"fail/m", "wait", "start/m", "kind", "slots", "failed"}

// withoutSpare removes spare columns until the longest text of the first one fits.
func withoutSpare(width int, columns []column, rows [][]string) ([]column, [][]string) {
	longest, left := 0, width
	for _, cells := range rows {
		longest = max(longest, lipgloss.Width(cells[0]))
	}
	for _, c := range columns[1:] {
		left -= max(c.width, -c.width) + 1
	}
	for _, name := range spareColumns {
		at := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
		if left >= longest || at < 0 {
			continue
		}
		left += max(columns[at].width, -columns[at].width) + 1
		columns = slices.Delete(slices.Clone(columns), at, at+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
	return columns, rows
}

var queueColumns = []column{{"queue", 0}, {"ready", 7}, {"run", 5}, {"wait", 6}, {"dead", 5},
	{"oldest", 7}, {"start/m", 7}, {"fail/m", 6}, {"state", -9}}

// queueLines returns the table of queues.
func (m *model) queueLines(height int) []string {
	var rows [][]string
	for _, q := range m.last.queues {
		state := stateOf(q)
		if state != "" {
			state = warn.Render(state)
		}
		failed := perMinute(q.FailedPerMinute)
		if orZero(q.FailedPerMinute) > 0 {
			failed = bad.Render(failed)
		}
		rows = append(rows, []string{cli.Printable(nameOf(q)), short(q.Ready), short(q.Leased),
			short(q.Waiting + q.Delayed), short(q.Dead), age(m.now(), q.OldestReadyAt),
			perMinute(q.StartedPerMinute), failed, state})
	}
	return table(m, queuePane, queueColumns, rows, height)
}

// stateOf says what holds a queue: that it is paused, that no worker polls it, or that its ready
// jobs wait for its limit or its rate.
func stateOf(q client.AdminQueue) string {
	switch {
	case q.Paused:
		return "paused"
	case q.Ready == 0:
		return ""
	case q.Workers == 0:
		return "no worker"
	case q.MaxRunning > 0 && q.Leased >= int64(q.MaxRunning):
		return "limit"
	case q.RateLimit > 0:
		return "rate"
	}
	return ""
}

// perMinute formats a rate; a dash where it is not known.
func perMinute(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *rate)
}

// orZero returns 0 for a rate that is not known.
func orZero(rate *float64) float64 {
	if rate == nil {
		return 0
	}
	return *rate
}

var workerColumns = []column{{"worker", 0}, {"contract", -9}, {"kind", -8}, {"slots", 5},
	{"run", 4}, {"job", 10}, {"ok", 7}, {"failed", 7}}

// workerLines returns the table of workers.
func (m *model) workerLines(height int) []string {
	var rows [][]string
	for _, w := range m.last.workers {
		slots, number := "", ""
		if w.Concurrency != nil {
			slots = fmt.Sprint(*w.Concurrency)
		}
		if len(w.Running) > 0 {
			number = fmt.Sprint(w.Running[0])
		}
		rows = append(rows, []string{cli.Printable(w.Name), w.Contract, w.Kind, slots,
			fmt.Sprint(len(w.Running)), number, short(w.Succeeded), short(w.Failed)})
	}
	return table(m, workerPane, workerColumns, rows, height)
}

// jobLines returns the lines about the open job.
func (m *model) jobLines() []string {
	lines := []string{bold.Render(fmt.Sprintf("Job %d", m.job))}
	o := &m.last.opened
	switch {
	case o.err != nil:
		return append(lines, bad.Render(cli.Printable(o.err.Error())))
	case o.gone:
		return append(lines, "There is no such job, or it was removed.")
	case o.job.State == "":
		return append(lines, "reading …")
	}
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	for _, member := range [][2]string{{"id", o.job.ID}, {"queue", o.job.Contract + "/" + o.job.Queue},
		{"kind", text(o.job.Kind)}, {"state", o.job.State + " (" + o.job.Phase + ")"},
		{"attempts", fmt.Sprintf("%d, %d failed", o.job.Attempts, o.job.Failures)},
		{"created", cli.FormatTime(o.job.CreatedAt)}, {"started", cli.FormatTimePtr(o.job.StartedAt)},
		{"due", cli.FormatTimePtr(o.job.DueAt)}, {"done", cli.FormatTimePtr(o.job.FinishedAt)},
		{"worker", text(o.job.Worker)}, {"error", text(o.job.Error)}, {"why", o.why.Summary}} {
		if member[1] != "" {
			lines = append(lines, fmt.Sprintf("%-9s %s", member[0], cli.Printable(member[1])))
		}
	}
	return lines
}

// foot returns the last line: a question, what came of a change, or the keys.
func (m *model) foot() string {
	switch {
	case m.asking:
		return "number of the job: " + m.typed + "_"
	case m.message != "":
		return warn.Render(cli.Printable(m.message))
	case m.job != 0:
		return "Esc back  g job  q quit"
	}
	return "n name d depth a age f failures  Tab ↑↓  p pause  g job  Enter open  q quit"
}

// short returns a count in few characters.
func short(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 100_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// age returns how long ago a time was, in few characters.
func age(now time.Time, at *time.Time) string {
	if at == nil {
		return ""
	}
	return cli.FormatAge(max(0, now.Sub(*at)))
}
