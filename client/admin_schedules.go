package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AdminScheduleSpec is what a schedule submits, and at which ticks (SC-001). With
// [Admin.SetSchedule], fields that are nil stay as they are. Durations are texts such as "90s".
type AdminScheduleSpec struct {
	// Cron is a cron expression of five fields, of six with seconds first, or @hourly and the like.
	// Either Cron or Every is needed.
	Cron *string `json:"cron,omitempty"`
	// Every is the duration from each tick to the next one, at least 1s.
	Every *string `json:"every,omitempty"`
	// TimeZone is the time zone of Cron, such as "Europe/Berlin"; the default is UTC.
	TimeZone *string `json:"time_zone,omitempty"`
	// Contract is the contract of the jobs, such as "taskflow", and Request the body that its own
	// route would take.
	Contract *string         `json:"contract,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
	// Owner is the client of ForgeRun, which needs one, or the tenant of FetchBox.
	Owner *string `json:"owner,omitempty"`
	// JobType is the job type of FetchBox.
	JobType *string `json:"job_type,omitempty"`
	// CallbackURL, for FetchBox alone, receives a request when a job is finished. Requests to other
	// contracts have a URL of their own.
	CallbackURL *string `json:"callback_url,omitempty"`
	// Overlap says what happens at a tick while the job of an earlier one is not finished: "allow"
	// (the default), "skip", "queue" or "replace".
	Overlap *string `json:"overlap,omitempty"`
	// CatchUp says which ticks that were missed in a downtime or a pause are made up for: "last"
	// (the default), "none" or "all".
	CatchUp *string `json:"catch_up,omitempty"`
	// Jitter is the most by which a job is submitted after its tick.
	Jitter *string `json:"jitter,omitempty"`
	// Paused says that the schedule submits nothing.
	Paused *bool `json:"paused,omitempty"`
	// StartsAt is the earliest time that may be a tick. There is none from EndsAt on.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
}

// AdminSchedule is a schedule (SC-001).
type AdminSchedule struct {
	Name string `json:"name"`
	// Either Cron or Every is empty. [AdminScheduleSpec] explains the fields from here to EndsAt.
	Cron     string          `json:"cron"`
	Every    string          `json:"every"`
	TimeZone string          `json:"time_zone"`
	Contract string          `json:"contract"`
	Request  json.RawMessage `json:"request"`
	Owner    string          `json:"owner"`
	JobType  string          `json:"job_type"`
	// CallbackURL receives a request when a job of FetchBox is finished.
	CallbackURL string     `json:"callback_url"`
	Overlap     string     `json:"overlap"`
	CatchUp     string     `json:"catch_up"`
	Jitter      string     `json:"jitter"`
	Paused      bool       `json:"paused"`
	StartsAt    *time.Time `json:"starts_at"`
	EndsAt      *time.Time `json:"ends_at"`
	// FromSettings reports whether the server's settings define it. It can then be paused and
	// resumed, and is changed in the settings alone.
	FromSettings bool      `json:"from_settings"`
	CreatedAt    time.Time `json:"created_at"`
	// NextTimes are the times of its next ticks, without jitter.
	NextTimes []time.Time `json:"next"`
	// LastTick is what was done about its latest tick; nil before the first.
	LastTick *AdminScheduleTick `json:"latest"`
	// FailingTick is a tick whose job could not be submitted, for Error. It is tried again.
	FailingTick *time.Time `json:"failing"`
	Error       string     `json:"error"`
	// QueuedTick is a tick that waits until the job of an earlier one is finished.
	QueuedTick *time.Time `json:"queued"`
}

// AdminScheduleTick is a tick of a schedule and what was done about it (SC-006).
type AdminScheduleTick struct {
	// Time is the time of the tick, without jitter.
	Time time.Time `json:"time"`
	// At is when something was done about it, and Lateness how long that was after the tick and its
	// jitter, in seconds.
	At       time.Time `json:"at"`
	Lateness float64   `json:"lateness"`
	// Outcome is "submitted", "skipped" or "missed".
	Outcome string `json:"outcome"`
	// JobNumber is the number of the job that was submitted, 0 for none.
	JobNumber int64 `json:"job"`
	// EarlierMissed is how many earlier ticks, which were missed and are not listed, this one
	// stands for.
	EarlierMissed int `json:"passed"`
	// Error is why nothing was submitted.
	Error string `json:"error"`
}

const schedulesPath = "/admin/v1/schedules"

func schedulePath(name string) string { return schedulesPath + "/" + escape(name) }

// Schedules iterates over the schedules, by name. pageSize is how many of them one request reads; 0
// is the server's default. It ends with the first error.
func (a *Admin) Schedules(ctx context.Context, pageSize int) iter.Seq2[AdminSchedule, error] {
	return adminPages[AdminSchedule](ctx, a, "admin schedules", schedulesPath, url.Values{},
		pageSize)
}

// Schedule returns a schedule with the times of its next ticks, from 1 to 100 of them (SC-003).
//
// Errors: [ErrNotFound].
func (a *Admin) Schedule(ctx context.Context, name string, next int) (AdminSchedule, error) {
	return adminCall[AdminSchedule](ctx, a, call{
		op:    "admin schedule",
		path:  schedulePath(name),
		query: "next=" + strconv.Itoa(max(1, next)),
	})
}

// CreateSchedule creates a schedule. Its name has 1 to 100 letters, digits, dots, hyphens and
// underscores.
//
// Errors: [ErrInvalid] names the field that is wrong; [ErrConflict] where the name is in use, also
// by an earlier try of the call.
func (a *Admin) CreateSchedule(ctx context.Context, name string,
	spec AdminScheduleSpec) (AdminSchedule, error) {
	body, err := json.Marshal(struct {
		Name string `json:"name"`
		AdminScheduleSpec
	}{name, spec})
	if err != nil {
		return AdminSchedule{}, err
	}
	return adminCall[AdminSchedule](ctx, a, call{
		op:            "admin create schedule",
		method:        http.MethodPost,
		path:          schedulesPath,
		body:          body,
		accept:        []int{http.StatusCreated},
		notIdempotent: true,
	})
}

// SetSchedule changes a schedule by the fields of spec that are not nil. Cron replaces Every, and
// the other way round. Ticks are counted from the time of such a change.
//
// Errors: as [Admin.CreateSchedule], [ErrNotFound], and [ErrConflict] for a schedule that the
// settings define.
func (a *Admin) SetSchedule(ctx context.Context, name string,
	spec AdminScheduleSpec) (AdminSchedule, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return AdminSchedule{}, err
	}
	return adminCall[AdminSchedule](ctx, a, call{
		op:     "admin set schedule",
		method: http.MethodPatch,
		path:   schedulePath(name),
		body:   body,
	})
}

// DeleteSchedule deletes a schedule. Jobs that it has submitted stay.
//
// Errors: [ErrNotFound]; [ErrConflict] for a schedule that the settings define. Repeating is safe:
// when a schedule is not found after a try whose answer was lost, DeleteSchedule returns nil.
func (a *Admin) DeleteSchedule(ctx context.Context, name string) error {
	return a.client.deleteOnce(ctx, call{op: "admin delete schedule", path: schedulePath(name),
		header: a.header()})
}

// PauseSchedule pauses a schedule: it submits nothing until [Admin.ResumeSchedule]. Its CatchUp
// says what happens then about the ticks that were missed.
//
// Errors: [ErrNotFound]. A repeat changes nothing more.
func (a *Admin) PauseSchedule(ctx context.Context, name string) (AdminSchedule, error) {
	return adminCall[AdminSchedule](ctx, a, call{op: "admin pause schedule",
		method: http.MethodPost, path: schedulePath(name) + "/pause"})
}

// ResumeSchedule resumes a schedule that was paused.
//
// Errors: [ErrNotFound]. A repeat changes nothing more.
func (a *Admin) ResumeSchedule(ctx context.Context, name string) (AdminSchedule, error) {
	return adminCall[AdminSchedule](ctx, a, call{op: "admin resume schedule",
		method: http.MethodPost, path: schedulePath(name) + "/resume"})
}

// RunSchedule submits the job of a schedule once, in addition to its ticks. It is repeated only
// while no try can have taken effect.
//
// Errors: [ErrNotFound]; [ErrInvalid] with the message of the contract.
func (a *Admin) RunSchedule(ctx context.Context, name string) (AdminActionResult, error) {
	return adminCall[AdminActionResult](ctx, a, call{
		op:            "admin run schedule",
		method:        http.MethodPost,
		path:          schedulePath(name) + "/run",
		accept:        []int{http.StatusCreated},
		notIdempotent: true,
	})
}

// ScheduleTicks iterates over the last 100 ticks of a schedule, the latest first.
//
// Errors: [ErrNotFound].
func (a *Admin) ScheduleTicks(ctx context.Context,
	name string) iter.Seq2[AdminScheduleTick, error] {
	return func(yield func(AdminScheduleTick, error) bool) {
		page, err := adminCall[struct{ Items []AdminScheduleTick }](ctx, a, call{
			op: "admin schedule ticks", path: schedulePath(name) + "/ticks"})
		if err != nil {
			yield(AdminScheduleTick{}, err)
			return
		}
		for _, t := range page.Items {
			if !yield(t, nil) {
				return
			}
		}
	}
}
