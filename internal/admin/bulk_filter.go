package admin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// bodyFilter has the members of the filter of a body as texts, so that they are read like query
// parameters. A list is its elements with commas.
type bodyFilter map[string]string

// Query implements parameters.
func (f bodyFilter) Query(name string) (value string, given bool, err error) {
	value, given = f[name]
	return value, given, nil
}

// readFilter reads an object whose members are among those allowed.
func readFilter(raw []byte, allowed []string) (bodyFilter, error) {
	f := bodyFilter{}
	if raw == nil {
		return f, nil
	}
	if strictjson.KindOf(raw) != strictjson.KindObject {
		return nil, invalid("filter must be an object")
	}
	for name, value := range strictjson.Members(raw) {
		key := string(name)
		if !slices.Contains(allowed, key) {
			return nil, invalid("filter." + key[:min(len(key), maxQuoted)] +
				" is not known; the filter takes " + strings.Join(allowed, ", "))
		}
		isList := strictjson.KindOf(value) == strictjson.KindArray
		if isList && key != "state" && key != "phase" {
			return nil, invalid("filter." + key + " takes one value and no list")
		}
		text, ok := filterText(value)
		if !ok {
			return nil, invalid("filter." + key + " must be a text, a number or a list of texts")
		}
		f[key] = text
	}
	return f, nil
}

// filterText returns a text, a number or a list of texts as a query parameter has it.
func filterText(raw []byte) (text string, ok bool) {
	switch strictjson.KindOf(raw) {
	case strictjson.KindString:
		text, err := strictjson.String(raw)
		return text, err == nil
	case strictjson.KindNumber:
		return string(strictjson.Trim(raw)), true
	case strictjson.KindArray:
		var all []string
		for _, element := range strictjson.Elements(raw) {
			one, err := strictjson.String(element)
			if err != nil || one == "" || strings.Contains(one, ",") {
				return "", false
			}
			all = append(all, one)
		}
		return strings.Join(all, ","), true
	}
	return "", false
}

// jobFilterNames are the members of a filter of jobs (AD-010).
var jobFilterNames = []string{"contract", "queue", "state", "phase", "owner", "kind", "id", "parent",
	"worker", "created_from", "created_before", "settled_from", "settled_before", "min_age",
	"max_age", "min_attempts", "error", "text"}

// readJobFilter reads a filter of jobs. Ages count back from now.
func (a *API) readJobFilter(p parameters, now time.Time) (f bulk.JobFilter, err error) {
	var contract, state, phase, minAge, maxAge string
	var parent, attempts int64
	if err := firstError(readText(p, "contract", &contract), readText(p, "queue", &f.Queue),
		readText(p, "state", &state), readText(p, "phase", &phase), readText(p, "owner", &f.Owner),
		readText(p, "kind", &f.Kind), readText(p, "id", &f.ID), readCount(p, "parent", &parent),
		readText(p, "worker", &f.Worker), readTime(p, "created_from", &f.CreatedFrom),
		readTime(p, "created_before", &f.CreatedBefore),
		readTime(p, "settled_from", &f.SettledFrom),
		readTime(p, "settled_before", &f.SettledBefore), readText(p, "min_age", &minAge),
		readText(p, "max_age", &maxAge), readCount(p, "min_attempts", &attempts),
		readText(p, "error", &f.Error), readText(p, "text", &f.Text)); err != nil {
		return f, err
	}
	f.Parent, f.MinAttempts = parent, int(attempts)
	if f.Contracts, err = a.contractsOf(contract); err != nil {
		return f, err
	}
	if f.States, err = a.parseStates(state); err != nil {
		return f, err
	}
	if err := parsePhases(phase, &f); err != nil {
		return f, err
	}
	// A job is as old as min_age and younger than max_age (G-AD-05). Times have microseconds.
	return f, firstError(applyAge("min_age", minAge, now, func(at time.Time) {
		at = at.Add(time.Microsecond)
		if f.CreatedBefore.IsZero() || at.Before(f.CreatedBefore) {
			f.CreatedBefore = at
		}
	}), applyAge("max_age", maxAge, now, func(at time.Time) {
		at = at.Add(time.Microsecond)
		if at.After(f.CreatedFrom) {
			f.CreatedFrom = at
		}
	}))
}

// readCount reads a whole number from 1 on into p, if it is given.
func readCount(p parameters, name string, n *int64) error {
	text := ""
	if err := readText(p, name, &text); err != nil || text == "" {
		return err
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < 1 {
		return invalid(name + " must be a whole number from 1 on")
	}
	*n = value
	return nil
}

// applyAge calls set with the time that an age means, if it is given.
func applyAge(name, text string, now time.Time, set func(time.Time)) error {
	if text == "" {
		return nil
	}
	age, ok := setting.ParseDuration(text)
	if !ok || age < 0 {
		return invalid(name + " must be a duration such as 90m")
	}
	set(now.Add(-age))
	return nil
}

// contractsOf returns the contracts of the engine that are one contract to clients; "" means all.
func (a *API) contractsOf(name string) (contracts []string, err error) {
	var known []string
	for _, one := range a.Contracts {
		for _, jobs := range one.Jobs {
			public := PublicContract(jobs.Name)
			if !slices.Contains(known, public) {
				known = append(known, public)
			}
			if name == "" || name == public {
				contracts = append(contracts, jobs.Name)
			}
		}
	}
	if len(contracts) == 0 && name != "" {
		return nil, invalid("contract must be one of " + strings.Join(known, ", "))
	}
	return contracts, nil
}

// parseStates reads states with commas. One that no contract has is refused (G-AD-05).
func (a *API) parseStates(text string) (states []job.State, err error) {
	if text == "" {
		return nil, nil
	}
	for _, name := range strings.Split(text, ",") {
		if !slices.Contains(a.allStates(), job.State(name)) {
			return nil, invalid("state: no contract has the state " +
				name[:min(len(name), maxQuoted)])
		}
		states = append(states, job.State(name))
	}
	return states, nil
}

// allStates returns the states of all contracts.
func (a *API) allStates() (all []job.State) {
	for _, one := range a.Contracts {
		for _, jobs := range one.Jobs {
			all = append(all, a.operatorOf(jobs.Name).Words(jobs.Machine)...)
		}
	}
	return all
}

// phaseDead is the phase of jobs with an open dead letter (G-AD-06).
const phaseDead = "dead"

// parsePhases reads phases with commas.
func parsePhases(text string, f *bulk.JobFilter) error {
	if text == "" {
		return nil
	}
	for _, name := range strings.Split(text, ",") {
		at := slices.IndexFunc(allPhases, func(p job.Phase) bool { return p.String() == name })
		switch {
		case name == phaseDead:
			f.Dead = true
		case at < 0:
			return invalid("phase must be one of waiting, ready, leased, done, dead")
		default:
			f.Phases = append(f.Phases, allPhases[at])
		}
	}
	return nil
}

var allPhases = []job.Phase{job.Waiting, job.Ready, job.Leased, job.Done}
