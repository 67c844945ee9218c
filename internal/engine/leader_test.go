package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
)

// Of a crowd on two nodes those of one node do the work of a role, until its term ends.
func TestAsLeader(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		nodes := []*engine.Engine{w.engine, w.node(testJobTypes())}
		refused := errors.New("refused")
		do := func(node *engine.Engine, role string) bool {
			worked := false
			err := node.AsLeader(w.ctx, role, time.Minute, func(ctx context.Context) error {
				worked = true
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Minute {
					t.Error("the work has no end")
				}
				return refused
			})
			if worked != errors.Is(err, refused) || (!worked && err != nil) {
				t.Errorf("worked %t: %v", worked, err)
			}
			return worked
		}
		worked := map[int]int{}
		for i, did := range testkit.RunConcurrently(20, func(i int) bool {
			return do(nodes[i%2], "sweep")
		}) {
			if did {
				worked[i%2]++
			}
		}
		leader := 0
		if worked[1] > 0 {
			leader = 1
		}
		if len(worked) != 1 || worked[leader] != 10 {
			t.Fatalf("worked %v", worked)
		}
		if !do(nodes[1-leader], "another role") {
			t.Error("a role hangs on another")
		}
		w.clock.Advance(time.Minute - time.Microsecond)
		if do(nodes[1-leader], "sweep") {
			t.Error("another node worked within the term")
		}
		w.clock.Advance(time.Microsecond)
		if !do(nodes[1-leader], "sweep") || do(nodes[leader], "sweep") {
			t.Error("the term has not ended, or the next has not started")
		}
	})
}
