package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/millrace/millrace/client"
)

// fake is a server with fixed answers.
type fake struct {
	answer snapshot
	paused []string
	asked  []request
}

func (f *fake) read(r request) snapshot {
	f.asked = append(f.asked, r)
	s := f.answer
	s.request = r
	return s
}

func (f *fake) setPaused(q client.AdminQueue, paused bool) changed {
	f.paused = append(f.paused, fmt.Sprint(nameOf(q), " ", paused))
	q.Paused = paused
	return changed{queue: q}
}

// now is when the tests are.
func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// newFake makes a model that has read a server with many queues and workers of hostile names.
func newFake(t *testing.T) (*model, *fake) {
	t.Helper()
	f := &fake{answer: snapshot{succeeded: []float64{0, 1, 2, 8}, failed: make([]float64, 60)}}
	since := now().Add(-26 * time.Hour)
	for i := range maxQueues {
		failed := float64(i)
		f.answer.queues = append(f.answer.queues, client.AdminQueue{Contract: "taskflow",
			Queue: fmt.Sprintf("%d %s\x1b[2J\u202e漢字", i, strings.Repeat("x", i)), Ready: int64(i) << 30,
			FailedPerMinute: &failed, OldestReadyAt: &since, Paused: i%2 == 1})
	}
	for i := range maxWorkers {
		f.answer.workers = append(f.answer.workers, client.AdminWorker{
			Name: strings.Repeat("worker\n", i+1), Contract: "taskflow", Kind: "outside",
			Running: []int64{int64(i + 1)}})
	}
	m := newModel(f, "http://127.0.0.1:8080", time.Second, now)
	m.show(f.read(m.request()))
	return m, f
}

// press presses keys and does what they lead to, until nothing more comes of it.
func press(m *model, keys ...string) {
	for _, key := range keys {
		_, cmd := m.press(key)
		for cmd != nil {
			_, cmd = m.Update(cmd())
		}
	}
}

// CL-003: at 80 by 24, and at other sizes, the screen has as many lines as the terminal and none is
// longer, whatever others have written into names; no text of theirs is a control character.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{80, 24}, {80, 25}, {200, 60}, {120, 15}} {
		m, f := newFake(t)
		f.answer.opened = openedJob{job: client.AdminJob{Number: 7, State: "RUNNING",
			ID: strings.Repeat("漢", 300)}, why: client.AdminWhy{Summary: "It\x1b[2Jruns."}}
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for _, keys := range [][]string{nil, {"down", "down"}, {"tab", "k"}, {"G"}, {"g"}, {"7"},
			{"enter"}, {"esc"}} {
			press(m, keys...)
			lines := m.lines()
			if len(lines) != size[1] {
				t.Errorf("%v after %v: %d lines", size, keys, len(lines))
			}
			for _, line := range lines {
				if lipgloss.Width(line) > size[0] || strings.Contains(line, "\x1b[2J") ||
					strings.ContainsAny(line, "\n\u202e") {
					t.Errorf("%v after %v: %d wide: %q", size, keys, lipgloss.Width(line), line)
				}
			}
		}
	}
}

// CL-003: the keys sort, mark, pause a queue and open a job; what was read for another order is not
// shown, and an answer that fails to come leaves what was there.
func TestKeys(t *testing.T) {
	t.Parallel()
	m, f := newFake(t)
	late := f.read(m.request())
	for key, order := range orders {
		press(m, key)
		if got := f.asked[len(f.asked)-1]; got.order != order {
			t.Errorf("%s asks for %+v", key, got)
		}
	}
	press(m, "d")
	late.queues = nil
	m.show(late)
	if len(m.last.queues) != maxQueues {
		t.Error("a late answer is shown")
	}
	press(m, "up", "down", "j", "j", "k", "p", "tab", "p")
	if got := strings.Join(f.paused, ","); !strings.HasPrefix(got, "taskflow/2 ") ||
		!strings.HasSuffix(got, " true") || len(f.paused) != 1 {
		t.Errorf("paused %q", f.paused)
	}
	press(m, "tab")
	f.answer.queues = slices.Clone(f.answer.queues)
	slices.Reverse(f.answer.queues)
	m.show(f.read(m.request()))
	press(m, "p", "tab")
	if got := f.paused[len(f.paused)-1]; !strings.HasPrefix(got, "taskflow/2 ") {
		t.Errorf("after a read that moved the marked queue another one was paused: %s", got)
	}
	press(m, "down", "enter")
	if m.job != 2 {
		t.Errorf("the open job is %d", m.job)
	}
	press(m, "esc", "g", "4", "x", "2", "3", "backspace", "enter")
	if m.job != 42 || f.asked[len(f.asked)-1].job != 42 {
		t.Errorf("the open job is %d", m.job)
	}
	press(m, "esc")
	m.Update(snapshot{request: m.request(), err: errors.New("connection refused")})
	screen := strings.Join(m.lines(), "\n")
	if !strings.Contains(screen, "connection refused") || len(m.last.queues) != maxQueues {
		t.Errorf("after a failed read there is\n%s", screen)
	}
	m.Update(f.read(m.request()))
	if screen := strings.Join(m.lines(), "\n"); strings.Contains(screen, "connection refused") {
		t.Errorf("after a good read there is\n%s", screen)
	}
	for _, key := range []string{"q", "ctrl+c"} {
		if _, cmd := m.press(key); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s does not leave", key)
		}
	}
}

// CL-003: the state of a queue says what holds its ready jobs; a rate that is not known is none.
func TestStates(t *testing.T) {
	t.Parallel()
	asked := client.AdminQueue{Ready: 1, Leased: 3, Workers: 1}
	for want, change := range map[string]func(*client.AdminQueue){
		"paused":    func(q *client.AdminQueue) { q.Paused, q.Workers, q.RateLimit = true, 0, 1 },
		"no worker": func(q *client.AdminQueue) { q.Workers, q.RateLimit = 0, 1 },
		"limit":     func(q *client.AdminQueue) { q.MaxRunning, q.RateLimit = 3, 1 },
		"rate":      func(q *client.AdminQueue) { q.MaxRunning, q.RateLimit = 4, 1 },
		"":          func(q *client.AdminQueue) { q.Ready, q.Workers, q.MaxRunning = 0, 0, 3 },
	} {
		q := asked
		if change(&q); stateOf(q) != want {
			t.Errorf("%+v is %q, want %q", q, stateOf(q), want)
		}
	}
	long := asked
	long.Contract, long.Queue = "fetchbox.task", strings.Repeat("q", 20)
	narrow, g := newFake(t)
	narrow.width, narrow.pane, g.answer.queues = 80, workerPane, []client.AdminQueue{long, asked}
	narrow.show(g.read(narrow.request()))
	if lines := narrow.queueLines(2); !strings.HasPrefix(lines[1], nameOf(long)+" ") ||
		strings.Contains(lines[0], "WAIT") || !strings.Contains(lines[0], "START/M") {
		t.Errorf("at 80 columns the names are cut: %q", lines)
	}
	m, f := newFake(t)
	m.pane = workerPane // so that no queue is marked
	f.answer.queues = []client.AdminQueue{asked}
	m.show(f.read(m.request()))
	if line := m.queueLines(1)[1]; !strings.HasSuffix(strings.TrimSpace(line), "-      -") {
		t.Errorf("a queue without rates is %q", line)
	}
}
