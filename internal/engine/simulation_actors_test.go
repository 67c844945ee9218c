package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// onceRequest is a request with an idempotency key, which its client may send again at any time.
type onceRequest struct {
	engine.Submission
	window time.Duration
}

// submitOnce sends a request with an idempotency key, often once more.
func (s *simulation) submitOnce() {
	if len(s.once) == 0 || s.random.IntN(3) == 0 {
		jobType := pick(s.lockstep, "phased", "graph", "locked")
		r := onceRequest{sub(fmt.Sprintf("%s/o%d", jobType, s.random.IntN(40)),
			limit(s.random.IntN(4))), pick(s.lockstep, 0, time.Hour, 24*time.Hour)}
		r.Job.Alias = job.AliasOf(jobType, "", strconv.Itoa(s.random.IntN(30)))
		r.Job.Payload = []byte(fmt.Sprint("request ", s.random.IntN(3)))
		s.once = append(s.once, r)
		s.once = s.once[max(0, len(s.once)-20):]
	}
	r := pick(s.lockstep, s.once...)
	want := s.model.atomically(func() string { return s.model.submitOnce(r) })
	op := fmt.Sprintf("submitOnce %s%s for %s", describe(subs(r.Submission)), r.Job.Payload,
		r.window)
	s.compareAnswer(op, trimError(want), func(side *side) string {
		submitted, err := side.engine.SubmitOnce(side.ctx, engine.Idempotency{Alias: r.Job.Alias,
			Window: r.window, IsSame: func(j *job.Job) bool {
				return bytes.Equal(j.Payload, r.Job.Payload)
			}}, subs(r.Submission))
		if err != nil {
			return outcome(err, "")
		}
		return fmt.Sprint(submitted.Existed, " ", name(submitted.Job.ID))
	})
}

func trimError(want string) string {
	if want != "" && want[0] == '!' {
		return want[1:]
	}
	return want
}

// submitOnce stores the job of a request, unless the same request has made one.
func (m *model) submitOnce(r onceRequest) string {
	var holder modelJob
	for _, j := range m.jobs {
		if j.Alias == r.Job.Alias {
			holder = j
		}
	}
	expired := r.window > 0 && m.now.Sub(holder.CreatedAt) >= r.window
	switch {
	case holder.Seq == 0:
	case !expired && bytes.Equal(holder.Payload, r.Job.Payload):
		return "true " + name(holder.ID)
	case !expired:
		return "!" + job.Conflict.String()
	default:
		holder.Alias = job.IdentityHash{}
		m.jobs[holder.Seq] = holder
	}
	if answer := m.submit(engine.Unique, subs(r.Submission)); answer[0] == '!' {
		return answer
	}
	return "false " + name(r.Job.ID)
}

// expire is the sweep of leases. After a jump of the clock back it cuts leases first, in an update
// of its own.
func (s *simulation) expire() {
	cuts := s.node.model.jumpedBack
	if cuts && s.store.isDown { // it cannot even read which leases there are
		_, err := s.node.engine.Expire(s.side.ctx)
		s.note("%s: expire, %v", s.node.name, err)
		s.side.wantKind(err, job.Unavailable)
		return
	}
	s.node.model.jumpedBack = false
	s.begin()
	leased := slices.ContainsFunc(slices.Collect(maps.Values(s.model.jobs)),
		func(j modelJob) bool { return j.Phase == job.Leased })
	want := ""
	if cuts = cuts && leased; cuts {
		s.model.cutLeases()
	}
	if kind := s.store.fault.kind; !cuts || kind == noFault || kind == delayed {
		want = strconv.Itoa(s.model.expire(nil))
	}
	s.compareAnswer("expire", want, func(side *side) string {
		n, err := side.engine.Expire(side.ctx)
		return outcome(err, strconv.Itoa(n))
	})
	if cuts && s.store.hit {
		s.node.model.jumpedBack = true
	}
}

func (s *simulation) promote() {
	s.compareAnswer("promote", strconv.Itoa(s.model.promoteDue()), func(side *side) string {
		n, err := side.engine.Promote(side.ctx)
		return outcome(err, strconv.Itoa(n))
	})
}

// setQueue changes a queue on one node, and the others load it.
func (s *simulation) setQueue() {
	s.lockstep.setQueue()
	for _, n := range s.nodes {
		if err := n.engine.LoadQueues(s.side.ctx); err != nil && !s.store.isDown &&
			!s.store.fault.crashes {
			s.Fatal(err)
		}
	}
}

// anyFault draws a fault at one of the updates of a verb that has many.
func (s *simulation) anyFault() {
	s.store.plan(fault{})
	if s.random.IntN(4) == 0 {
		s.store.plan(fault{kind: pick(s.lockstep, refused, rolledBack, answerLost),
			at: 1 + s.random.IntN(7), crashes: s.random.IntN(4) == 0})
	}
}

// prune deletes what is past its retention: after a failure the next node goes on.
func (s *simulation) prune() {
	if s.store.isDown {
		return
	}
	s.anyFault()
	s.see()
	var err error
	for n := 1; n > 0; {
		if n, err = s.node.engine.Prune(s.side.ctx); err != nil {
			break
		}
	}
	s.note("%s: prune, %v", s.node.name, err)
	switch {
	case err == nil:
	case !s.store.hit:
		s.fail("prune: %v", err)
	default:
		s.faults["prune fails"]++
		s.afterFault()
		s.prune()
		return
	}
	s.model.prune()
}

// see has a node read the clock in a verb of many updates.
func (s *simulation) see() {
	if s.store.fault.kind == refused && s.store.fault.at == 1 {
		return
	}
	now := s.monotonic(s.node)
	s.node.model.sees(s.model.now, now, now)
}

// afterFault is what a node does after a verb of many updates that failed.
func (s *simulation) afterFault() {
	if s.store.fault.crashes {
		s.restart(s.node)
	} else if s.store.fault.kind == refused {
		s.node.model.refuses(s.monotonic(s.node))
	}
	s.store.plan(fault{})
}

var errReceiver = errors.New("the receiver is not available")

// publish delivers messages, unless the other node may do so; the receiver may fail. What was
// delivered may come again after a failure.
func (s *simulation) publish() {
	if s.store.isDown {
		return
	}
	s.anyFault()
	s.see()
	left := s.random.IntN(4) // batches until the receiver fails
	fails := s.random.IntN(5) == 0
	n, err := s.node.engine.Publish(s.side.ctx,
		func(_ context.Context, batch []job.Message) error {
			if left--; fails && left < 0 {
				return errReceiver
			}
			for _, m := range batch {
				line := fmt.Sprintf("%s %s %s>%s", name(m.JobID), m.Cause, m.Prev, m.Next)
				if was, again := s.sent[m.ID]; again && was != line {
					s.fail("message %d was delivered as %s and as %s", m.ID, was, line)
				}
				s.sent[m.ID] = line
			}
			return nil
		})
	s.note("%s: publish → %d, %v", s.node.name, n, err)
	if err != nil && !s.store.hit && !errors.Is(err, errReceiver) {
		s.fail("publish: %v", err)
	}
	if s.store.hit {
		s.faults["publish fails"]++
		s.afterFault()
	}
	s.compareMessages()
}

// compareMessages checks that what was delivered and what waits for it together are the messages of
// the model, in the order of each job.
func (s *simulation) compareMessages() {
	all, waiting := maps.Clone(s.sent), 0
	s.side.noError(s.store.Store.Update(s.side.ctx, func(tx store.Tx) error {
		messages, err := tx.Messages([]string{"phased", "graph"}, 1_000_000)
		waiting = len(messages)
		for _, m := range messages {
			all[m.ID] = fmt.Sprintf("%s %s %s>%s", name(m.JobID), m.Cause, m.Prev, m.Next)
		}
		return err
	}))
	var got []string
	for _, id := range slices.Sorted(maps.Keys(all)) {
		got = append(got, all[id])
	}
	got, want := byJob(got), byJob(s.model.out)
	if !slices.Equal(got, want) {
		s.fail("only the engine has the messages\n%s\nonly the model\n%s", missing(got, want),
			missing(want, got))
	}
	if waiting == 0 {
		clear(s.sent)
		s.model.out = nil
	}
}

// pass lets time pass.
func (s *simulation) pass() {
	d := pick(s.lockstep, 100*time.Millisecond, time.Second, 5*time.Second, 15*time.Second,
		31*time.Second, 2*time.Minute)
	if s.random.IntN(5) == 0 {
		d = time.Duration(1+s.random.IntN(180)) * time.Minute
	}
	s.model.now = s.model.now.Add(d)
	s.clock.Advance(d)
	s.note("%s pass", d)
}

// jump sets the clock of the store.
func (s *simulation) jump() {
	d := pick(s.lockstep, 900*time.Millisecond, 2*time.Second, time.Minute, time.Hour, 6*time.Hour)
	if s.random.IntN(2) == 0 {
		d = -d
	}
	s.faults["clock jumps"]++
	s.model.now = s.model.now.Add(d)
	s.clock.Jump(d)
	s.note("the clock jumps by %s", d)
}

// suspend lets time pass in which a node and its clock stand still.
func (s *simulation) suspend() {
	d := pick(s.lockstep, 2*time.Second, time.Minute, time.Hour)
	s.faults["suspended"]++
	s.model.now = s.model.now.Add(d)
	s.clock.Advance(d)
	s.node.lag += d
	s.note("%s is suspended for %s", s.node.name, d)
}

func (s *simulation) crash() {
	s.faults["crashes"]++
	s.note("%s crashes", s.node.name)
	s.restart(s.node)
}

// restart replaces a process that has died. What it knew of the clock is gone with it.
func (s *simulation) restart(n *simulatedNode) {
	n.engine.Close()
	at := slices.Index(s.nodes, n)
	s.nodes[at] = s.newNode()
	s.node = s.nodes[at]
	s.side.engine, s.model.node = s.node.engine, s.node.model
}

// stop makes the store unavailable for some steps.
func (s *simulation) stop() {
	s.faults["outages"]++
	s.store.isDown = true
	s.note("the store is unavailable")
}

// heal makes the store available again, sooner or later.
func (s *simulation) heal() {
	if s.store.isDown && s.random.IntN(8) == 0 {
		s.store.isDown = false
		s.note("the store is available again")
	}
}
