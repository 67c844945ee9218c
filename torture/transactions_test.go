package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// callerScenes are histories with transactions of callers, and the violations that they have.
var callerScenes = []struct {
	name  string
	write func(*scene)
	want  []string // their beginnings
}{
	{"a run that its worker has ended", func(s *scene) {
		s.later("complete", "1", classOK)
		s.final.Committed["1"] = true
	}, nil},
	{"the same, which a read shows later", func(s *scene) {
		s.later("complete", "1", classOK)
		s.final.Committed["1"] = true
		s.add(0, op{Contract: relay, Verb: "read", Job: "a", Seen: &seen{Run: "1"}})
	}, nil},
	{"an end that was committed and is not carried out", func(s *scene) {
		s.later("complete", "1", classUnknown)
		s.final.Committed["1"] = true
		s.present("a", relayQueues[0], "finished")
	}, []string{"I1"}},
	{"an end of which nobody knows, with its row", func(s *scene) {
		s.later("complete", "1", classUnknown)
		s.final.Committed["1"] = true
	}, nil},
	{"an end without its row", func(s *scene) { s.later("complete", "1", classUnknown) },
		[]string{"I1"}},
	{"an end that was rolled back", func(s *scene) {
		s.later("complete", "1", classFailed)
		s.write(0, "complete", "a", "1", classOK)
	}, nil},
	{"a claim after an end that was committed", func(s *scene) {
		s.later("complete", "1", classOK)
		s.final.Committed["1"] = true
		s.claim(3*second, "a", "2")
		s.write(0, "complete", "a", "2", classOK)
	}, []string{"I4"}},
	{"rows that must not be", func(s *scene) {
		s.write(0, "complete", "a", "1", classOK)
		s.final.Callers = []callerFault{{"I2 no phantom", "request"}, {"I7 liveness", "request"}}
	}, []string{"I2", "I7"}},
	{"a job that was rolled back", func(s *scene) {
		s.write(0, "complete", "a", "1", classOK)
		s.add(0, op{Contract: relay, Verb: "submit", Class: classFailed, Later: true,
			Made: []made{{Job: "b", Queue: relayQueues[0]}}})
		s.present("b", relayQueues[0], "finished")
	}, []string{"I2"}},
}

// later adds an end of the run of job a, in a transaction of its worker.
func (s *scene) later(verb, run string, c class) {
	s.write(0, verb, "a", run, c).Later = true
}

// TestCallers: the rows of callers and the ends of their runs are checked together.
func TestCallers(t *testing.T) {
	t.Parallel()
	for _, c := range callerScenes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene()
			s.final.Committed = map[string]bool{}
			s.create("a")
			s.claim(0, "a", "1")
			c.write(s)
			s.final.failUncommitted(s.ops)
			var v violations
			check(s.ops, &s.final, &v)
			var kinds []string
			for _, kind := range v.kinds() {
				var name string
				if _, err := fmt.Sscan(kind, &name); err != nil || name == "I17" {
					continue // it follows from the others
				}
				kinds = append(kinds, name)
			}
			if kinds = slices.Compact(kinds); !slices.Equal(kinds, c.want) {
				t.Errorf("%q, want %q: %q", kinds, c.want, v.examples)
			}
		})
	}
}

// TestNoteOf: what faults do to a connection is no defect, and a statement that is refused is one.
func TestNoteOf(t *testing.T) {
	t.Parallel()
	noted := []string{"MR002", "42601", "22P02"}
	for _, code := range append(noted, "57P01", "53300", "25006", "MR001") {
		err := fmt.Errorf("a query: %w", &pgconn.PgError{Code: code})
		isNoted := slices.Contains(noted, code)
		if (noteOf(err) != "") != isNoted || isRunLost(err) != (code == "MR001") {
			t.Errorf("%s: %q", code, noteOf(err))
		}
	}
	if note := noteOf(errors.New("reset")); note != "" {
		t.Error(note)
	}
}
