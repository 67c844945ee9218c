package admin

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Jobs are selected by one filter, bulk.JobFilter, wherever an operator selects some: by the query
// of a list, by the filter of a bulk operation, and by the fields of a form of the console. So what
// a list has shown is what an operation with the same words is about.
//
//	query of GET /jobs ──────────────┐
//	filter of POST /bulk: bodyFilter ├─▶ readJobFilter ─▶ bulk.JobFilter ─▶ package bulk
//	form of the console: bodyFilter ─┘
//
// Names of contracts are those that clients know, and stand for all of their job types.

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
			return nil, invalid("unknown member \"" + key[:min(len(key), maxQuoted)] +
				"\" of filter; it takes " + strings.Join(allowed, ", "))
		}
		isList := strictjson.KindOf(value) == strictjson.KindArray
		if isList && !slices.Contains([]string{"state", "phase", "number"}, key) {
			return nil, invalid("filter." + key + " takes one value and no list")
		}
		if _, given := f[key]; given {
			return nil, invalid("filter." + key + " is given twice")
		}
		text, ok := filterText(value)
		if !ok {
			return nil, invalid("filter." + key + " must be a text, a number or a list of these")
		}
		f[key] = text
	}
	return f, nil
}

// filterText returns a text, a number or a list of these as a query parameter has it.
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
			isList := strictjson.KindOf(element) == strictjson.KindArray
			one, ok := filterText(element)
			if isList || !ok || one == "" || strings.Contains(one, ",") {
				return "", false
			}
			all = append(all, one)
		}
		return strings.Join(all, ","), true
	}
	return "", false
}

// jobFilterNames are the members of a filter of jobs (AD-010).
var jobFilterNames = []string{"contract", "queue", "state", "phase", "owner", "kind", "id",
	"number", "parent", "worker", "created_from", "created_before", "settled_from",
	"settled_before", "min_age", "max_age", "min_attempts", "error", "text"}

// readJobFilter reads a filter of jobs. Ages count back from a time of the store, which has made
// the times that they are compared with; the zero time is now.
func (a *API) readJobFilter(ctx context.Context, p parameters,
	asOf time.Time) (f bulk.JobFilter, err error) {
	var contract, state, phase string
	var parent, attempts int64
	if err := firstError(readText(p, "contract", &contract), readText(p, "queue", &f.Queue),
		readText(p, "state", &state), readText(p, "phase", &phase), readText(p, "owner", &f.Owner),
		readText(p, "kind", &f.Kind), readText(p, "id", &f.ID),
		readCount(p, "parent", &parent, math.MaxInt64),
		readText(p, "worker", &f.Worker),
		readRange(p, "created_from", &f.CreatedFrom, "created_before", &f.CreatedBefore),
		readRange(p, "settled_from", &f.FinishedFrom, "settled_before", &f.FinishedBefore),
		readCount(p, "min_attempts", &attempts, math.MaxInt32),
		readText(p, "error", &f.Error), readText(p, "text", &f.Text)); err != nil {
		return f, err
	}
	f.Parent, f.MinAttempts = parent, int(attempts)
	if f.Numbers, err = readNumbers(p, maxNumbers); err != nil {
		return f, err
	}
	if f.JobTypes, err = a.jobTypesOf(contract); err != nil {
		return f, err
	}
	if f.States, err = a.parseStates(state); err != nil {
		return f, err
	}
	if err := parsePhases(phase, &f); err != nil {
		return f, err
	}
	return f, a.readAges(ctx, p, asOf, &f)
}

// readAges reads min_age and max_age as bounds of the creation. A job is as old as min_age and
// younger than max_age (G-AD-05).
func (a *API) readAges(ctx context.Context, p parameters, asOf time.Time,
	f *bulk.JobFilter) (err error) {
	minAge, maxAge := time.Duration(-1), time.Duration(-1) // are not given
	if err := firstError(readAge(p, "min_age", &minAge), readAge(p, "max_age", &maxAge)); err != nil {
		return err
	}
	switch {
	case minAge < 0 && maxAge < 0:
		return nil
	case maxAge >= 0 && minAge > maxAge:
		return errInverted("min_age", "max_age")
	case asOf.IsZero():
		if asOf, err = a.Engine.StoreTime(ctx); err != nil {
			return err
		}
	}
	asOf = asOf.Add(time.Microsecond) // of which times are whole numbers
	youngest := asOf.Add(-minAge)
	if minAge >= 0 && (f.CreatedBefore.IsZero() || youngest.Before(f.CreatedBefore)) {
		f.CreatedBefore = youngest
	}
	if at := asOf.Add(-maxAge); maxAge >= 0 && at.After(f.CreatedFrom) {
		f.CreatedFrom = at
	}
	return nil
}

// readCount reads a whole number from 1 to max into n, if it is given.
func readCount(p parameters, name string, n *int64, max int64) error {
	text := ""
	if err := readText(p, name, &text); err != nil || text == "" {
		return err
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < 1 || value > max {
		return invalid(name + " must be a whole number from 1 to " + strconv.FormatInt(max, 10))
	}
	*n = value
	return nil
}

// maxNumbers bounds how many jobs a filter names.
const maxNumbers = 1000

// readNumbers reads the numbers of up to limit jobs, with commas.
func readNumbers(p parameters, limit int) (numbers []int64, err error) {
	text := ""
	if err := readText(p, "number", &text); err != nil || text == "" {
		return nil, err
	}
	for part := range strings.SplitSeq(text, ",") {
		number, err := strconv.ParseInt(part, 10, 64)
		if err != nil || number < 1 || len(numbers) == limit {
			return nil, invalid("number takes the numbers of up to " + strconv.Itoa(limit) +
				" jobs, with commas")
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

// readAge reads a duration that is not negative into p, if it is given.
func readAge(c parameters, name string, p *time.Duration) error {
	text := ""
	if err := readText(c, name, &text); err != nil || text == "" {
		return err
	}
	age, ok := setting.ParseDuration(text)
	if !ok || age < 0 {
		return invalid(name + " must be a duration such as 90m")
	}
	*p = age
	return nil
}

// parseStates reads states with commas. One that no contract has is refused (G-AD-05).
func (a *API) parseStates(text string) (states []job.State, err error) {
	if text == "" {
		return nil, nil
	}
	for _, name := range strings.Split(text, ",") {
		if !slices.Contains(a.allStates(), job.State(name)) {
			return nil, invalid(a.unknownStateText(name[:min(len(name), maxQuoted)]))
		}
		states = append(states, job.State(name))
	}
	return states, nil
}

// unknownStateText says that no contract has a state, and which ones there are.
func (a *API) unknownStateText(name string) string {
	text, known := "state: no contract has the state "+name, a.StateNames("")
	if similar, ok := setting.Closest(name, known); ok {
		return text + ", did you mean " + similar + "?"
	}
	return text + "; there are " + strings.Join(known, ", ")
}

// allStates returns the states of all contracts.
func (a *API) allStates() (all []job.State) {
	for _, one := range a.Contracts {
		for _, jobs := range one.JobTypes {
			all = append(all, a.operatorOf(jobs.Name).Words(jobs.Machine)...)
		}
	}
	return all
}

// phaseDead is the phase of jobs with an open dead letter (G-AD-06).
const phaseDead = contract.PhaseDead

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
