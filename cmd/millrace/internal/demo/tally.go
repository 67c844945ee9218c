package demo

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// tally accounts for every job of the Relay part. One goroutine uses it.
type tally struct {
	files      *listing
	started    time.Duration
	took       time.Duration
	results    map[string]fileResult // by path, the first that came
	duplicates int                   // results of a second run of a job that was done
	unexpected int                   // results of jobs nobody submitted

	alive            int
	inProgress       map[int]map[string]bool // what a worker has begun and not yet handed in
	done             map[int]int
	killed           int // the worker; 0 while none
	killedAt         time.Duration
	inProgressAtKill map[string]bool
	takenOver        int           // of these, done by another
	takenOverAfter   time.Duration // from the kill to the last of these
	redelivered      int           // handed out again for another reason

	remaining int // still in a queue at the end
	problems  []string
	changed   int
	lines     int64
}

func newTally(files *listing) *tally {
	return &tally{files: files, results: map[string]fileResult{},
		inProgress: map[int]map[string]bool{}, done: map[int]int{}}
}

func (b *tally) complete() bool { return len(b.results) == len(b.files.order) }

func (b *tally) start(worker int, path string) {
	if r, done := b.results[path]; done && r.Worker == worker {
		return // its result came first
	}
	if worker == b.killed { // it was said before the kill and is read after it
		if b.results[path].Run == "" {
			b.inProgressAtKill[path] = true
		}
		return
	}
	if b.inProgress[worker] == nil {
		b.inProgress[worker] = map[string]bool{}
	}
	b.inProgress[worker][path] = true
}

// enter books a result and reports whether it settles its file. A result may be handed out twice
// like any job: the same run is the same result.
func (b *tally) addResult(r fileResult, now time.Duration) bool {
	delete(b.inProgress[r.Worker], r.Path)
	if _, known := b.files.files[r.Path]; !known {
		b.unexpected++
		return false
	}
	if first, recorded := b.results[r.Path]; recorded {
		if first.Run != r.Run {
			b.duplicates++
		}
		return false
	}
	b.results[r.Path] = r
	b.done[r.Worker]++
	if r.Tries > 1 && b.inProgressAtKill[r.Path] {
		b.takenOver++
		b.takenOverAfter = now - b.killedAt
	} else if r.Tries > 1 {
		b.redelivered++
	}
	return true
}

func (b *tally) countInProgress() int {
	n := 0
	for _, files := range b.inProgress {
		n += len(files)
	}
	return n
}

// killDue reports whether it is time to kill the worker whose part that is: it has files in hand,
// and a third of all files is done or all are begun.
func (b *tally) killDue() bool {
	if b.killed != 0 || len(b.unfinished(victimWorker)) == 0 {
		return false
	}
	all := len(b.files.order)
	return len(b.results) >= all/3 || len(b.results)+b.countInProgress() >= all
}

// open is what a worker has in hand and nobody has done.
func (b *tally) unfinished(worker int) map[string]bool {
	open := maps.Clone(b.inProgress[worker])
	maps.DeleteFunc(open, func(path string, _ bool) bool { return b.results[path].Run != "" })
	return open
}

// tookOver reports whether a file of the killed worker was done by another, in a run of its own.
func (b *tally) tookOver() bool { return b.killed != 0 && b.takenOver > 0 }

func (b *tally) kill(worker int, now time.Duration) {
	b.killed, b.killedAt, b.inProgressAtKill = worker, now, b.unfinished(worker)
	delete(b.inProgress, worker)
}

// verify measures every file once more, in this process, and compares.
func (b *tally) verify() {
	for _, path := range b.files.order {
		r, ok := b.results[path]
		if !ok {
			continue
		}
		truth, err := measureFile(filepath.Join(b.files.root, filepath.FromSlash(path)))
		b.lines += r.Lines
		readable, wasReadable := err == nil, r.Error == ""
		switch {
		case readable && wasReadable && truth == r.fileStats:
		case !readable && !wasReadable:
		case !b.files.unchanged(path):
			b.changed++
		default:
			b.problems = append(b.problems, path)
		}
	}
}

func (b *tally) lost() int { return len(b.files.order) - len(b.results) }

func (b *tally) balanced() bool {
	return b.lost() == 0 && b.duplicates == 0 && b.unexpected == 0 && b.remaining == 0 &&
		len(b.problems) == 0
}

func (b *tally) write(w io.Writer, d *demo) {
	row := func(name string, n int, note string) {
		fmt.Fprintf(w, "  %-22s %8d  %s\n", name, n, note)
	}
	fmt.Fprintf(w, "\nThe accounts\n")
	row("files", len(b.files.order), fmt.Sprintf("%d bytes, %d lines", b.files.bytes, b.lines))
	if b.files.skipped > 0 {
		row("left out", b.files.skipped, "no regular files")
	}
	row("jobs submitted", len(b.files.order), "one for each file, acknowledged when on disk")
	row("jobs done", len(b.results), b.perWorker())
	if b.killed != 0 {
		row("in the killed hands", len(b.inProgressAtKill),
			fmt.Sprintf("worker %d, killed after %s", b.killed,
				cli.FormatDuration(b.killedAt-b.started)))
		row("taken back from them", b.takenOver, b.takeoverNote())
	} else {
		row("killed workers", 0, "none had a file in hand when the time had come")
	}
	if b.redelivered > 0 {
		row("handed out again", b.redelivered, "from workers that were too slow to beat")
	}
	row("lost", b.lost(), b.missing())
	row("doubled", b.duplicates+b.unexpected, "")
	row("left in a queue", b.remaining, "")
	row("wrong", len(b.problems), "size, lines and SHA-256 compared with a count of our own"+
		joinNames(b.problems))
	if b.changed > 0 {
		row("not compared", b.changed, "changed while the demo ran")
	}
	fmt.Fprintf(w, "\n%d jobs in %s (%s, each held for %s to be seen) on %s\n", len(b.results),
		cli.FormatDuration(b.took),
		cli.FormatRate(int64(len(b.results)), b.took), cli.FormatDuration(d.flags.pace), d.url)
}

// perWorker tells who has done how many.
func (b *tally) perWorker() string {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(b.done)) {
		parts = append(parts, fmt.Sprintf("%d by worker %d", b.done[worker], worker))
	}
	return strings.Join(parts, ", ")
}

func (b *tally) takeoverNote() string {
	if b.takenOver == 0 {
		return "its last results were on disk already"
	}
	note := fmt.Sprintf("the last was done %s after the kill", cli.FormatDuration(b.takenOverAfter))
	if rest := len(b.inProgressAtKill) - b.takenOver - b.lost(); rest > 0 {
		note += fmt.Sprintf("; the results of %d were on disk already", rest)
	}
	return note
}

func (b *tally) missing() string {
	var paths []string
	for _, path := range b.files.order {
		if _, ok := b.results[path]; !ok {
			paths = append(paths, path)
		}
	}
	return strings.TrimPrefix(joinNames(paths), ": ")
}

// joinNames writes a few names.
func joinNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text := ": " + strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += ", …"
	}
	return text
}
