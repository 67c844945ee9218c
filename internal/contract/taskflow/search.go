package taskflow

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// Limits of a page (4.2).
const (
	defaultLimit = 20
	maxLimit     = 100
)

// readSearch reads the filters. matchesNone reports that no job can match them, such as a
// priority_min above priority_max; the store need not be asked (G-TF-23). The error names the
// first bad parameter in the order below, however the query orders them.
func readSearch(query string) (s store.Search, matchesNone bool, err error) {
	s = store.Search{JobType: Name, Limit: defaultLimit}
	p := params{query: query}
	s.Queue = p.text("queue")
	if state := p.text("status"); state != "" {
		if s.State = job.State(state); !slices.Contains(statuses, s.State) {
			p.addError("status is %q and must be one of %v", state, statuses)
		}
	}
	minPriority, hasMin := p.integer("priority_min")
	maxPriorityFilter, hasMax := p.integer("priority_max")
	s.CreatedFrom = p.time("created_after")
	s.CreatedBefore = p.time("created_before")
	if n, given := p.integer("limit"); given {
		if s.Limit = n; n < 1 || n > maxLimit {
			p.addError("limit must be from 1 to %d", maxLimit)
		}
	}
	if cursor := p.text("cursor"); cursor != "" {
		after, ok := cursors.Parse(cursor)
		if s.AfterTime, s.AfterKey = after.At, after.ID; !ok {
			p.err = cmp.Or(p.err, httpapi.ErrCursor)
		}
	}
	if hasMin {
		s.PriorityMin = max(1, minPriority)
	}
	if hasMax {
		s.PriorityMax = min(maxPriorityFilter, maxPriority)
	}
	// The store takes the zero time for no bound. As a bound it leaves nothing, since no job is
	// older.
	beforeAllJobs := (p.text("created_before") != "" && s.CreatedBefore.IsZero()) ||
		(s.AfterKey != "" && s.AfterTime.IsZero())
	noSuchQueue := s.Queue != "" && !isQueue(s.Queue)
	noSuchPriority := (hasMin && minPriority > maxPriority) || (hasMax && maxPriorityFilter < 1) ||
		(hasMin && hasMax && minPriority > maxPriorityFilter)
	return s, beforeAllJobs || noSuchQueue || noSuchPriority, p.err
}

// params reads query parameters. Of a repeated one the first counts, an empty one counts as
// absent, and unknown ones are ignored (G-TF-24, G-TF-35).
type params struct {
	query string
	err   error // the first error
}

// addError keeps an error unless there is an earlier one.
func (p *params) addError(format string, args ...any) {
	p.err = cmp.Or(p.err, invalid(format, args...))
}

// text returns the value of a parameter, "" if it is absent.
func (p *params) text(name string) string {
	for pair := range strings.SplitSeq(p.query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		value, err := url.QueryUnescape(value)
		if err != nil {
			p.addError("%s has an invalid percent escape", name)
		}
		return value
	}
	return ""
}

// integer reads a number. One that is out of range is returned as the nearest int.
func (p *params) integer(name string) (n int, given bool) {
	text := p.text(name)
	if text == "" {
		return 0, false
	}
	digits := strings.TrimPrefix(text, "-")
	n, ok := httpapi.ParseDigits(digits)
	if !ok {
		p.addError("%s must be an integer", name)
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}

// time reads a time in RFC 3339 form; the zero time if it is absent.
func (p *params) time(name string) time.Time {
	text := p.text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := strictjson.ParseTime(text)
	if err != nil {
		p.addError("%s must be a time such as 2026-01-02T03:04:05Z", name)
	}
	return at
}

// cursors are the cursors of the document (TF-100). The time in one has the full stored precision
// (TF-103). A text that is no such cursor is refused (TF-102); the job at its position need not
// exist any more.
var cursors = httpapi.Cursor[httpapi.Position]{
	Format: func(p httpapi.Position) string {
		stamp := strictjson.AppendTime(nil, p.At)
		return base64.StdEncoding.EncodeToString([]byte(string(stamp[1:len(stamp)-1]) + "|" + p.ID))
	},
	Parse: func(text string) (p httpapi.Position, ok bool) {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "=")) // G-TF-35
		if err != nil {
			return p, false
		}
		stamp, id, _ := strings.Cut(string(raw), "|")
		if p.At, err = strictjson.ParseTime(stamp); err != nil {
			return p, false
		}
		p.ID, ok = uuids.Parse(id)
		return p, ok
	},
}
