package main

import (
	"math"
	"slices"
)

// life is what the clients of one job can know of it. It is the state of the model that checkLives
// gives to porcupine.
type life struct {
	stage  stage
	run    string // the one that has the job; "" for none
	lease  int64  // of that run
	until  int64  // no sooner can the lease of the run have ended
	due    int64  // no sooner can a run begin
	failed int    // attempts that count as failed, or as lost
	state  string // of the last heartbeat
	result string // the run that has completed the job
	shown  string // the run that reads may still show, as its end is recorded alone
}

// stage is where a job stands.
type stage string

const (
	absent  stage = ""            // not stored yet
	open    stage = "open"        // waiting, ready, or claimed
	ended   stage = "ended"       // completed, or requeued
	givenUp stage = "given up"    // failed for good
	never         = math.MaxInt64 // when a request returns whose outcome is unknown
)

// step is one request as far as it is about one job.
type step struct {
	*op
	about   *subject
	verb    string      // of the op, or claimed, of a claim that has taken the job, or final
	claimed *claimedJob // of a claimed job
}

// subject is what the steps of a job share.
type subject struct {
	made
	contract string
	unknown  int // claims of its queue with an unknown outcome: each may have taken the job
	attempts []attempt
	final    *finalJob
	isDead   bool // there is a dead letter of it
}

// hasRun reports whether an answer to a claim had a run of the job.
func (s *subject) hasRun(run string) bool {
	return slices.ContainsFunc(s.attempts, func(g attempt) bool { return g.Run == run })
}

// latest is when a request may have been carried out at the latest.
func (s *step) latest() int64 {
	if s.Class == classUnknown || s.Returned == 0 || (s.Later && s.Verb == "submit") {
		return never
	}
	return s.Returned
}

// next returns the lives that a life may have turned into when a request was carried out that had
// the answer which is in the ledger. There is none where the answer contradicts the life.
func (s *step) next(l life) (all []life) {
	for _, l := range s.alone(l) {
		all = append(all, s.apply(l)...)
	}
	return all
}

// alone returns the lives that a life may have turned into before a request, without one of the
// ledger: a lease has ended, and a job was given up. Claims with an unknown outcome may have used
// up the attempts that are left, or a server has released what it claimed for a caller that had
// left, which is no attempt.
func (s *step) alone(l life) []life {
	all := []life{l}
	if l.stage != open {
		return all
	}
	if l.run != "" {
		if !s.about.hasRun(l.run) {
			all = append(all, s.counted(l.ends())...)
		}
		if s.latest() < l.until {
			return all
		}
		lost := l.ends()
		lost.failed++
		return append(all, s.counted(lost)...)
	}
	if s.about.unknown > 0 {
		return s.counted(l)
	}
	return all
}

// ends returns the life without its run.
func (l life) ends() life {
	l.run, l.lease, l.until = "", 0, 0
	return l
}

// counted returns a life that goes on as long as attempts are left, and is given up where there may
// be none.
func (s *step) counted(l life) (all []life) {
	limit := s.about.Limit
	if limit == 0 || l.failed < limit {
		all = append(all, l)
	}
	if limit > 0 && l.failed+s.about.unknown >= limit {
		l.stage = givenUp
		all = append(all, l)
	}
	return all
}

// apply carries a request out.
func (s *step) apply(l life) []life {
	switch s.verb {
	case "submit", "submit-again", "requeue-into":
		return s.create(l)
	case "claimed":
		return s.begin(l)
	case "read":
		return s.read(l)
	case "final":
		return s.compare(l)
	}
	isCurrent := l.stage == open && l.run == s.Run
	switch {
	case s.Class == classFailed: // it said that the run is not the current one
		return only(l, !isCurrent)
	case isCurrent:
		return s.write(l)
	}
	return only(l, s.Class == classUnknown || s.Silent)
}

// only returns a life if it is possible.
func only(l life, possible bool) []life {
	if !possible {
		return nil
	}
	return []life{l}
}

// create stores a job. A key, or a batch that is refused, says that it was there before. A requeue
// stores it if its run was the current one of another job, which is not known here.
func (s *step) create(l life) []life {
	stored := l
	stored.stage, stored.due = open, s.about.DueAt-slack
	switch {
	case s.Class == classFailed:
		return only(l, l.stage == open)
	case l.stage == absent && s.verb == "requeue-into":
		return []life{l, stored}
	case l.stage == absent:
		return []life{stored}
	}
	return only(l, s.Class == classUnknown || s.Key != "")
}

// begin gives the job to a run. A count of attempts in the answer must be possible.
func (s *step) begin(l life) []life {
	limit := s.about.Limit
	possible := l.stage == open && l.run == "" && s.Returned >= l.due &&
		s.claimed.Payload == s.about.Payload && (limit == 0 || l.failed < limit)
	if limit > 0 && s.claimed.Fresh != (l.failed == 0) {
		possible = possible && !s.claimed.Fresh && s.about.unknown > 0
	}
	if s.about.contract == relay {
		possible = possible && hasState(l, s.claimed.State)
	}
	l.run, l.lease, l.until = s.claimed.Run, s.claimed.Lease, s.Invoked+s.claimed.Lease-slack
	return only(l, possible)
}

// hasState reports whether an answer shows the state of the last heartbeat.
func hasState(l life, shown string) bool {
	return shown == l.state || (shown == "null" && l.state == "")
}

// write changes a job under its current run.
func (s *step) write(l life) []life {
	switch s.verb {
	case "heartbeat":
		l.until = max(l.until, s.Invoked+l.lease-slack)
		if s.about.contract == relay {
			l.state = s.Body
		}
		return []life{l}
	case "release":
		return []life{l.ends()}
	case "fail":
		l = l.ends()
		l.failed++
		if s.Final {
			l.stage = givenUp
			return []life{l}
		}
		l.due = s.Invoked + retryDelay.Microseconds() - slack
		return s.counted(l)
	case "complete":
		l.result = l.run
		if s.Later {
			l.shown = l.run
		}
	}
	l = l.ends()
	l.stage = ended
	return []life{l}
}

// read shows a job of Relay, perhaps under a run that a claim without an answer has taken.
func (s *step) read(l life) []life {
	if s.Class != classOK {
		return only(l, l.stage != open)
	}
	if l.shown != "" && l.shown == s.Seen.Run && hasState(l, s.Seen.State) {
		return []life{l}
	}
	if l.stage != open || !hasState(l, s.Seen.State) {
		return nil
	}
	shown := s.Seen.Run
	if shown != "" && l.run == "" && s.about.unknown > 0 && !s.about.hasRun(shown) {
		l.run = shown
	}
	return only(l, l.run == shown)
}

// compare compares a life with what there is at the end.
func (s *step) compare(l life) []life {
	f := s.about.final
	if s.about.contract == relay {
		return only(l, (f != nil) == (l.stage == open) && s.about.isDead == (l.stage == givenUp))
	}
	if f == nil {
		return only(l, l.stage == absent)
	}
	possible := f.Payload == s.about.Payload && l.failed <= f.Failures &&
		f.Failures <= l.failed+s.about.unknown
	switch f.Status {
	case "COMPLETED":
		possible = possible && l.stage == ended && labelOfRun(f.Result) == l.result
	case "FAILED":
		possible = possible && l.stage == givenUp
	default:
		possible = possible && l.stage == open
	}
	return only(l, possible)
}
