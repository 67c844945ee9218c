package main

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// tests follows the output of a test binary: which of its tests run, and since when. It passes on
// what go test prints of a package without -v, which is what failed; with all it passes on
// everything, and with marks for the reader that marks are for, go test -json.
type tests struct {
	out        io.Writer
	all, marks bool

	mu      sync.Mutex
	running map[string]time.Time     // when each test began, went on or saw a subtest end
	paused  map[string]bool          // tests that wait for their turn, as parallel ones do
	output  map[string][]string      // what each test printed that has not ended
	current string                   // the test that the next line belongs to
	longest map[string]time.Duration // of each test that went on for at least minReported
}

// minReported is how long a test goes on that the report names.
const minReported = 10 * time.Second

// stretch is for how long a test went on without a pause or the end of a subtest.
type stretch struct {
	test string
	time time.Duration
}

// newTests returns what follows the tests of a binary that go test has started with a command.
func newTests(out io.Writer, command []string) *tests {
	marks := slices.Contains(command, "-test.v=test2json")
	return &tests{out: out, all: marks || slices.Contains(command, "-test.v=true"), marks: marks,
		running: map[string]time.Time{}, paused: map[string]bool{}, output: map[string][]string{},
		longest: map[string]time.Duration{}}
}

// read follows the output until it ends, and passes on what tests printed that have not ended then,
// as the one that panicked.
func (t *tests) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			t.take(line, time.Now())
		}
		if err != nil {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.output {
		t.pass(name)
	}
}

// take takes a line of the output. The lines of the testing package begin with a byte that nothing
// else prints, as -test.v=test2json has it.
func (t *tests) take(line string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all && t.marks {
		io.WriteString(t.out, line)
	} else if t.all {
		io.WriteString(t.out, strings.ReplaceAll(line, "\x16", ""))
	}
	before, mark, marked := strings.Cut(line, "\x16")
	if !marked {
		t.hold(t.current, line)
		return
	}
	if before != "" { // a test printed no line end
		t.hold(t.current, before+"\n")
	}
	verb, name, ok := parse(mark)
	if !ok { // it is of no test, and an empty name says that what follows is of none
		t.current = ""
		if verb != "NAME" {
			t.hold("", mark)
		}
		return
	}
	t.event(verb, name, strings.TrimRight(mark, "\n"), now)
}

// parse returns what a line of the testing package says of which test.
func parse(mark string) (verb, name string, ok bool) {
	fields := strings.Fields(mark)
	if len(fields) < 2 || (fields[0] != "===" && fields[0] != "---") {
		return "", "", false
	}
	verb = strings.TrimSuffix(fields[1], ":")
	if len(fields) == 2 {
		return verb, "", false
	}
	return verb, fields[2], true
}

// event takes what happened to a test.
func (t *tests) event(verb, name, line string, now time.Time) {
	t.current = name
	switch verb {
	case "RUN", "CONT":
		t.note(t.parentOf(name), now)
		t.running[name] = now
		delete(t.paused, name)
	case "PAUSE":
		t.note(name, now)
		delete(t.running, name)
		t.paused[name] = true
	case "PASS", "SKIP", "FAIL":
		t.note(name, now)
		delete(t.running, name)
		if parent := t.parentOf(name); parent != "" {
			t.running[parent] = now
		}
		if verb == "FAIL" {
			t.hold(name, line+"\n")
			t.pass(name)
		}
		delete(t.output, name)
	}
}

// note notes the stretch of a test that ends it now, if that is at least minReported and the test
// has no subtests that run or wait.
func (t *tests) note(name string, now time.Time) {
	since, ok := t.running[name]
	if ok && now.Sub(since) >= max(minReported, t.longest[name]) && !t.waits(name) {
		t.longest[name] = now.Sub(since)
	}
}

// parentOf returns the test that a subtest belongs to, and nothing for other tests. The name of a
// subtest may have slashes of its own, as a path does.
func (t *tests) parentOf(name string) string {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name, '/') {
		name = name[:i]
		if !t.running[name].IsZero() {
			return name
		}
	}
	return ""
}

// hold keeps a line until its test ends. Lines that belong to no test are passed on at once.
func (t *tests) hold(name, line string) {
	if t.all {
		return
	}
	if name == "" {
		io.WriteString(t.out, line)
		return
	}
	t.output[name] = append(t.output[name], line)
}

// pass passes on what a test printed.
func (t *tests) pass(name string) {
	for _, line := range t.output[name] {
		io.WriteString(t.out, line)
	}
	delete(t.output, name)
}

// longestNow returns the test that has gone on for the longest time. A test whose subtests run or
// wait is not meant: it waits for them.
func (t *tests) longestNow(now time.Time) (s stretch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, since := range t.running {
		if now.Sub(since) > s.time && !t.waits(name) {
			s = stretch{name, now.Sub(since)}
		}
	}
	return s
}

// waits reports whether a subtest of a test runs or waits for its turn.
func (t *tests) waits(name string) bool {
	for other := range t.running {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	for other := range t.paused {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// slow returns the tests that have ended and went on for at least minReported, the slowest first.
func (t *tests) slow() (slow []stretch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for test, d := range t.longest {
		slow = append(slow, stretch{test, d})
	}
	slices.SortFunc(slow, func(a, b stretch) int { return cmp.Compare(b.time, a.time) })
	return slow
}
