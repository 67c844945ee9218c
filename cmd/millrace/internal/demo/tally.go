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

// The tally proves that no file was lost and none was done twice although a worker was killed. It
// knows what the workers have started, from their standard output, and which results came, from the
// queue. Files that the killed worker had started without a result must come from another worker,
// in another attempt.

// tally counts every job of the Relay part. One goroutine uses it.
type tally struct {
	files *listing
	// started is when the first job was submitted, since the start of the process, like all times
	// here.
	started time.Duration
	// took is the time from the first submission to the last result.
	took time.Duration
	// results are by path; the first result counts.
	results map[string]fileResult
	// duplicates counts results of other attempts at a job that was done.
	duplicates int
	// unexpected counts results of jobs that were not submitted.
	unexpected int

	// inProgress has by worker the files that were started and have no result.
	inProgress map[int]map[string]bool
	// done counts results, by worker.
	done map[int]int
	// killed is the number of the killed worker; 0 before.
	killed   int
	killedAt time.Duration
	// inProgressAtKill are the files that the killed worker held.
	inProgressAtKill map[string]bool
	// takenOver counts those of them that another worker has done.
	takenOver int
	// takenOverAfter is the time from the kill to the last of these.
	takenOverAfter time.Duration
	// redelivered counts other jobs that needed more than one attempt.
	redelivered int

	// remaining counts jobs that are still in a queue at the end.
	remaining int
	// problems are the paths of files with a wrong result.
	problems []string
	// changed counts files that changed while the demo ran, which are not compared.
	changed int
	// lines is the sum of all results.
	lines int64
}

// newTally makes the tally of the files.
func newTally(files *listing) *tally {
	return &tally{files: files, results: map[string]fileResult{},
		inProgress: map[int]map[string]bool{}, done: map[int]int{}}
}

// complete reports whether every file has its result.
func (b *tally) complete() bool { return len(b.results) == len(b.files.order) }

// start records that a worker has started with a file. The message may come after the result of the
// file, and after the worker was killed.
func (b *tally) start(worker int, path string) {
	if r, done := b.results[path]; done && r.Worker == worker {
		return
	}
	if worker == b.killed {
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

// addResult records a result and reports whether it is the first of its file. A result is a job
// itself and may be claimed twice: the same run is the same result.
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
	if r.Attempt > 1 && b.inProgressAtKill[r.Path] {
		b.takenOver++
		b.takenOverAfter = now - b.killedAt
	} else if r.Attempt > 1 {
		b.redelivered++
	}
	return true
}

// countInProgress returns how many files all workers have in progress.
func (b *tally) countInProgress() int {
	n := 0
	for _, files := range b.inProgress {
		n += len(files)
	}
	return n
}

// killDue reports whether it is time to kill the worker: it has files in progress, and a third of
// all files is done or all are started. In a small folder the second comes first, as the victim
// never finishes its first file.
func (b *tally) killDue() bool {
	if b.killed != 0 || len(b.unfinished(victimWorker)) == 0 {
		return false
	}
	all := len(b.files.order)
	return len(b.results) >= all/3 || len(b.results)+b.countInProgress() >= all
}

// unfinished returns the files that a worker has in progress and that have no result, in a map of
// its own that the caller may keep.
func (b *tally) unfinished(worker int) map[string]bool {
	open := maps.Clone(b.inProgress[worker])
	maps.DeleteFunc(open, func(path string, _ bool) bool { return b.results[path].Run != "" })
	return open
}

// tookOver reports whether another worker has done a file of the killed one.
func (b *tally) tookOver() bool { return b.killed != 0 && b.takenOver > 0 }

// kill records that a worker was killed. What it held from then on can only come from another
// worker, or from a result of its own that was on disk before.
func (b *tally) kill(worker int, now time.Duration) {
	b.killed, b.killedAt, b.inProgressAtKill = worker, now, b.unfinished(worker)
	delete(b.inProgress, worker)
}

// verify measures every file once more, in this process, and compares that with the results. A file
// that neither could read agrees; one that has changed since it was listed is counted and not
// compared.
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

// lost returns how many files have no result.
func (b *tally) lost() int { return len(b.files.order) - len(b.results) }

// balanced reports whether every file has exactly one result, which is right, and no job is left.
func (b *tally) balanced() bool {
	return b.lost() == 0 && b.duplicates == 0 && b.unexpected == 0 && b.remaining == 0 &&
		len(b.problems) == 0
}

// write prints the tally.
func (b *tally) write(w io.Writer, d *demo) {
	row := func(name string, n int, note string) {
		fmt.Fprintf(w, "  %-22s %8d  %s\n", name, n, note)
	}
	fmt.Fprintf(w, "\nThe accounts\n")
	row("files", len(b.files.order), fmt.Sprintf("%d bytes, %d lines", b.files.bytes, b.lines))
	if b.files.skipped > 0 {
		row("skipped", b.files.skipped, "not regular files, or not readable")
	}
	row("jobs submitted", len(b.files.order), "one for each file, acknowledged when on disk")
	row("jobs done", len(b.results), b.perWorker())
	if b.killed != 0 {
		row("held when killed", len(b.inProgressAtKill),
			fmt.Sprintf("by worker %d, killed after %s", b.killed,
				cli.FormatDuration(b.killedAt-b.started)))
		row("taken over", b.takenOver, b.takeoverNote())
	} else {
		row("killed workers", 0, "none had a file in progress in time")
	}
	if b.redelivered > 0 {
		row("redelivered", b.redelivered, "from workers whose heartbeats came too late")
	}
	row("lost", b.lost(), b.missing())
	row("duplicates", b.duplicates+b.unexpected, "")
	row("left in a queue", b.remaining, "")
	row("wrong", len(b.problems), "size, lines and SHA-256 compared with the demo's own measurement"+
		joinNames(b.problems))
	if b.changed > 0 {
		row("not compared", b.changed, "changed while the demo ran")
	}
	fmt.Fprintf(w, "\n%d jobs in %s (%s, each slowed down to %s) on %s\n", len(b.results),
		cli.FormatDuration(b.took),
		cli.FormatRate(int64(len(b.results)), b.took), cli.FormatDuration(d.flags.pace), d.url)
}

// perWorker counts the results of each worker.
func (b *tally) perWorker() string {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(b.done)) {
		parts = append(parts, fmt.Sprintf("%d by worker %d", b.done[worker], worker))
	}
	return strings.Join(parts, ", ")
}

// takeoverNote says when the files of the killed worker were done, and how many it had done itself.
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

// missing names some of the files without a result; empty if there is none.
func (b *tally) missing() string {
	var paths []string
	for _, path := range b.files.order {
		if _, ok := b.results[path]; !ok {
			paths = append(paths, path)
		}
	}
	return strings.TrimPrefix(joinNames(paths), ": ")
}

// joinNames returns the first five names, after a colon; empty for none.
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
