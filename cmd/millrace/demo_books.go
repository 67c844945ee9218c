package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// books accounts for every job of a demo. One goroutine keeps them.
type books struct {
	files   *listing
	began   time.Duration
	took    time.Duration
	results map[string]demoResult // by path, the first that came
	doubled int                   // results of a second run of a job that was done
	strange int                   // results of jobs nobody submitted

	alive      int
	held       map[int]map[string]bool // what a worker has begun and not yet handed in
	done       map[int]int
	killed     int // the worker; 0 while none
	killedAt   time.Duration
	heldAtKill map[string]bool
	back       int           // of these, done by another
	backAfter  time.Duration // from the kill to the last of these
	again      int           // handed out again for another reason

	leftOver int // still in a queue at the end
	wrong    []string
	changed  int
	lines    int64
}

func newBooks(files *listing) *books {
	return &books{files: files, results: map[string]demoResult{}, held: map[int]map[string]bool{}, done: map[int]int{}}
}

func (b *books) complete() bool { return len(b.results) == len(b.files.order) }

func (b *books) begin(worker int, path string) {
	if r, done := b.results[path]; done && r.Worker == worker {
		return // its result came first
	}
	if worker == b.killed { // it was said before the kill and is read after it
		if b.results[path].Run == "" {
			b.heldAtKill[path] = true
		}
		return
	}
	if b.held[worker] == nil {
		b.held[worker] = map[string]bool{}
	}
	b.held[worker][path] = true
}

// enter books a result and reports whether it settles its file. A result may be handed out twice like any job: the same
// run is the same result.
func (b *books) enter(r demoResult, now time.Duration) bool {
	delete(b.held[r.Worker], r.Path)
	if _, ours := b.files.files[r.Path]; !ours {
		b.strange++
		return false
	}
	if first, there := b.results[r.Path]; there {
		if first.Run != r.Run {
			b.doubled++
		}
		return false
	}
	b.results[r.Path] = r
	b.done[r.Worker]++
	if r.Tries > 1 && b.heldAtKill[r.Path] {
		b.back++
		b.backAfter = now - b.killedAt
	} else if r.Tries > 1 {
		b.again++
	}
	return true
}

func (b *books) inHand() int {
	n := 0
	for _, held := range b.held {
		n += len(held)
	}
	return n
}

// due reports whether it is time to kill the worker whose part that is: it has files in hand, and a third of all files
// is done or all are begun.
func (b *books) due() bool {
	if b.killed != 0 || len(b.open(demoVictim)) == 0 {
		return false
	}
	all := len(b.files.order)
	return len(b.results) >= all/3 || len(b.results)+b.inHand() >= all
}

// open is what a worker has in hand and nobody has done.
func (b *books) open(worker int) map[string]bool {
	open := maps.Clone(b.held[worker])
	maps.DeleteFunc(open, func(path string, _ bool) bool { return b.results[path].Run != "" })
	return open
}

// tookOver reports whether a file of the killed worker was done by another, in a run of its own.
func (b *books) tookOver() bool { return b.killed != 0 && b.back > 0 }

func (b *books) kill(worker int, now time.Duration) {
	b.killed, b.killedAt, b.heldAtKill = worker, now, b.open(worker)
	delete(b.held, worker)
}

// verify measures every file once more, in this process, and compares.
func (b *books) verify() {
	for _, path := range b.files.order {
		r, ok := b.results[path]
		if !ok {
			continue
		}
		truth, err := measureFile(filepath.Join(b.files.root, filepath.FromSlash(path)))
		b.lines += r.Lines
		switch {
		case err == nil && r.Error == "" && truth == r.measure:
		case err != nil && r.Error != "": // neither can read it
		case !b.files.unchanged(path):
			b.changed++
		default:
			b.wrong = append(b.wrong, path)
		}
	}
}

func (b *books) lost() int { return len(b.files.order) - len(b.results) }

func (b *books) balanced() bool {
	return b.lost() == 0 && b.doubled == 0 && b.strange == 0 && b.leftOver == 0 && len(b.wrong) == 0
}

func (b *books) write(w io.Writer, d *demo) {
	row := func(name string, n int, note string) {
		fmt.Fprintf(w, "  %-22s %8d  %s\n", name, n, note)
	}
	fmt.Fprintf(w, "\nThe accounts\n")
	row("files", len(b.files.order), fmt.Sprintf("%d bytes, %d lines", b.files.bytes, b.lines))
	if b.files.leftOut > 0 {
		row("left out", b.files.leftOut, "no regular files")
	}
	row("jobs submitted", len(b.files.order), "one for each file, acknowledged when on disk")
	row("jobs done", len(b.results), b.shares())
	if b.killed != 0 {
		row("in the killed hands", len(b.heldAtKill), fmt.Sprintf("worker %d, killed after %s", b.killed, short(b.killedAt-b.began)))
		row("taken back from them", b.back, b.backNote())
	} else {
		row("killed workers", 0, "none had a file in hand when the time had come")
	}
	if b.again > 0 {
		row("handed out again", b.again, "from workers that were too slow to beat")
	}
	row("lost", b.lost(), b.missing())
	row("doubled", b.doubled+b.strange, "")
	row("left in a queue", b.leftOver, "")
	row("wrong", len(b.wrong), "size, lines and SHA-256 compared with a count of our own"+list(b.wrong))
	if b.changed > 0 {
		row("not compared", b.changed, "changed while the demo ran")
	}
	fmt.Fprintf(w, "\n%d jobs in %s (%s, each held for %s to be seen) on %s\n", len(b.results), short(b.took),
		rate(int64(len(b.results)), b.took), short(d.flags.pace), d.url)
}

// shares tells who has done how many.
func (b *books) shares() string {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(b.done)) {
		parts = append(parts, fmt.Sprintf("%d by worker %d", b.done[worker], worker))
	}
	return strings.Join(parts, ", ")
}

func (b *books) backNote() string {
	if b.back == 0 {
		return "its last results were on disk already"
	}
	note := fmt.Sprintf("the last was done %s after the kill", short(b.backAfter))
	if rest := len(b.heldAtKill) - b.back - b.lost(); rest > 0 {
		note += fmt.Sprintf("; the results of %d were on disk already", rest)
	}
	return note
}

func (b *books) missing() string {
	var paths []string
	for _, path := range b.files.order {
		if _, ok := b.results[path]; !ok {
			paths = append(paths, path)
		}
	}
	return strings.TrimPrefix(list(paths), ": ")
}

// list writes a few names.
func list(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := ": " + strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += ", …"
	}
	return text
}
