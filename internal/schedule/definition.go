package schedule

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule/calendar"
	"github.com/millrace/millrace/internal/setting"
)

// Overlap says what happens at a time while the job of an earlier one is not done (SC-004).
type Overlap string

// The values of Overlap.
const (
	Allow   Overlap = "allow"   // jobs may run beside each other
	Skip    Overlap = "skip"    // the time is skipped
	Queue   Overlap = "queue"   // the time waits; others that come meanwhile are skipped
	Replace Overlap = "replace" // the earlier job is canceled afterwards, where its contract can
)

// Overlaps are the values of Overlap.
var Overlaps = []string{string(Allow), string(Skip), string(Queue), string(Replace)}

// CatchUp says what happens about times that have passed in a downtime or a pause (SC-005).
type CatchUp string

// The values of CatchUp.
const (
	CatchUpLast CatchUp = "last" // one job for all of them
	CatchUpNone CatchUp = "none" // nothing
	CatchUpAll  CatchUp = "all"  // a job for each of the latest maxCatchUp
)

// CatchUps are the values of CatchUp.
var CatchUps = []string{string(CatchUpLast), string(CatchUpNone), string(CatchUpAll)}

// MaxJitter bounds Definition.Jitter, as the shortest time between two times does.
const MaxJitter = 24 * time.Hour

// Definition is what a schedule submits, and when.
type Definition struct {
	Cron     string        `json:"cron,omitempty"`
	Every    time.Duration `json:"every,omitempty"`
	TimeZone string        `json:"time_zone,omitempty"`
	StartsAt time.Time     `json:"starts_at,omitzero"`
	EndsAt   time.Time     `json:"ends_at,omitzero"`
	// Jitter is the most by which a job may be submitted after its time: schedules with the same
	// time spread over it.
	Jitter time.Duration `json:"jitter,omitempty"`

	Contract string          `json:"contract"`
	Request  json.RawMessage `json:"-"` // the payload of the job
	Owner    string          `json:"owner,omitempty"`
	JobType  string          `json:"job_type,omitempty"`
	Callback string          `json:"callback_url,omitempty"` // of FetchBox

	Overlap Overlap `json:"overlap"`
	CatchUp CatchUp `json:"catch_up"`
}

// validName is what a name may be.
var validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// ValidNames says what a name may be, in words.
const ValidNames = "1 to 100 letters, digits, dots, hyphens and underscores"

// ValidName reports whether a text may be the name of a schedule.
func ValidName(name string) bool { return validName.MatchString(name) }

func invalid(msg string) error {
	return &job.Error{Kind: job.Invalid, Op: "schedule", Msg: msg}
}

// calendar reads the times of a definition. Those of Every count from StartsAt or else from when
// the schedule was made (G-AD-16).
func (d *Definition) calendar(createdAt time.Time) (*calendar.Calendar, error) {
	anchor := d.StartsAt
	if anchor.IsZero() {
		anchor = createdAt
	}
	c, err := calendar.Parse(calendar.Rule{Cron: d.Cron, Every: d.Every, Anchor: anchor,
		Zone: d.TimeZone, From: d.StartsAt, Until: d.EndsAt})
	if err != nil {
		return nil, invalid(err.Error())
	}
	return c, nil
}

// sameTimes reports whether two definitions have the same times.
func (d *Definition) sameTimes(o *Definition) bool {
	return d.Cron == o.Cron && d.Every == o.Every && d.TimeZone == o.TimeZone &&
		d.StartsAt.Equal(o.StartsAt) && d.EndsAt.Equal(o.EndsAt)
}

// Validate refuses a definition that is wrong whatever the contract says of the request.
func (d *Definition) Validate() error {
	c, err := d.calendar(time.Time{})
	if err != nil {
		return err
	}
	if bounds := d.jitterProblem(c); bounds != "" {
		return invalid("jitter must be " + bounds)
	}
	switch {
	case !slices.Contains(Overlaps, string(d.Overlap)):
		return invalid("overlap must be allow, skip, queue or replace")
	case !slices.Contains(CatchUps, string(d.CatchUp)):
		return invalid("catch_up must be last, none or all")
	case !isObject(d.Request):
		return invalid("request must be the JSON object that the contract's own route takes")
	}
	return nil
}

// jitterProblem returns what the jitter may be at the times of a calendar, in words; "" for one
// that may be. Times keep their order with it: a schedule knows by its latest time which others
// are done.
func (d *Definition) jitterProblem(c *calendar.Calendar) (bounds string) {
	if d.Jitter == 0 {
		return ""
	}
	maxJitter := MaxJitter
	if shortest := c.Shortest(); shortest > 0 {
		maxJitter = min(maxJitter, shortest)
	}
	if d.Jitter > 0 && d.Jitter <= maxJitter {
		return ""
	}
	return "a duration from 0s to " + setting.FormatDuration(maxJitter) +
		": up to 24h, and not beyond the next time"
}

// isObject reports whether a text is a JSON object.
func isObject(text []byte) bool {
	return strictjson.IsValid(text) && strictjson.KindOf(text) == strictjson.KindObject
}

// comesAfter reports whether a schedule that is made now has a time. Its definition is valid.
func (d *Definition) comesAfter(now time.Time) bool {
	c, err := d.calendar(now)
	if err != nil {
		return false
	}
	_, comes := c.Next(now)
	return comes
}

// request is what the schedule submits. key is an idempotency key, empty for a submission beside
// the times.
func (d *Definition) request(key string) contract.Request {
	return contract.Request{Body: d.Request, Owner: d.Owner, Type: d.JobType,
		Callback: d.Callback, Key: key}
}

// dueAt returns when a time is due: with its jitter, which is the same on every node.
func (d *Definition) dueAt(name string, at time.Time) time.Time {
	if d.Jitter == 0 {
		return at
	}
	sum := sha256.Sum256(append([]byte(name+"\x00"), at.Format(time.RFC3339Nano)...))
	part := binary.BigEndian.Uint64(sum[:8]) % uint64(d.Jitter)
	return at.Add(time.Duration(part).Truncate(time.Microsecond))
}

// Equal reports whether two definitions are the same.
func (d *Definition) Equal(o *Definition) bool {
	return d.sameTimes(o) && d.Jitter == o.Jitter && d.Contract == o.Contract &&
		d.Owner == o.Owner && d.JobType == o.JobType && d.Callback == o.Callback &&
		d.Overlap == o.Overlap && d.CatchUp == o.CatchUp && bytes.Equal(d.Request, o.Request)
}
