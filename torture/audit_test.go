package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// scene is a history that a test writes down, one request after another; each takes a millisecond
// and begins a millisecond after the one before, unless it says otherwise.
type scene struct {
	now   int64
	ops   []*op
	final final
}

func newScene() *scene {
	return &scene{final: final{Jobs: map[string]finalJob{}, Dead: map[string]deadLetter{},
		Counts: map[string]counts{}}}
}

const second = int64(time.Second / time.Microsecond)

// add adds a request after a pause.
func (s *scene) add(pause int64, o op) *op {
	s.now += pause + 1000
	o.ID, o.Invoked, o.Returned = int64(len(s.ops)+1), s.now, s.now+1000
	if o.Class == "" {
		o.Class = classOK
	}
	s.now += 1000
	s.ops = append(s.ops, &o)
	return &o
}

// create adds the create of a job of Relay.
func (s *scene) create(id string, change ...func(*made)) *op {
	m := made{Job: id, Queue: relayQueues[0], Payload: fmt.Sprintf(`{"of":%q}`, id)}
	for _, fn := range change {
		fn(&m)
	}
	return s.add(0, op{Contract: relay, Verb: "submit", Made: []made{m}})
}

// claim adds a claim that takes a run of a job for two seconds.
func (s *scene) claim(pause int64, job, run string) *op {
	return s.add(pause, op{Contract: relay, Verb: "claim", Queue: relayQueues[0],
		Claimed: []claimedJob{{Job: job, Run: run, Lease: 2 * second, Fresh: true,
			Payload: fmt.Sprintf(`{"of":%q}`, job)}}})
}

// write adds a request under a run.
func (s *scene) write(pause int64, verb, job, run string, c class) *op {
	return s.add(pause, op{Contract: relay, Verb: verb, Job: job, Run: run, Class: c})
}

// present puts a job that was sent into what is there at the end.
func (s *scene) present(job, queue, phase string) {
	s.final.Jobs[job] = finalJob{Queue: queue, Status: "present",
		Payload: fmt.Sprintf(`{"of":%q}`, job)}
	s.final.Rows = append(s.final.Rows, row{relay, queue, job, phase, ""})
}

var relayScenes = []struct {
	name  string
	write func(*scene)
	want  string // the beginning of the one violation; "" for none
}{
	{"completed", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
	}, ""},
	{"acknowledged and gone", func(s *scene) { s.create("a") }, "I1"},
	{"unknown and gone", func(s *scene) { s.create("a").Class = classUnknown }, ""},
	{"its complete is unknown", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classUnknown)
	}, ""},
	{"its complete was refused", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classFailed)
	}, "I1"},
	{"a stale complete does not explain it", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.claim(3*second, "a", "2")
		s.write(0, "complete", "a", "1", classUnknown)
	}, "I1"},
	{"a dead letter", func(s *scene) {
		s.create("a", func(m *made) { m.Limit = 1 })
		s.claim(0, "a", "1")
		s.final.Dead["a"] = deadLetter{1}
	}, ""},
	{"given up early", func(s *scene) {
		s.create("a", func(m *made) { m.Limit = 3 })
		s.final.Dead["a"] = deadLetter{1}
	}, "I14"},
	{"never sent", func(s *scene) { s.claim(0, "a", "1") }, "I2"},
	{"refused and claimed", func(s *scene) {
		s.create("a").Class = classFailed
		s.claim(0, "a", "1")
	}, "I2"},
	{"another payload", func(s *scene) {
		s.create("a", func(m *made) { m.Payload = `{"of":"a","n":1}` })
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
	}, "I2"},
	{"payloads of two jobs that were exchanged", func(s *scene) {
		for _, id := range []string{"a", "b"} {
			s.create(id)
		}
		for _, ids := range []string{"ab", "ba"} {
			own, other := ids[:1], ids[1:]
			s.claim(0, own, own+"1").Claimed[0].Payload = fmt.Sprintf(`{"of":%q}`, other)
			s.write(0, "complete", own, own+"1", classOK)
		}
	}, "I2"},
	{"one that nobody sent with the payload of another one", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue })
		s.present("a", parkedQueue, "waiting")
		s.claim(0, "b", "1").Claimed[0].Payload = `{"of":"a"}`
	}, "I2"},
	{"two leases", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.claim(second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, "I3"},
	{"one lease after another", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.claim(2*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, ""},
	{"a heartbeat prolongs the lease", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(second, "heartbeat", "a", "1", classOK).Body = "1"
		s.claim(3*second/2, "a", "2").Claimed[0].State = "1"
		s.write(0, "complete", "a", "2", classOK)
	}, "I3"},
	{"a release may have ended the lease", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "release", "a", "1", classUnknown)
		s.claim(0, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, ""},
	{"an answer that was delayed", func(s *scene) { // carried out before the other claim
		s.create("a")
		late := s.claim(0, "a", "1")
		s.claim(3*second, "a", "2")
		late.Returned = s.now + 1
		s.now++
		s.write(0, "complete", "a", "2", classOK)
	}, ""},
	{"a stale heartbeat", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.claim(3*second, "a", "2")
		s.write(0, "heartbeat", "a", "1", classOK)
		s.write(0, "complete", "a", "2", classOK)
	}, "I5"},
	{"a run that was made up", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "0", classOK)
		s.write(0, "complete", "a", "1", classOK)
	}, "I5"},
	{"completed twice", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
		s.write(0, "complete", "a", "1", classOK)
	}, "I4"},
	{"claimed after its end", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
		s.claim(3*second, "a", "2")
	}, "I4"},
	{"an end that says nothing, within the lease", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK).Silent = true
		s.claim(3*second, "a", "2")
		s.write(0, "complete", "a", "2", classUnknown)
	}, "I4"},
	{"an end that says nothing, after the lease", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(3*second, "complete", "a", "1", classOK).Silent = true
		s.claim(3*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, ""},
	{"early", func(s *scene) {
		s.create("a", func(m *made) { m.DueAt = s.now + second })
		s.claim(0, "a", "1")
		s.write(0, "complete", "a", "1", classOK)
	}, "I6"},
	{"left", func(s *scene) {
		s.create("a")
		s.present("a", relayQueues[0], "waiting")
	}, "I7"},
	{"parked", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue })
		s.present("a", parkedQueue, "waiting")
	}, ""},
	{"not in the tables", func(s *scene) {
		s.create("a", func(m *made) { m.Queue = parkedQueue })
		s.present("a", parkedQueue, "waiting")
		s.final.Rows = nil
	}, "API and SQL differ"},
	{"counted wrong", func(s *scene) {
		s.final.Counts["relay/q"] = counts{Ready: 1}
	}, "I14"},
	{"requeued", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		o := s.write(0, "requeue", "a", "1", classOK)
		o.Silent, o.Made = true, []made{{Job: "b", Payload: `{"of":"b"}`}}
		s.claim(0, "b", "2")
		s.write(0, "complete", "b", "2", classOK)
	}, ""},
	{"requeued into nothing", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		o := s.write(3*second, "requeue", "a", "1", classOK)
		o.Silent, o.Made = true, []made{{Job: "b", Payload: `{"of":"b"}`}}
	}, "I1"},
	{"requeued, and there again", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		o := s.write(0, "requeue", "a", "1", classOK)
		o.Silent, o.Made = true, []made{{Job: "b", Payload: `{"of":"b"}`}}
		s.claim(0, "b", "2")
		s.write(0, "complete", "b", "2", classOK)
		s.claim(3*second, "a", "3")
	}, "I4"},
	{"an older state", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "1", classOK).Body = "1"
		s.write(0, "heartbeat", "a", "1", classOK).Body = "2"
		s.claim(3*second, "a", "2").Claimed[0].State = "1"
		s.write(0, "complete", "a", "2", classOK)
	}, "I1"},
	{"a state that may be newer", func(s *scene) {
		s.create("a")
		s.claim(0, "a", "1")
		s.write(0, "heartbeat", "a", "1", classOK).Body = "1"
		s.write(0, "heartbeat", "a", "1", classUnknown).Body = "2"
		s.claim(3*second, "a", "2").Claimed[0].State = "2"
		s.write(0, "complete", "a", "2", classOK)
	}, ""},
	{"out of order", func(s *scene) {
		for i, id := range []string{"b", "a"} {
			s.create(id, func(m *made) { m.Queue, m.DueAt = orderedQueue, int64(2-i) })
		}
		for _, id := range []string{"b", "a"} {
			s.claim(0, id, id+"1").Queue = orderedQueue
			s.write(0, "complete", id, id+"1", classOK)
		}
	}, "I15"},
	{"a job that was acknowledged beside the claim", func(s *scene) {
		for i, id := range []string{"b", "a"} {
			s.create(id, func(m *made) { m.Queue, m.DueAt = orderedQueue, int64(2-i) })
		}
		asked := s.ops[1].Invoked
		for _, id := range []string{"b", "a"} {
			s.claim(0, id, id+"1").Queue = orderedQueue
			s.write(0, "complete", id, id+"1", classOK)
		}
		s.ops[2].Invoked = asked
	}, ""},
	{"out of order, with a caller that left", func(s *scene) {
		for i, id := range []string{"b", "a"} {
			s.create(id, func(m *made) { m.Queue, m.DueAt = orderedQueue, int64(2-i) })
		}
		left := op{Contract: relay, Verb: "claim", Queue: orderedQueue, Class: classUnknown}
		s.add(0, left).Returned += requestTimeout.Microseconds()
		for _, id := range []string{"b", "a"} {
			s.claim(0, id, id+"1").Queue = orderedQueue
			s.write(0, "complete", id, id+"1", classOK)
		}
	}, ""},
	{"an internal error", func(s *scene) {
		o := s.create("a")
		o.Class, o.Note = classUnknown, "500: ouch"
	}, "answer"},
}

// TestAuditOfRelay checks what the audit makes of histories: what no order of the unknown requests
// explains is a violation, and nothing else is.
func TestAuditOfRelay(t *testing.T) {
	t.Parallel()
	for _, c := range relayScenes {
		t.Run(c.name, func(t *testing.T) { checkScene(t, c.write, c.want) })
	}
}

// TestCountStale: requests under a run that was replaced before they were sent count as stale.
func TestCountStale(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.create("a")
	s.claim(0, "a", "1")
	s.write(0, "heartbeat", "a", "1", classOK)
	s.claim(3*second, "a", "2")
	s.write(0, "heartbeat", "a", "1", classFailed)
	s.write(0, "complete", "a", "1", classFailed)
	s.write(0, "complete", "a", "0", classFailed) // made up
	s.write(0, "complete", "a", "2", classOK)
	if n := check(s.ops, &s.final, &violations{}).countStale(); n != 2 {
		t.Errorf("%d requests are stale, want 2", n)
	}
}

// TestExemptFromOrder: claims within the time in which one that has timed out may hold jobs are
// counted, as the check of the order says nothing about them.
func TestExemptFromOrder(t *testing.T) {
	t.Parallel()
	s := newScene()
	left := op{Contract: relay, Verb: "claim", Queue: orderedQueue, Class: classUnknown}
	for i, id := range []string{"a", "b", "c", "d"} {
		s.create(id, func(m *made) { m.Queue = orderedQueue })
		if i == 1 {
			s.add(0, left).Returned += requestTimeout.Microseconds()
		}
		pause := int64(i/3) * (maxClaim + requestTimeout).Microseconds() // before d
		s.claim(pause, id, id+"1").Queue = orderedQueue
		s.write(0, "complete", id, id+"1", classOK)
	}
	if n := check(s.ops, &s.final, &violations{}).exempt; n != 2 {
		t.Errorf("%d claims are exempt, want those of b and c", n)
	}
}

func checkScene(t *testing.T, write func(*scene), want string) {
	s := newScene()
	write(s)
	var v violations
	check(s.ops, &s.final, &v)
	kinds := v.kinds()
	if want != "" { // most of what is wrong has no order either, which is not checked here
		kinds = withoutLives(kinds)
	}
	switch {
	case want == "" && len(kinds) > 0:
		t.Errorf("found %q, want nothing", v.examples)
	case want != "" && (len(kinds) != 1 || !strings.HasPrefix(kinds[0], want)):
		t.Errorf("found %q, want %s alone", v.examples, want)
	}
}

// withoutLives returns invariants without I17.
func withoutLives(kinds []string) []string {
	return slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "I17")
	})
}

// flow adds a job of TaskFlow that has run to its end, under a status.
func (s *scene) flow(name, status string, limit int, deps ...string) {
	m := made{Job: "id-" + name, Name: name, Queue: taskflowQueues[0], Limit: limit, Deps: deps,
		Payload: fmt.Sprintf(`{"of":%q}`, name)}
	s.add(0, op{Contract: taskflow, Verb: "submit", Key: "key-" + name, Made: []made{m}})
	j := finalJob{Queue: m.Queue, Name: name, Status: status, Payload: m.Payload}
	for _, d := range deps {
		j.Deps = append(j.Deps, "id-"+d)
	}
	phase := "finished"
	if status == "PENDING" || status == "READY" {
		phase = "waiting"
	}
	if status == "COMPLETED" || status == "FAILED" {
		s.claim(0, m.Job, name+"1")
		s.ops[len(s.ops)-1].Claimed[0].Payload = m.Payload
	}
	switch status {
	case "COMPLETED":
		s.write(0, "complete", m.Job, name+"1", classOK).Contract = taskflow
		j.Result = fmt.Sprintf(`{"run":%q}`, name+"1")
	case "FAILED":
		j.Failures = limit
		s.write(0, "fail", m.Job, name+"1", classOK).Contract = taskflow
	}
	s.final.Jobs[m.Job] = j
	s.final.Rows = append(s.final.Rows, row{taskflow, m.Queue, m.Job, phase, status})
}

// change changes a job at the end.
func (s *scene) change(name string, fn func(*finalJob)) {
	j := s.final.Jobs["id-"+name]
	fn(&j)
	s.final.Jobs["id-"+name] = j
}

// TestAuditOfTaskFlow is TestAuditOfRelay for graphs, attempts and idempotency keys.
func TestAuditOfTaskFlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		write func(*scene)
		want  []string // the beginnings of all violations
	}{
		{"in order", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.flow("b", "COMPLETED", 3, "a")
		}, nil},
		{"started before its dependency", func(s *scene) {
			s.flow("b", "COMPLETED", 3, "a")
			s.flow("a", "COMPLETED", 3)
		}, []string{"I9"}},
		{"blocked", func(s *scene) {
			s.flow("a", "FAILED", 1)
			s.flow("b", "BLOCKED", 1, "a")
		}, nil},
		{"not blocked", func(s *scene) {
			s.flow("a", "FAILED", 1)
			s.flow("b", "PENDING", 1, "a")
		}, []string{"I7", "I9"}},
		{"a dependency is missing", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.flow("b", "COMPLETED", 3, "a")
			s.change("b", func(j *finalJob) { j.Deps = nil })
		}, []string{"I9"}},
		{"the outcome of another run", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.change("a", func(j *finalJob) { j.Result = `{"run":"a0"}` })
		}, []string{"I1"}},
		{"failures that do not count", func(s *scene) {
			s.flow("a", "FAILED", 1)
			s.change("a", func(j *finalJob) { j.Failures = 0 })
		}, []string{"I14"}},
		{"more attempts than allowed", func(s *scene) {
			s.flow("a", "FAILED", 1)
			s.change("a", func(j *finalJob) { j.Failures = 2 })
		}, []string{"I14"}},
		{"a second job of a key", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			again := *s.ops[0]
			again.Made = []made{again.Made[0]}
			again.Made[0].Job = "id-other"
			s.add(0, again)
		}, []string{"I8"}},
		{"another request under a key", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			again := *s.ops[0]
			again.Verb = "submit-other"
			s.add(0, again)
		}, []string{"I8"}},
		{"payloads of two jobs that were exchanged", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.flow("b", "COMPLETED", 3)
			s.change("a", func(j *finalJob) { j.Payload = `{"of":"b"}` })
			s.change("b", func(j *finalJob) { j.Payload = `{"of":"a"}` })
		}, []string{"I2"}},
		{"a payload of another job, and no answer to its create", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.flow("b", "COMPLETED", 3)
			s.ops[3].Class, s.ops[3].Made[0].Job = classUnknown, ""
			s.change("b", func(j *finalJob) { j.Payload = `{"of":"a"}` })
		}, []string{"I2"}},
		{"shown as what it is not", func(s *scene) {
			s.flow("a", "COMPLETED", 3)
			s.final.Rows[0].State = "FAILED"
		}, []string{"API and SQL differ"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.write(s)
			var v violations
			check(s.ops, &s.final, &v)
			kinds := v.kinds()
			if len(c.want) > 0 {
				kinds = withoutLives(kinds)
			}
			if !slices.EqualFunc(kinds, c.want, strings.HasPrefix) {
				t.Errorf("found %q, want %q", v.examples, c.want)
			}
		})
	}
}

// TestSchedules: a seed gives one schedule, another seed another one, and faults do not overlap.
func TestSchedules(t *testing.T) {
	t.Parallel()
	plans := map[string]bool{}
	for _, args := range []string{"-seed 1", "-seed 1", "-seed 2",
		"-seed 1 -store postgres -nodes 2"} {
		p, _, err := readPlan(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		all := p.schedule()
		for i := range all[1:] {
			if all[i].At+all[i].Length > all[i+1].At {
				t.Errorf("%s: %s and %s overlap", args, all[i], all[i+1])
			}
		}
		plans[fmt.Sprint(all)] = true
	}
	if len(plans) != 3 {
		t.Errorf("three seeds and stores gave %d schedules", len(plans))
	}
}
