package events

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/webhook"
)

// A subscription selects events by patterns of their type, by contracts, queues and kinds. Each of
// these may be right by itself and all of them together select nothing, such as taskflow.job.* with
// the contract relay. Nobody would notice: a webhook that never fires looks as one for which
// nothing has happened. So such a selection is refused when it is made.

// CheckTogether refuses a pattern that no event can match together with the contracts and kinds
// that are selected: nothing would ever be sent. No names select all. What this node does not know
// is not refused, as another node may.
func (c *Catalog) CheckTogether(patterns, contracts, kinds []string) error {
	known := func(name string) bool {
		isOf := func(s jobType) bool { return s.publicName() == name }
		return slices.ContainsFunc(c.jobTypes, isOf)
	}
	for _, name := range contracts {
		if !known(name) {
			return nil
		}
	}
	for _, pattern := range patterns {
		switch {
		case c.selects(pattern, contracts, kinds) || !c.selects(pattern, nil, nil):
		case !c.selects(pattern, contracts, nil):
			return neverSent("events: %s means events of %s, and contracts names only %s",
				setting.Quote(pattern), strings.Join(c.contractsOf(pattern), ", "),
				strings.Join(contracts, ", "))
		default:
			return neverSent("events: %s means no events of jobs of the kinds %s",
				setting.Quote(pattern), strings.Join(kinds, ", "))
		}
	}
	return nil
}

// neverSent is the error of a selection that no event can match.
func neverSent(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: "event.check",
		Msg: fmt.Sprintf(format, args...) + ": nothing would ever be sent"}
}

// publicName is the contract that clients know.
func (s *jobType) publicName() string { return contract.PublicName(s.operator.JobType) }

// contractsOf returns the contracts whose jobs have events that a pattern means.
func (c *Catalog) contractsOf(pattern string) (names []string) {
	for i := range c.jobTypes {
		s := &c.jobTypes[i]
		means := func(t contract.EventType) bool { return webhook.MatchType(pattern, t.Name) }
		if name := s.publicName(); slices.ContainsFunc(s.operator.Events, means) &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// selects reports whether a pattern means an event that contracts and kinds select too.
func (c *Catalog) selects(pattern string, contracts, kinds []string) bool {
	means := func(name string) bool { return webhook.MatchType(pattern, name) }
	isMeant := func(t Type) bool { return means(t.Name) }
	if len(kinds) == 0 && slices.ContainsFunc(eventsOfNoJob, isMeant) {
		return true
	}
	for i := range c.jobTypes {
		s := &c.jobTypes[i]
		if len(contracts) > 0 && !slices.Contains(contracts, s.publicName()) {
			continue
		}
		for _, t := range s.operator.Events {
			if means(t.Name) && (len(kinds) == 0 || s.hasKind(&t, kinds)) {
				return true
			}
		}
	}
	return false
}

// hasKind reports whether an event of a type may be of a job of one of some kinds.
func (s *jobType) hasKind(t *contract.EventType, kinds []string) bool {
	of := append(slices.Clone(s.operator.Kinds), s.operator.Kind)
	if t.Kind != "" {
		of = []string{t.Kind}
	}
	return slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(of, kind) })
}
