package main

import (
	"cmp"
	"os"
	"sync"
	"time"
)

// class says what is certain about a request.
type class string

const (
	classOK      class = "ok"      // carried out, or answered as if it were
	classFailed  class = "failed"  // refused, or never sent: without an effect
	classUnknown class = "unknown" // cut off, or answered 429 or 5xx: with or without an effect
)

// op is one request, or what one with several runs does with one of them. Times are microseconds
// since 1970 that never go back.
type op struct {
	ID       int64        `json:"op"`
	Batch    int64        `json:"batch,omitempty"` // the first op of the request, where it has several
	Actor    string       `json:"actor"`
	Contract string       `json:"contract"`
	Verb     string       `json:"verb"`
	Node     int          `json:"node"`
	Job      string       `json:"job,omitempty"`
	Run      string       `json:"run,omitempty"`
	Queue    string       `json:"queue,omitempty"` // of a claim
	Asked    int          `json:"asked,omitempty"` // jobs of a claim
	Key      string       `json:"key,omitempty"`   // for idempotency
	Body     string       `json:"body,omitempty"`  // state or result that the request sets
	Final    bool         `json:"final,omitempty"` // a failure that is not to be retried
	Made     []made       `json:"made,omitempty"`  // jobs that the request makes
	Silent   bool         `json:"silent,omitempty"`
	Later    bool         `json:"later,omitempty"` // carried out some time after it is answered
	Invoked  int64        `json:"invoked"`
	Returned int64        `json:"returned,omitempty"` // 0 while the request is open
	Status   int          `json:"status,omitempty"`
	Class    class        `json:"class,omitempty"`
	Claimed  []claimedJob `json:"claimed,omitempty"` // of a claim
	Seen     *seen        `json:"seen,omitempty"`    // of a read
	Note     string       `json:"note,omitempty"`    // what was wrong with the answer
}

// made is a job as it was sent. Job is empty for one that the server names, until it has.
type made struct {
	Job      string   `json:"job"`
	Name     string   `json:"name,omitempty"`
	Queue    string   `json:"queue"`
	DueAt    int64    `json:"due_at,omitempty"`
	Priority int      `json:"priority,omitempty"`
	Limit    int      `json:"limit,omitempty"` // attempts; 0 is no limit
	Deps     []string `json:"deps,omitempty"`
	Payload  string   `json:"payload,omitempty"`
}

// claimedJob is a job in the answer to a claim.
type claimedJob struct {
	Job     string `json:"job"`
	Run     string `json:"run"`
	Queue   string `json:"queue"`
	Lease   int64  `json:"lease"` // microseconds
	Fresh   bool   `json:"fresh"` // no attempt was counted before
	State   string `json:"state,omitempty"`
	Payload string `json:"payload,omitempty"`
}

// seen is a job in the answer to a read.
type seen struct {
	Run   string `json:"run,omitempty"`
	State string `json:"state,omitempty"`
}

// ledger is the record of all requests, outside of the servers. Each is a line of its file before
// it is sent, and another one after its answer, or when there will be none.
type ledger struct {
	start time.Time

	mu   sync.Mutex
	file *os.File
	ops  []*op
	err  error // of the first write that failed
}

// newLedger makes the file of a ledger. One that exists is an error: it is of another run, and so
// is the data beside it.
func newLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return &ledger{start: time.Now(), file: f}, err
}

// now never goes back, even when the clock of the machine is set.
func (l *ledger) now() int64 { return l.start.Add(time.Since(l.start)).UnixMicro() }

// begin records a request that is about to be sent, with all its ops.
func (l *ledger) begin(all ...*op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, o := range all {
		l.ops = append(l.ops, o)
		o.ID, o.Invoked = int64(len(l.ops)), now
		if len(all) > 1 {
			o.Batch = all[0].ID
		}
		l.write(o)
	}
}

// end records what came of a request.
func (l *ledger) end(all ...*op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, o := range all {
		o.Returned = now
		l.write(o)
	}
}

// write appends a line. The file is not synced: the process that writes it is never killed.
func (l *ledger) write(o *op) {
	_, err := l.file.Write(append(encode(o), '\n'))
	l.err = cmp.Or(l.err, err)
}

// close ends the file and returns all requests, and the first error of a write.
func (l *ledger) close() ([]*op, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ops, cmp.Or(l.err, l.file.Close())
}
