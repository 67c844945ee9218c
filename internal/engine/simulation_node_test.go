package engine_test

import (
	"time"

	"github.com/millrace/millrace/internal/job"
)

// modelNode is what the model has a node remember of the store's clock: the rules of the clock
// guard, by which leases outlive jumps and stalls. A nil modelNode knows of none.
type modelNode struct {
	read         bool // the clock was read
	wall         time.Time
	monotonic    time.Duration // at the last reading
	jumped       time.Time     // the clock after it last stood still for workers; zero is never
	jumpedBack   bool          // and leases are still to be cut
	refused      bool          // the store has let no update begin since
	refusedSince time.Duration
}

// maxDrift is by how much two clocks may differ from one reading to the next, and how long the
// store may be silent, before it is no longer the workers who were late.
const maxDrift = time.Second

// spares reports whether a lease that has ended by the clock is one that the worker had no time to
// extend.
func (n *modelNode) spares(j modelJob, now time.Time) bool {
	return n != nil && j.UpdatedAt.Before(n.jumped) && n.jumped.Add(j.Lease).After(now)
}

// sees is a reading of the store's clock in an update that began to wait for the store at before
// and was let in at after, by the node's own clock.
func (n *modelNode) sees(wall time.Time, before, after time.Duration) {
	since := before
	if n.refused {
		since = n.refusedSince
	}
	if n.refused = false; after-since > maxDrift && wall.After(n.jumped) {
		n.jumped = wall
	}
	if n.read {
		ahead := wall.Sub(n.wall)
		switch {
		case ahead > after-n.monotonic+maxDrift:
			n.jumped = wall
		case ahead < -maxDrift && before >= n.monotonic:
			n.jumpedBack = true
			if n.jumped.After(wall) { // it is not ahead any more
				n.jumped = wall
			}
		case ahead <= 0:
			return
		}
	}
	n.read, n.wall, n.monotonic = true, wall, before
}

// refuses notes that the store did not let an update begin.
func (n *modelNode) refuses(at time.Duration) {
	if !n.refused {
		n.refused, n.refusedSince = true, at
	}
}

// cutLeases is what a node does about leases from before a jump of the clock back.
func (m *model) cutLeases() {
	for seq, j := range m.jobs {
		if latest := m.now.Add(j.Lease); j.Phase == job.Leased && j.LeaseUntil.After(latest) {
			j.LeaseUntil = latest
			m.jobs[seq] = j
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
