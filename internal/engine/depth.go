package engine

import (
	"sync/atomic"
	"time"
)

// depth says how many groups of one verb are served at a time: as many as keep the database busy
// while the commits of others wait for a disk or a standby.
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
	statements movingMean // of the groups of this verb, with what they wait for locks
	all        *transactions
}

// transactions is what the groups of all verbs of an engine share: connections, and how long a
// commit takes, which a verb that is seldom used knows from the others.
type transactions struct {
	writers int
	serving atomic.Int64 // groups
	commits movingMean
}

// minDepth pays where a commit is short: the database works for one group during the commit of the
// other, and more groups would be smaller ones. One verb has no more than maxDepth groups, and no
// more than its share of the connections, as each group has one. A group beyond minDepth begins
// only where the groups of all verbs leave one connection in shareOfOthers to whoever reads.
const (
	minDepth       = 2
	maxDepth       = 8
	shareOfWriters = 3
	shareOfOthers  = 4
)

// newDepth makes the depth of a verb.
func newDepth(all *transactions) *depth {
	limit := max(minDepth, min(maxDepth, all.writers/shareOfWriters))
	return &depth{limit: min(limit, all.writers), all: all}
}

// observe takes in how long the transaction of a group took for its statements and for its commit.
func (d *depth) observe(statements, commit time.Duration) {
	d.statements.observe(statements)
	d.all.commits.observe(commit)
}

// groups returns how many groups of the verb may be served at a time.
func (d *depth) groups() int {
	statements := d.statements.value()
	if statements == 0 { // none was observed
		return min(d.limit, minDepth)
	}
	return min(d.limit, minDepth+int(d.all.commits.value()/max(statements, time.Microsecond)))
}

// mayServe reports whether another group may begin beside those of the verb that are served.
func (d *depth) mayServe(serving int) bool {
	if serving < min(d.limit, minDepth) {
		return true
	}
	left := d.all.writers - int(d.all.serving.Load())
	return serving < d.groups() && left > d.all.writers/shareOfOthers
}

// movingMean is a mean of durations in which the newest has a weight of one in eight. One that is
// longer than outlier times the mean counts as so long, so that a single wait for a lock, or for a
// standby that went away, changes little.
type movingMean struct{ nanoseconds atomic.Int64 }

const outlier = 8

// observe leaves a duration out where another is observed at the same moment.
func (m *movingMean) observe(d time.Duration) {
	mean, newest := m.nanoseconds.Load(), int64(d)
	if mean > 0 {
		longest := outlier * max(mean, int64(time.Microsecond))
		newest = mean + (min(newest, longest)-mean)/8
	}
	m.nanoseconds.CompareAndSwap(mean, newest)
}

func (m *movingMean) value() time.Duration { return time.Duration(m.nanoseconds.Load()) }
