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

// AdminScheduleSpec is what a schedule submits, and when (SC-001). With [Admin.SetSchedule] members
// that are nil stay as they are. Durations are texts such as "90s".
type AdminScheduleSpec struct {
	// Cron has five fields, or six with seconds first, or is @hourly and the like. It or Every is
	// needed.
	Cron *string `json:"cron,omitempty"`
	// Every is the duration from each time to the next one, from 1s.
	Every *string `json:"every,omitempty"`
	// TimeZone is that of Cron, such as "Europe/Berlin"; UTC without one.
	TimeZone *string `json:"time_zone,omitempty"`
	// Contract gets the jobs, such as "taskflow". Request is what its own route would take.
	Contract *string         `json:"contract,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
	// Owner is the client of ForgeRun, which needs one, or the tenant of FetchBox.
	Owner *string `json:"owner,omitempty"`
	// JobType is the job type of FetchBox.
	JobType *string `json:"job_type,omitempty"`
	// CallbackURL is where FetchBox tells the end of its jobs. Requests of others hold their own.
	CallbackURL *string `json:"callback_url,omitempty"`
	// Overlap says what happens while the job of an earlier time is not settled: "allow" (the
	// default), "skip", "queue" or "replace".
	Overlap *string `json:"overlap,omitempty"`
	// CatchUp says what happens about times that have passed in a downtime or a pause: "last" (the
	// default), "none" or "all".
	CatchUp *string `json:"catch_up,omitempty"`
	// Jitter is the most by which a job is submitted after its time.
	Jitter *string `json:"jitter,omitempty"`
	// Paused schedules run at no time.
	Paused *bool `json:"paused,omitempty"`
	// StartsAt is the first moment that may be a time, EndsAt the first after those.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
}

// AdminSchedule is a schedule (SC-001).
type AdminSchedule struct {
	Name string `json:"name"`
	// Cron or Every is empty; see [AdminScheduleSpec] for these and those that follow.
	Cron     string          `json:"cron"`
	Every    string          `json:"every"`
	TimeZone string          `json:"time_zone"`
	Contract string          `json:"contract"`
	Request  json.RawMessage `json:"request"`
	Owner    string          `json:"owner"`
	JobType  string          `json:"job_type"`
	// CallbackURL is where FetchBox tells the end of its jobs.
	CallbackURL string     `json:"callback_url"`
	Overlap     string     `json:"overlap"`
	CatchUp     string     `json:"catch_up"`
	Jitter      string     `json:"jitter"`
	Paused      bool       `json:"paused"`
	StartsAt    *time.Time `json:"starts_at"`
	EndsAt      *time.Time `json:"ends_at"`
	// FromSettings says that the settings define it: it can be paused, and changed there alone.
	FromSettings bool      `json:"from_settings"`
	CreatedAt    time.Time `json:"created_at"`
	// Next are its next times, without jitter.
	Next []time.Time `json:"next"`
	// Latest is what was done about its latest time; nil before the first.
	Latest *AdminScheduleTick `json:"latest"`
	// Failing is a time that could not be submitted for Error, and is tried again.
	Failing *time.Time `json:"failing"`
	Error   string     `json:"error"`
	// Queued is a time that waits until the job of an earlier one is settled.
	Queued *time.Time `json:"queued"`
}

// AdminScheduleTick is what was done about a time of a schedule (SC-006).
type AdminScheduleTick struct {
	Time time.Time `json:"time"`
	// At is when it was done, and Lateness how long that was after the time and its jitter, in
	// seconds.
	At       time.Time `json:"at"`
	Lateness float64   `json:"lateness"`
	// Outcome is "submitted", "skipped" or "missed".
	Outcome string `json:"outcome"`
	// Job is the number of the job that was submitted, 0 for none.
	Job int64 `json:"job"`
	// Passed is how many earlier times this one stands for.
	Passed int `json:"passed"`
	// Error is why nothing was submitted.
	Error string `json:"error"`
}

const schedulesPath = "/admin/v1/schedules"

func schedulePath(name string) string { return schedulesPath + "/" + escape(name) }

// Schedules iterates over the schedules, by name. pageSize is how many one request reads; 0 is the
// server's default. It ends with the first error.
func (a *Admin) Schedules(ctx context.Context, pageSize int) iter.Seq2[AdminSchedule, error] {
	return adminPages[AdminSchedule](ctx, a, "admin schedules", schedulesPath, url.Values{},
		pageSize)
}

// Schedule returns a schedule with its next times, from 1 to 100 of them (SC-003).
//
// Errors: [ErrNotFound].
func (a *Admin) Schedule(ctx context.Context, name string, next int) (AdminSchedule, error) {
	return adminCall[AdminSchedule](ctx, a, call{
		op:    "admin schedule",
		path:  schedulePath(name),
		query: "next=" + strconv.Itoa(max(1, next)),
	})
}

// CreateSchedule makes a schedule. Its name has 1 to 100 letters, digits, dots, hyphens and
// underscores.
//
// Errors: [ErrInvalid] names the member that is wrong; [ErrConflict] where the name is in use, also
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

// SetSchedule changes the members of a schedule that are not nil. Cron takes the place of Every and
// the other way round. New times count from now on.
//
// Errors: as [Admin.CreateSchedule], [ErrNotFound], and [ErrConflict] for one of the settings.
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
// Errors: [ErrNotFound]; [ErrConflict] for one of the settings. Repeating is safe: when a schedule
// is not found after a try whose answer was lost, DeleteSchedule returns nil.
func (a *Admin) DeleteSchedule(ctx context.Context, name string) error {
	return a.client.deleteOnce(ctx, call{op: "admin delete schedule", path: schedulePath(name),
		header: a.header()})
}

// PauseSchedule pauses a schedule: it runs at no time. [Admin.ResumeSchedule] ends that; CatchUp
// says what happens about the times between.
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

// RunSchedule submits the job of a schedule once, besides its times. It is repeated only while no
// try can have taken effect.
//
// Errors: [ErrNotFound]; [ErrInvalid] with the words of the contract.
func (a *Admin) RunSchedule(ctx context.Context, name string) (AdminJobState, error) {
	return adminCall[AdminJobState](ctx, a, call{
		op:            "admin run schedule",
		method:        http.MethodPost,
		path:          schedulePath(name) + "/run",
		accept:        []int{http.StatusCreated},
		notIdempotent: true,
	})
}

// ScheduleTicks iterates over what was done about the last 100 times of a schedule, the latest
// first.
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
