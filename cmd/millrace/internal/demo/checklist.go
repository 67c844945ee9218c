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

// The checklist proves that no file was lost and none was done twice although a worker was killed.
// It knows what the workers have started, from their standard output, and which results came, from
// the queue. Files that the killed worker had started without a result must come from another
// worker, in another attempt.

// checklist has every job of the Relay part. One goroutine uses it.
type checklist struct {
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
	// inProgressAtKill are the files whose jobs the killed worker had claimed.
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

// newChecklist makes the checklist of the files.
func newChecklist(files *listing) *checklist {
	return &checklist{files: files, results: map[string]fileResult{},
		inProgress: map[int]map[string]bool{}, done: map[int]int{}}
}

// complete reports whether every file has its result.
func (c *checklist) complete() bool { return len(c.results) == len(c.files.order) }

// start records that a worker has started with a file. The message may come after the result of the
// file, and after the worker was killed.
func (c *checklist) start(worker int, path string) {
	if r, done := c.results[path]; done && r.Worker == worker {
		return
	}
	if worker == c.killed {
		if c.results[path].Run == "" {
			c.inProgressAtKill[path] = true
		}
		return
	}
	if c.inProgress[worker] == nil {
		c.inProgress[worker] = map[string]bool{}
	}
	c.inProgress[worker][path] = true
}

// addResult records a result and reports whether it is the first of its file. A result is a job
// itself and may be claimed twice: the same run is the same result.
func (c *checklist) addResult(r fileResult, now time.Duration) bool {
	delete(c.inProgress[r.Worker], r.Path)
	if _, known := c.files.files[r.Path]; !known {
		c.unexpected++
		return false
	}
	if first, recorded := c.results[r.Path]; recorded {
		if first.Run != r.Run {
			c.duplicates++
		}
		return false
	}
	c.results[r.Path] = r
	c.done[r.Worker]++
	if r.Attempt > 1 && c.inProgressAtKill[r.Path] {
		c.takenOver++
		c.takenOverAfter = now - c.killedAt
	} else if r.Attempt > 1 {
		c.redelivered++
	}
	return true
}

// countInProgress returns how many files all workers have in progress.
func (c *checklist) countInProgress() int {
	n := 0
	for _, files := range c.inProgress {
		n += len(files)
	}
	return n
}

// killDue reports whether it is time to kill the worker: it has files in progress, and a third of
// all files is done or all are started. In a small folder the second comes first, as the victim
// never finishes its first file.
func (c *checklist) killDue() bool {
	if c.killed != 0 || len(c.unfinished(victimWorker)) == 0 {
		return false
	}
	all := len(c.files.order)
	return len(c.results) >= all/3 || len(c.results)+c.countInProgress() >= all
}

// unfinished returns the files that a worker has in progress and that have no result, in a map of
// its own that the caller may keep.
func (c *checklist) unfinished(worker int) map[string]bool {
	open := maps.Clone(c.inProgress[worker])
	maps.DeleteFunc(open, func(path string, _ bool) bool { return c.results[path].Run != "" })
	return open
}

// tookOver reports whether another worker has done a file of the killed one.
func (c *checklist) tookOver() bool { return c.killed != 0 && c.takenOver > 0 }

// kill records that a worker was killed. What it had claimed can only come from another worker, or
// from a result of its own that was on disk before.
func (c *checklist) kill(worker int, now time.Duration) {
	c.killed, c.killedAt, c.inProgressAtKill = worker, now, c.unfinished(worker)
	delete(c.inProgress, worker)
}

// verify measures every file once more, in this process, and compares that with the results. A file
// that neither could read agrees; one that has changed since it was listed is counted and not
// compared.
func (c *checklist) verify() {
	for _, path := range c.files.order {
		r, ok := c.results[path]
		if !ok {
			continue
		}
		measured, err := measureFile(filepath.Join(c.files.root, filepath.FromSlash(path)))
		c.lines += r.Lines
		readable, wasReadable := err == nil, r.Error == ""
		switch {
		case readable && wasReadable && measured == r.fileStats:
		case !readable && !wasReadable:
		case !c.files.unchanged(path):
			c.changed++
		default:
			c.problems = append(c.problems, path)
		}
	}
}

// lost returns how many files have no result.
func (c *checklist) lost() int { return len(c.files.order) - len(c.results) }

// balanced reports whether every file has exactly one result, which is right, and no job is left.
func (c *checklist) balanced() bool {
	return c.lost() == 0 && c.duplicates == 0 && c.unexpected == 0 && c.remaining == 0 &&
		len(c.problems) == 0
}

// write prints the checklist.
func (c *checklist) write(w io.Writer, d *demo) {
	row := func(name string, n int, note string) {
		fmt.Fprintf(w, "  %-22s %8d  %s\n", name, n, note)
	}
	fmt.Fprintf(w, "\nThe accounts\n")
	row("files", len(c.files.order), fmt.Sprintf("%d bytes, %d lines", c.files.bytes, c.lines))
	if c.files.skipped > 0 {
		row("skipped", c.files.skipped, "not regular files, or not readable")
	}
	row("jobs submitted", len(c.files.order), "one for each file, acknowledged when on disk")
	row("jobs done", len(c.results), c.perWorker())
	if c.killed != 0 {
		row("claimed when killed", len(c.inProgressAtKill),
			fmt.Sprintf("by worker %d, killed after %s", c.killed,
				cli.FormatDuration(c.killedAt-c.started)))
		row("taken over", c.takenOver, c.takeoverNote())
	} else {
		row("killed workers", 0, "none had a file in progress in time")
	}
	if c.redelivered > 0 {
		row("redelivered", c.redelivered, "from workers whose heartbeats came too late")
	}
	row("lost", c.lost(), c.missing())
	row("duplicates", c.duplicates+c.unexpected, "")
	row("left in a queue", c.remaining, "")
	row("wrong", len(c.problems), "size, lines and SHA-256 compared with the demo's own measurement"+
		joinNames(c.problems))
	if c.changed > 0 {
		row("not compared", c.changed, "changed while the demo ran")
	}
	fmt.Fprintf(w, "\n%d jobs in %s (%s, each slowed down to %s) on %s\n", len(c.results),
		cli.FormatDuration(c.took),
		cli.FormatRate(int64(len(c.results)), c.took), cli.FormatDuration(d.flags.pace), d.url)
}

// perWorker counts the results of each worker.
func (c *checklist) perWorker() string {
	var parts []string
	for _, worker := range slices.Sorted(maps.Keys(c.done)) {
		parts = append(parts, fmt.Sprintf("%d by worker %d", c.done[worker], worker))
	}
	return strings.Join(parts, ", ")
}

// takeoverNote says when the files of the killed worker were done, and how many it had done itself.
func (c *checklist) takeoverNote() string {
	if c.takenOver == 0 {
		return "its last results were on disk already"
	}
	note := fmt.Sprintf("the last was done %s after the kill", cli.FormatDuration(c.takenOverAfter))
	if rest := len(c.inProgressAtKill) - c.takenOver - c.lost(); rest > 0 {
		note += fmt.Sprintf("; the results of %d were on disk already", rest)
	}
	return note
}

// missing names some of the files without a result; empty if there is none.
func (c *checklist) missing() string {
	var paths []string
	for _, path := range c.files.order {
		if _, ok := c.results[path]; !ok {
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
