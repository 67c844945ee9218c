package top

import (
	"slices"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/millrace/millrace/client"
)

// keysHelp describes the keys.
const keysHelp = `Keys:
  n d a f     sort the queues by name, depth, age or failures
  up down     move (also k and j); Tab goes from the queues to the workers and back
  p           pause or resume the marked queue
  Enter       open the first job of the marked worker
  g           open the job with a number
  Esc         back
  q           leave`

// orders are the keys that sort, and the order that each asks for.
var orders = map[string]string{"n": "name", "d": "depth", "a": "age", "f": "failures"}

// pane is what the keys act on.
type pane int

const (
	queuePane pane = iota
	workerPane
	panes
)

// model has what the screen shows, and how the keys change it.
type model struct {
	server   server
	address  string
	interval time.Duration
	now      func() time.Time

	width, height int
	order         string
	pane          pane
	marked        [panes]int
	job           int64  // the open one, or 0
	asking        bool   // for the number of a job
	typed         string // of the number
	last          snapshot
	message       string // about the last change
}

func newModel(s server, address string, interval time.Duration, now func() time.Time) *model {
	return &model{server: s, address: address, interval: interval, now: now, order: "name",
		width: 80, height: 24}
}

// request names what the next poll reads.
func (m *model) request() request { return request{m.order, m.job} }

// tick is when the server is to be read again.
type tick struct{}

// readNow reads the server once, apart from the regular reads.
func (m *model) readNow() tea.Cmd {
	r, s := m.request(), m.server
	return func() tea.Msg { return extra(s.read(r)) }
}

// extra is a snapshot after which no regular read follows.
type extra snapshot

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.regularRead() }

// regularRead reads the server once, which is followed by the next one.
func (m *model) regularRead() tea.Cmd {
	r, s := m.request(), m.server
	return func() tea.Msg { return s.read(r) }
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case snapshot:
		m.show(msg)
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
	case extra:
		m.show(snapshot(msg))
	case tick:
		return m, m.regularRead()
	case changed:
		m.showChange(msg)
		return m, m.readNow()
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m, nil
}

// show takes what was read. What was asked for before an order or job was chosen is late; where the
// read has failed, what was there stays.
func (m *model) show(s snapshot) {
	switch {
	case s.request != m.request():
		return
	case s.err != nil:
		m.last.err = s.err
		return
	}
	marked := m.markedNames()
	if s.order != m.last.order {
		marked[queuePane] = "" // the first of the new order
	}
	m.last = s
	for p, names := range m.names() {
		i := slices.Index(names, marked[p])
		if i < 0 {
			i = max(0, min(m.marked[p], len(names)-1))
		}
		m.marked[p] = i
	}
}

// names returns the names of the lines of each pane.
func (m *model) names() (names [panes][]string) {
	for _, q := range m.last.queues {
		names[queuePane] = append(names[queuePane], nameOf(q))
	}
	for _, w := range m.last.workers {
		names[workerPane] = append(names[workerPane], w.Name+" "+w.Node+" "+w.Contract)
	}
	return names
}

// markedNames are the names of the marked lines, which stay marked where a read moves them: a key
// acts on what its user has chosen.
func (m *model) markedNames() (marked [panes]string) {
	for p, names := range m.names() {
		if m.marked[p] < len(names) {
			marked[p] = names[m.marked[p]]
		}
	}
	return marked
}

// showChange takes what came of a change, so that the next key acts on what holds then.
func (m *model) showChange(c changed) {
	if c.err != nil {
		m.message = c.err.Error()
		return
	}
	m.message = "resumed " + nameOf(c.queue)
	if c.queue.Paused {
		m.message = "paused " + nameOf(c.queue)
	}
	for i, q := range m.last.queues {
		if nameOf(q) == nameOf(c.queue) {
			m.last.queues[i] = c.queue
		}
	}
}

// press does what a key says.
func (m *model) press(key string) (tea.Model, tea.Cmd) {
	if key == "ctrl+c" {
		return m, tea.Quit
	}
	if m.asking {
		return m.typeNumber(key)
	}
	if order, sorts := orders[key]; sorts && m.job == 0 {
		m.order, m.marked[queuePane] = order, 0
		return m, m.readNow()
	}
	m.message = ""
	switch key {
	case "q":
		return m, tea.Quit
	case "esc":
		m.job = 0
	case "g":
		m.asking, m.typed = true, ""
	case "tab":
		m.pane = (m.pane + 1) % panes
	case "down", "j":
		m.move(1)
	case "up", "k":
		m.move(-1)
	case "enter":
		return m, m.openMarked()
	case "p":
		return m, m.pauseMarked()
	}
	return m, nil
}

// typeNumber takes a key of the number of a job.
func (m *model) typeNumber(key string) (tea.Model, tea.Cmd) {
	switch {
	case key == "esc":
		m.asking = false
	case key == "backspace":
		m.typed = m.typed[:max(0, len(m.typed)-1)]
	case key == "enter":
		m.asking = false
		number, _ := strconv.ParseInt(m.typed, 10, 64) // 18 digits at most, or none
		if number > 0 {
			return m, m.open(number)
		}
	case len(key) == 1 && key >= "0" && key <= "9" && len(m.typed) < 18:
		m.typed += key
	}
	return m, nil
}

// move marks another line.
func (m *model) move(by int) {
	n := []int{len(m.last.queues), len(m.last.workers)}[m.pane]
	m.marked[m.pane] = max(0, min(m.marked[m.pane]+by, n-1))
}

// open opens a job.
func (m *model) open(number int64) tea.Cmd {
	m.job, m.last.opened = number, openedJob{}
	return m.readNow()
}

// openMarked opens the first job of the marked worker.
func (m *model) openMarked() tea.Cmd {
	if m.pane != workerPane || len(m.last.workers) == 0 {
		return nil
	}
	running := m.last.workers[m.marked[workerPane]].Running
	if len(running) == 0 {
		m.message = "this worker runs no job"
		return nil
	}
	return m.open(running[0])
}

// pauseMarked pauses the marked queue, or resumes it.
func (m *model) pauseMarked() tea.Cmd {
	if m.pane != queuePane || m.job != 0 || len(m.last.queues) == 0 {
		return nil
	}
	q, s := m.last.queues[m.marked[queuePane]], m.server
	return func() tea.Msg { return s.setPaused(q, !q.Paused) }
}

// nameOf is the name of a queue on the command line.
func nameOf(q client.AdminQueue) string { return q.Contract + "/" + q.Queue }
