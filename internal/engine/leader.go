package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/store"
)

// What one node at a time may do is done by a leader. A node is elected for a role and for a term;
// until the term has ended by the store's clock no other node is elected:
//
//	node a   elected ──────── term ───────┤             no ...
//	node b       no        no          no ├ elected ──────── term ──
//
// The leader may be elected again before its term ends. A publisher does so, as its work never
// ends, and checks its term in the transactions that read the outbox. AsLeader is for work that is
// done once in a while.

// elect makes this node the leader in a role for a term and reports whether it is the leader.
func (u *unit) elect(role string, term time.Duration) (bool, error) {
	elected, err := u.tx.Elect(role, u.e.node, u.now.Add(term))
	if err != nil || !elected {
		return false, err
	}
	u.e.terms.note(role, u.startedAt+term)
	return true, nil
}

// AsLeader calls work if this node is elected for a role, and returns its error. The context of the
// work ends with the term, before another node can be elected. Work that ends earlier leaves the
// rest of the term to this node: within a term only one node starts the work.
func (e *Engine) AsLeader(ctx context.Context, role string, term time.Duration,
	work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, term)
	defer cancel()
	elected := false
	err := e.update(ctx, func(u *unit) (err error) {
		elected, err = u.elect(role, term)
		return err
	})
	if err != nil || !elected {
		return err
	}
	return work(ctx)
}

// ReleaseLeadershipOf ends the terms of a node that has stopped, so that other nodes need not wait
// until they would have ended.
func (e *Engine) ReleaseLeadershipOf(ctx context.Context, former string) error {
	return e.update(ctx, func(u *unit) error {
		_, err := u.tx.Elect(store.NoRole, former, u.now)
		return err
	})
}

// terms are the terms of this node by role: until when they last, by the monotonic clock.
type terms struct {
	mu    sync.Mutex
	until map[string]time.Duration
}

func (t *terms) note(role string, until time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	put(&t.until, role, until)
}

// LeaderRoles returns the roles in which this node is the leader now, sorted.
func (e *Engine) LeaderRoles() []string {
	now := e.guard.monotonic()
	e.terms.mu.Lock()
	defer e.terms.mu.Unlock()
	var roles []string
	for role, until := range e.terms.until {
		if until > now {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return roles
}
