package main

import (
	"testing"
)

// read adds a read that shows a job of Relay under a run.
func (s *scene) read(job, run, state string) *op {
	o := s.add(0, op{Contract: relay, Verb: "read", Job: job})
	o.Seen = &seen{run, state}
	return o
}

// refused makes a request one that was refused with a status.
func (o *op) refused(status int) *op {
	o.Class, o.Status, o.Seen = classFailed, status, nil
	return o
}

var lifeScenes = []struct {
	name  string
	write func(*scene)
	isBad bool
}{
	{"read all the way", func(s *scene) {
		s.create("a")
		s.read("a", "", "null")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "1", classOK).Body = "7"
		s.read("a", "1", "7")
		s.write(0, "complete", "a", "1", classOK)
		s.read("a", "", "").refused(404)
	}, false},
	{"a read that lags behind a create", func(s *scene) {
		s.create("a")
		s.read("a", "", "").refused(404)
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
	}, true},
	{"a read that lags behind a heartbeat", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "1", classOK).Body = "7"
		s.read("a", "1", "null")
		s.write(0, "complete", "a", "1", classOK)
	}, true},
	{"a read that lags behind a complete", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
		s.read("a", "1", "null")
	}, true},
	{"a read beside a complete shows either", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		o := s.write(0, "complete", "a", "1", classOK)
		s.read("a", "1", "null")
		s.read("a", "", "").refused(404)
		o.Returned = s.now
	}, false},
	{"reads beside a complete go back", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		o := s.write(0, "complete", "a", "1", classOK)
		s.read("a", "", "").refused(404)
		s.read("a", "1", "null")
		o.Returned = s.now
	}, true},
	{"reads show an unknown complete, and take it back", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classUnknown)
		s.read("a", "", "").refused(404)
		s.read("a", "1", "null")
	}, true},
	{"an unknown complete that came late", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classUnknown)
		s.read("a", "1", "null")
		s.write(0, "heartbeat", "a", "1", classOK).Body = "7"
		s.write(0, "heartbeat", "a", "1", classUnknown).refused(404)
	}, false},
	{"an unknown create that was carried out", func(s *scene) {
		s.create("a").Class = classUnknown
		s.read("a", "", "").refused(404)
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
	}, false},
	{"an unknown create that never was", func(s *scene) {
		s.create("a").Class = classUnknown
		s.read("a", "", "").refused(404)
	}, false},
	{"submitted again", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue })
		again := *s.ops[0]
		again.Verb = "submit-again"
		s.add(0, again).refused(409)
		s.present("a", parkedQueue, "waiting")
	}, false},
	{"submitted twice", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue })
		again := *s.ops[0]
		again.Verb = "submit-again"
		s.add(0, again)
		s.present("a", parkedQueue, "waiting")
	}, true},
	{"unknown, there when created again, and lost", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue }).Class = classUnknown
		again := *s.ops[0]
		again.Verb = "submit-again"
		s.add(0, again).refused(409)
	}, true},
	{"a run of a claim without an answer", func(s *scene) {
		s.create("a")
		s.add(0, op{Contract: relay, Verb: "claim", Queue: relayQueues[0], Class: classUnknown})
		s.read("a", "1", "null")
		s.claim(2*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, false},
	{"a run of a claim without an answer, which is released and no attempt", func(s *scene) {
		s.create("a", func(m *made) { m.Limit = 1 })
		s.add(0, op{Contract: relay, Verb: "claim", Queue: relayQueues[0], Class: classUnknown})
		s.read("a", "1", "null")
		s.claim(0, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, false},
	{"a run of a claim with an answer, which is no attempt", func(s *scene) {
		s.create("a", func(m *made) { m.Limit = 1 })
		s.add(0, op{Contract: relay, Verb: "claim", Queue: relayQueues[0], Class: classUnknown})
		s.claim(0, "a", "1")
		s.read("a", "1", "null")
		s.claim(2*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, true},
	{"a run of nobody", func(s *scene) {
		s.create("a")
		s.read("a", "1", "null")
		s.claim(2*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, true},
	{"claimed within the lease", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.claim(second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, true},
	{"a heartbeat in time is refused", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "1", classOK).refused(404)
		s.write(0, "complete", "a", "1", classOK)
	}, true},
	{"a heartbeat after the lease is refused", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(2*second, "heartbeat", "a", "1", classOK).refused(404)
		s.claim(0, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, false},
	{"a run that was refused goes on", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(2*second, "heartbeat", "a", "1", classOK).refused(404)
		s.write(0, "complete", "a", "1", classOK)
	}, true},
	{"a run more than the limit", func(s *scene) {
		s.create("a", func(m *made) { m.Limit = 1 })
		s.claim(0, "a", "1")
		s.claim(2*second, "a", "2").Claimed[0].Fresh = false
		s.write(0, "complete", "a", "2", classOK)
	}, true},
	{"failures that were forgotten", func(s *scene) {
		s.flow("a", "FAILED", 2)
		s.change("a", func(j *finalJob) { j.Failures = 2 })
	}, true},
	{"the payload of another job", func(s *scene) {
		s.flow("a", "COMPLETED", 1)
		s.flow("b", "COMPLETED", 1)
		for i, o := range []*op{s.ops[1], s.ops[4]} {
			o.Claimed[0].Payload = s.ops[3-3*i].Made[0].Payload
		}
	}, true},
}

// TestLives: a history that no order of its requests explains is found by the search for one alone,
// and one that has an order is not, whatever the requests with unknown outcomes may have done.
func TestLives(t *testing.T) {
	t.Parallel()
	for _, c := range lifeScenes {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.write(s)
			var v violations
			found := check(s.ops, &s.final, &v).lifeCounts
			if found.Undecided > 0 || (found.Unordered > 0) != c.isBad ||
				found.Ordered+found.Unordered == 0 {
				t.Errorf("found %+v: %q", found, v.examples)
			}
		})
	}
}

// TestUndecidedLives: a search that takes too long is counted, and is not taken for an order.
func TestUndecidedLives(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.create("a")
	s.claim(0, "a", "1")
	for range 40 {
		s.write(0, "heartbeat", "a", "1", classUnknown).Body = s.ops[len(s.ops)-1].Verb +
			string(rune('A'+len(s.ops)))
	}
	s.read("a", "1", "none of these")
	var v violations
	if found := check(s.ops, &s.final, &v).lifeCounts; found.Undecided != 1 {
		t.Errorf("found %+v, want one that is not decided: %q", found, v.examples)
	}
}
