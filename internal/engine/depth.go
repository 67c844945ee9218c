package engine

import (
	"sync/atomic"
	"time"
)

// depth says how many groups of one verb are served at a time: as many as keep the database busy
// while the commits of others wait for a disk or a standby. It follows what the groups of the
// engine, of all verbs, have taken lately.
//
//	depth 2, a short commit        depth 4, a commit of twice the statements
//	[statements|commit]           [statements|------commit------]
//	           [statements|commit]           [statements|------commit------]
//	                                                    [statements|------commit------]
//	                                                               [statements|------commit------]
//
// With one writer it is one: a second group would only split the first.
type depth struct {
	limit      int
	statements movingMean
	commits    movingMean
}

// minDepth pays where a commit is short: the database works for one group during the commit of the
// other, and more groups would be smaller ones. One verb has no more than maxDepth groups, and no
// more than its share of the connections, as each group has one.
const (
	minDepth       = 2
	maxDepth       = 8
	shareOfWriters = 3 // one in three
)

// newDepth makes the depth for a store with so many writers.
func newDepth(writers int) *depth {
	limit := max(minDepth, min(maxDepth, writers/shareOfWriters))
	return &depth{limit: min(limit, writers)}
}

// observe takes in how long the transaction of a group took for its statements and for its commit.
func (d *depth) observe(statements, commit time.Duration) {
	d.statements.observe(statements)
	d.commits.observe(commit)
}

// groups returns how many groups of a verb may be served at a time.
func (d *depth) groups() int {
	statements := max(d.statements.value(), time.Microsecond)
	return min(d.limit, minDepth+int(d.commits.value()/statements))
}

// movingMean is a mean of durations in which the newest has a weight of one in eight.
type movingMean struct{ nanoseconds atomic.Int64 }

// observe leaves a duration out where another is observed at the same moment.
func (m *movingMean) observe(d time.Duration) {
	mean := m.nanoseconds.Load()
	m.nanoseconds.CompareAndSwap(mean, mean+(int64(d)-mean)/8)
}

func (m *movingMean) value() time.Duration { return time.Duration(m.nanoseconds.Load()) }
