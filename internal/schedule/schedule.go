package schedule

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule/calendar"
)

// Schedule is a schedule as it is stored.
type Schedule struct {
	Name   string
	Number int64 // of its job
	Definition
	Paused       bool
	FromSettings bool // it is defined by the settings
	CreatedAt    time.Time
	UpdatedAt    time.Time

	state state
}

// definitionBody is the definition of the job of a schedule.
type definitionBody struct {
	Definition
	FromSettings bool      `json:"from_settings,omitempty"`
	Anchor       time.Time `json:"anchor"` // that of Every if there is no StartsAt
}

// state is the state of a schedule: the progress of its job.
type state struct {
	Paused bool `json:"paused,omitempty"`
	// Last is the latest time that was processed. Earlier times are not processed any more.
	Last time.Time `json:"last"`
	// Count is how many ticks there were.
	Count int64 `json:"count"`
	// Earlier is the number of the job that was submitted last.
	Earlier int64 `json:"earlier,omitempty"`
	// Replaced is the number of a job that is to be canceled because a later job has replaced it.
	Replaced int64 `json:"replaced,omitempty"`
	// Queued is a time that waits until the job Earlier is done (overlap queue).
	Queued time.Time `json:"queued,omitzero"`
	// Failing is a tick whose submission was refused and is tried again. Since is when it was first
	// refused, and Error the latest reason.
	Failing *Tick     `json:"failing,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Error   string    `json:"error,omitempty"`
	// Latest is the latest tick.
	Latest *Tick `json:"latest,omitempty"`
	// NeedsAttention says that the index lists the schedule as one that needs attention.
	NeedsAttention bool `json:"noted,omitempty"`
}

// encode returns the state as it is stored.
func (s *state) encode() []byte {
	body, _ := json.Marshal(s) // it has no member that cannot be encoded
	return body
}

// done changes the state by a tick that was made.
func (s *state) done(t *Tick) {
	s.Count, s.Latest = t.Count+1, t
	if t.Time.After(s.Last) {
		s.Last = t.Time
	}
	if t.Job != 0 {
		s.Earlier = t.Job
	}
	if t.Time.Equal(s.Queued) {
		s.Queued = time.Time{}
	}
	s.clearFailure()
}

// clearFailure forgets the tick that was tried again.
func (s *state) clearFailure() { s.Failing, s.Since, s.Error = nil, time.Time{}, "" }

// decode reads a schedule from its job, which has its bodies.
func decode(j *job.Job) (*Schedule, error) {
	s := &Schedule{Name: j.ID.Key, Number: j.Seq, UpdatedAt: j.UpdatedAt}
	var body definitionBody
	if err := errors.Join(json.Unmarshal(j.Definition, &body),
		json.Unmarshal(j.Progress, &s.state)); err != nil {
		return nil, &job.Error{Op: "schedule.read", ID: j.ID,
			Msg: "a stored schedule cannot be read", Err: err}
	}
	s.Definition, s.FromSettings, s.CreatedAt = body.Definition, body.FromSettings, body.Anchor
	s.Request, s.Paused = j.Payload, s.state.Paused
	return s, nil
}

// encodeTo writes a schedule into its job, which is due when the schedule is.
func (s *Schedule) encodeTo(j *job.Job, now time.Time) error {
	c, err := s.calendar(s.CreatedAt)
	if err != nil {
		return err
	}
	j.Definition, err = json.Marshal(definitionBody{s.Definition, s.FromSettings, s.CreatedAt})
	if err != nil {
		return err
	}
	s.state.Paused = s.Paused
	j.Queue, j.Payload, j.Progress = s.Contract, s.Request, s.state.encode()
	j.DueAt = s.wakeAt(c, now)
	return nil
}

// queuePause is the pause between two checks whether the job for which a time waits is done. The
// job of the time starts within a second of that (G-AD-16).
const queuePause = 500 * time.Millisecond

// wakeAt returns when the job of the schedule has to run next.
func (s *Schedule) wakeAt(c *calendar.Calendar, now time.Time) time.Time {
	switch {
	case s.state.Replaced != 0:
		return now
	case s.state.Paused:
		return never
	}
	wake := never
	if next, ok := c.Next(s.state.Last); ok {
		wake = s.dueAt(s.Name, next)
	}
	if !s.state.Queued.IsZero() && wake.After(now.Add(queuePause)) {
		wake = now.Add(queuePause)
	}
	return wake
}

// Next returns the next n times, without their jitter. For a paused schedule they are the times
// that it would have if it were resumed now. A schedule that is not stored begins now.
func (s *Schedule) Next(now time.Time, n int) []time.Time {
	c, err := s.calendar(s.CreatedAt)
	if err != nil {
		return nil
	}
	after := s.state.Last
	if (s.Paused || after.IsZero()) && after.Before(now) {
		after = now
	}
	var times []time.Time
	for range n {
		at, ok := c.Next(after)
		if !ok {
			break
		}
		times = append(times, at)
		after = at
	}
	return times
}

// Latest returns the latest tick, nil if there was none.
func (s *Schedule) Latest() *Tick { return s.state.Latest }

// Failing returns the time whose job cannot be submitted at present and why, or "" if there is
// none.
func (s *Schedule) Failing() (at time.Time, why string) {
	if s.state.Failing == nil {
		return time.Time{}, ""
	}
	return s.state.Failing.Time, s.state.Error
}

// NeedsAttention reports whether the latest time of the schedule was missed, or one cannot be
// submitted at present.
func (s *Schedule) NeedsAttention() bool {
	latest := s.state.Latest
	return s.state.Failing != nil || (latest != nil && latest.Outcome == Missed)
}

// updateIndex returns the record that changes the index if the schedule has begun to need
// attention, or needs none any more. Otherwise it returns none. The state has to be stored with the
// record.
func (s *Schedule) updateIndex() []job.Record {
	needsAttention := s.NeedsAttention()
	if needsAttention == s.state.NeedsAttention {
		return nil
	}
	s.state.NeedsAttention = needsAttention
	entry := job.Record{Kind: indexKind, Key: s.Name}
	if needsAttention {
		entry.Owner = attentionOwner
	}
	return []job.Record{entry}
}

// Waiting returns the time that waits until the job of an earlier one is done; zero for none.
func (s *Schedule) Waiting() time.Time { return s.state.Queued }
