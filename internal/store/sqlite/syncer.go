package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/disk"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// syncer makes commits durable beside the writer, which executes the next group meanwhile. SQLite
// appends a commit to the log and does not sync it (synchronous=NORMAL); the syncer does, and
// answers the callers afterwards.
//
//	writer:   group 1 │ group 2 │ group 3 …
//	syncer:           │  sync 1  │ sync 2 and 3
//	callers:                     ▲ 1 is answered ▲ 2 and 3 are answered
//
// Groups have numbers in the order of their commits. One sync covers every group whose commit has
// ended before it began, as all of them are in the same file, in front of each other. A group that
// changed nothing, or failed, has read what earlier groups wrote; it is answered with them, and so
// is a view: nobody learns of a change that a loss of power could still undo.
//
// SQLite itself orders the log with the database file: a checkpoint syncs the log before it writes
// pages of it into the database file, and syncs that file before the log is used from its start
// again, whose new header is synced too. What has left the log is durable, so a sync of the log
// confirms all commits that were in it before.
//
// After a sync that failed, the content of the log is unknown. Every group that is not durable and
// every view fails then, until the writer has reopened the database with a new log.
//
// The zero syncer has no log and answers at once: that of a database in memory, or of views alone.
type syncer struct {
	observe sqlstore.Observer
	sync    func(*os.File) error // disk.SyncData, or what a test puts in its place
	wake    chan struct{}        // has room for one; closed by close
	stopped chan struct{}

	mu       sync.Mutex
	log      *os.File
	begun    uint64        // commits that have begun
	durable  uint64        // commits that are on the disk
	waiting  []endedGroup  // groups that wait for a sync
	progress chan struct{} // closed and replaced when a sync has ended
	failed   error         // of a sync, until reset
}

// endedGroup is a group that waits for the sync of commits up to a number.
type endedGroup struct {
	commit  uint64
	members []*request
}

// newSyncer starts a syncer of the log of the database at path.
func newSyncer(path string, observe sqlstore.Observer) (*syncer, error) {
	y := &syncer{observe: observe, sync: disk.SyncData, wake: make(chan struct{}, 1),
		stopped: make(chan struct{}), progress: make(chan struct{})}
	if err := y.reset(path); err != nil {
		return nil, err
	}
	go y.run()
	return y, nil
}

// reset opens the log of a database that was just opened, with all that the log has on the disk.
// It waits for the groups of the log from before.
func (y *syncer) reset(path string) error {
	log, err := openLog(path + "-wal")
	if err != nil {
		return err
	}
	for {
		y.mu.Lock()
		if len(y.waiting) == 0 {
			break
		}
		progress := y.progress
		y.mu.Unlock()
		<-progress
	}
	defer y.mu.Unlock()
	if y.log != nil {
		y.log.Close()
	}
	y.log, y.failed, y.durable = log, nil, y.begun
	return nil
}

// openLog opens and syncs a log. The file exists once its database was read.
func openLog(path string) (*os.File, error) {
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := log.Sync(); err != nil {
		log.Close()
		return nil, err
	}
	if err := disk.Sync(filepath.Dir(path)); err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
}

// begin says that a commit with changes is about to begin. From now on no view ends before the
// commit is durable, as the view may have seen it.
func (y *syncer) begin() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.log != nil {
		y.begun++
	}
}

// abort says that the commit failed, so that no view has seen it.
func (y *syncer) abort() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.log != nil {
		y.begun--
		y.wakeViews()
	}
}

// wakeViews lets the views that wait look again.
func (y *syncer) wakeViews() {
	close(y.progress)
	y.progress = make(chan struct{})
}

// answer answers a group that has ended, as soon as all commits before its end are durable.
func (y *syncer) answer(members []*request) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.durable == y.begun {
		release(members, nil)
		return
	}
	y.waiting = append(y.waiting, endedGroup{y.begun, members})
	select {
	case y.wake <- struct{}{}:
	default: // the syncer has not taken the last groups yet
	}
}

// release answers requests. After a failed sync their own outcomes count no more.
func release(members []*request, failed error) {
	for _, r := range members {
		if failed != nil {
			r.err = failed
		}
		close(r.done)
	}
}

// wait returns once all commits that have begun are durable.
func (y *syncer) wait(ctx context.Context) error {
	y.mu.Lock()
	target := y.begun
	for {
		isDurable := y.durable >= min(target, y.begun)
		failed, progress := y.failed, y.progress
		y.mu.Unlock()
		if isDurable {
			return nil
		}
		if failed != nil {
			return failed
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return translate("store.sync", ctx.Err())
		}
		y.mu.Lock()
	}
}

// broken reports that a sync has failed: the log must be replaced.
func (y *syncer) broken() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.failed != nil
}

// run syncs the log for the groups that have ended, until close.
func (y *syncer) run() {
	defer close(y.stopped)
	for range y.wake {
		y.mu.Lock()
		n, log, failed := len(y.waiting), y.log, y.failed
		if n == 0 {
			y.mu.Unlock()
			continue
		}
		target, isDurable := y.waiting[n-1].commit, y.waiting[n-1].commit <= y.durable
		y.mu.Unlock()
		if failed == nil && !isDurable {
			failed = y.syncLog(log)
		}
		y.finish(n, target, failed)
	}
}

// syncLog syncs the log. Its time is observed under the name of a statement.
func (y *syncer) syncLog(log *os.File) error {
	started := time.Now()
	err := y.sync(log)
	if err != nil {
		err = &job.Error{Kind: job.Unavailable, Op: "store.sync", Msg: "the store's disk fails",
			Err: err}
	}
	y.observe("SYNC", time.Since(started), err)
	return err
}

// finish answers the first n groups after a sync.
func (y *syncer) finish(n int, target uint64, failed error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if failed == nil {
		y.durable = max(y.durable, target)
	} else {
		y.failed = failed
	}
	for _, g := range y.waiting[:n] {
		release(g.members, failed)
	}
	y.waiting = append(y.waiting[:0:0], y.waiting[n:]...)
	y.wakeViews()
}

// close answers what waits and ends the syncer. Nothing may be answered afterwards.
func (y *syncer) close() {
	if y.log == nil {
		return
	}
	close(y.wake)
	<-y.stopped
	y.log.Close()
}
