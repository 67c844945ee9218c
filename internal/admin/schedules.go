package admin

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/setting"
)

// These routes read and write the definitions of schedules (package schedule). A body names the
// members that it sets, and patchSchedule leaves the others as they are. It is called in the
// transaction of the change, with the schedule as it is then: two operators who set different
// members at the same time both get what they set. Whether the members go together is checked on
// what comes of them, by package schedule.

// scheduleRoutes are the routes of schedules (SC-001).
func (a *API) scheduleRoutes() []route {
	const all, one = apiPrefix + "/schedules", apiPrefix + "/schedules/{name}"
	return []route{
		{method: "GET", pattern: all, action: "schedule.list", handle: a.listSchedules,
			query: httpapi.PageQuery()},
		{method: "POST", pattern: all, action: "schedule.create", handle: a.createSchedule,
			target: FixedTarget("schedules"), body: true},
		{method: "GET", pattern: one, action: "schedule.show", handle: a.showSchedule,
			query: []string{"next"}},
		{method: "PATCH", pattern: one, action: "schedule.set", handle: a.setSchedule,
			target: scheduleTarget, body: true},
		{method: "DELETE", pattern: one, action: "schedule.delete", handle: a.deleteSchedule,
			target: scheduleTarget},
		{method: "GET", pattern: one + "/ticks", action: "schedule.ticks", handle: a.listTicks},
		{method: "POST", pattern: one + "/run", action: "schedule.run", handle: a.runSchedule,
			target: scheduleTarget, body: true},
		{method: "POST", pattern: one + "/pause", action: "schedule.pause", target: scheduleTarget,
			body:   true,
			handle: func(c *httpapi.Call) error { return a.pauseSchedule(c, true) }},
		{method: "POST", pattern: one + "/resume", action: "schedule.resume",
			target: scheduleTarget, body: true,
			handle: func(c *httpapi.Call) error { return a.pauseSchedule(c, false) }},
	}
}

// scheduleTarget names the schedule of the path for the audit.
func scheduleTarget(c *httpapi.Call) string { return "schedule:" + c.PathValue("name") }

var schedulePages = newPages(nameCursor("schedule"))

// listSchedules is GET /admin/v1/schedules.
func (a *API) listSchedules(c *httpapi.Call) error {
	page, now, next, err := a.ListSchedules(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeSchedule(o, shown, page[i], now, 1)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ListSchedules returns the schedules that the query of a call asks for, the store's time and the
// cursor of the next page.
func (a *API) ListSchedules(c *httpapi.Call) (page []*schedule.Schedule, now time.Time, next string,
	err error) {
	limit, after, err := schedulePages.Read(c)
	if err != nil {
		return nil, now, "", err
	}
	if page, err = a.Schedules.List(c.Context(), after, limit+1); err != nil {
		return nil, now, "", err
	}
	if len(page) > limit {
		page = page[:limit]
		next = schedulePages.Cursor.Format(page[limit-1].Name)
	}
	now, err = a.Schedules.Now(c.Context())
	return page, now, next, err
}

// writeSchedule writes the members of a schedule with its next n times.
func writeSchedule(o *strictjson.Object, d disclosure, s *schedule.Schedule, now time.Time,
	n int) {
	o.Text("name", s.Name)
	o.Optional("cron", s.Cron)
	writeDuration(o, "every", s.Every)
	zone := s.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	o.Text("time_zone", zone)
	o.Text("contract", s.Contract)
	d.raw(o, "request", s.Request)
	o.Optional("owner", s.Owner)
	o.Optional("job_type", s.JobType)
	o.Optional("callback_url", s.Callback)
	o.Text("overlap", string(s.Overlap))
	o.Text("catch_up", string(s.CatchUp))
	writeDuration(o, "jitter", s.Jitter)
	o.Bool("paused", s.Paused)
	o.Time("starts_at", s.StartsAt)
	o.Time("ends_at", s.EndsAt)
	o.Bool("from_settings", s.FromSettings)
	o.Time("created_at", s.CreatedAt)
	var next []string
	for _, at := range s.Next(now, n) {
		next = append(next, at.UTC().Format(time.RFC3339Nano))
	}
	o.Texts("next", next)
	if latest := s.Latest(); latest != nil {
		o.Object("latest", func(o *strictjson.Object) { writeTick(o, d, latest) })
	} else {
		o.Null("latest")
	}
	failing, why := s.Failing()
	o.Time("failing", failing)
	d.text(o, "error", why)
	o.Time("queued", s.Waiting())
}

// writeDuration writes a duration as settings have it, null for 0.
func writeDuration(o *strictjson.Object, name string, d time.Duration) {
	if d == 0 {
		o.Null(name)
		return
	}
	o.Text(name, setting.FormatDuration(d))
}

// writeTick writes the members of a tick. Its lateness is in seconds.
func writeTick(o *strictjson.Object, d disclosure, t *schedule.Tick) {
	o.Time("time", t.Time)
	o.Time("at", t.At)
	o.Text("outcome", string(t.Outcome))
	if t.Job == 0 {
		o.Null("job")
	} else {
		o.Int("job", t.Job)
	}
	o.Raw("lateness", strconv.AppendFloat(nil, t.Lateness.Seconds(), 'f', 6, 64))
	o.Int("passed", int64(t.Passed))
	d.text(o, "error", t.Error)
}

// maxNext bounds how many times are shown.
const maxNext = 100

// showSchedule is GET /admin/v1/schedules/{name}, with the next times that next asks for (SC-003).
func (a *API) showSchedule(c *httpapi.Call) error {
	n, text := 1, ""
	if err := readText(c, "next", &text); err != nil {
		return err
	}
	if text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > maxNext {
			return invalid("next must be a whole number from 1 to 100")
		}
	}
	s, err := a.Schedules.Get(c.Context(), c.PathValue("name"))
	if err != nil {
		return err
	}
	return a.sendSchedule(c, http.StatusOK, s, n)
}

// sendSchedule answers with a schedule.
func (a *API) sendSchedule(c *httpapi.Call, status int, s *schedule.Schedule, n int) error {
	now, err := a.Schedules.Now(c.Context())
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 1024))
	writeSchedule(&o, a.disclosureTo(c), s, now, n)
	sendObject(c, status, &o)
	return nil
}

// scheduleMembers are the members that a schedule is made of.
var scheduleMembers = []string{"cron", "every", "time_zone", "contract", "request", "owner",
	"job_type", "callback_url", "overlap", "catch_up", "jitter", "paused", "starts_at", "ends_at"}

// readSchedule reads a body into the members that it names, and returns its name, nil without one.
func readSchedule(c *httpapi.Call) (name *string, edit func(*schedule.Schedule) error, err error) {
	body, err := readMembers(c, append([]string{"name"}, scheduleMembers...)...)
	if err != nil {
		return nil, nil, err
	}
	members := map[string][]byte{}
	for member, value := range strictjson.Members(body) {
		members[string(member)] = bytes.Clone(value)
	}
	if raw, ok := members["name"]; ok {
		text, err := strictjson.String(raw)
		if err != nil {
			return nil, nil, invalid("name must be a string")
		}
		name = &text
		delete(members, "name")
	}
	if name == nil && len(members) == 0 {
		return nil, nil, invalid("the body names nothing to set")
	}
	return name, func(s *schedule.Schedule) error { return patchSchedule(s, members) }, nil
}

// patchSchedule sets the members of a body. null takes back what may be left out.
func patchSchedule(s *schedule.Schedule, members map[string][]byte) error {
	texts := map[string]*string{"cron": &s.Cron, "time_zone": &s.TimeZone, "contract": &s.Contract,
		"owner": &s.Owner, "job_type": &s.JobType, "callback_url": &s.Callback,
		"overlap": (*string)(&s.Overlap), "catch_up": (*string)(&s.CatchUp)}
	durations := map[string]*time.Duration{"every": &s.Every, "jitter": &s.Jitter}
	times := map[string]*time.Time{"starts_at": &s.StartsAt, "ends_at": &s.EndsAt}
	if _, both := members["every"]; members["cron"] != nil && !both {
		s.Every = 0 // one of them takes the place of the other
	}
	if _, both := members["cron"]; members["every"] != nil && !both {
		s.Cron = ""
	}
	for _, name := range scheduleMembers {
		raw, given := members[name]
		if !given {
			continue
		}
		isNull := strictjson.IsNull(raw)
		var err error
		switch {
		case name == "request":
			s.Request = raw
		case name == "paused":
			if s.Paused, err = strictjson.Bool(raw); err != nil {
				return invalid("paused must be true or false")
			}
		case texts[name] != nil:
			*texts[name] = ""
			if !isNull {
				*texts[name], err = strictjson.String(raw)
				isChoice := name == "overlap" || name == "catch_up"
				if err != nil || (isChoice && *texts[name] == "") {
					return invalid(name + " must be a string that is not empty")
				}
			}
		case durations[name] != nil:
			if err := readDurationInto(durations[name], name, raw, isNull); err != nil {
				return err
			}
		default:
			*times[name] = time.Time{}
			if !isNull {
				if *times[name], err = strictjson.Time(raw); err != nil {
					return invalid(name + " must be a time such as 2026-03-01T12:00:00Z")
				}
			}
		}
	}
	if s.Overlap == "" {
		s.Overlap = schedule.Allow
	}
	if s.CatchUp == "" {
		s.CatchUp = schedule.CatchUpLast
	}
	return nil
}

// readDurationInto reads a duration; null is 0.
func readDurationInto(p *time.Duration, name string, raw []byte, isNull bool) error {
	*p = 0
	if isNull {
		return nil
	}
	text, err := strictjson.String(raw)
	d, ok := setting.ParseDuration(text)
	if err != nil || !ok {
		return invalid(name + " must be a duration such as 90s")
	}
	*p = d
	return nil
}

// RecordSchedule writes the entry of the audit of a change, with the schedule before and after it.
func (a *API) RecordSchedule(c *httpapi.Call) schedule.RecordFunc {
	return func(w engine.RecordWriter, before, after *schedule.Schedule) error {
		e := newEntry(c, a.routeOf(c))
		if before == nil {
			e.Target = "schedule:" + after.Name
		}
		var err error
		if e.Before, err = encodeState(scheduleState(before)); err != nil {
			return err
		}
		if e.After, err = encodeState(scheduleState(after)); err != nil {
			return err
		}
		return a.audit.write(w, e)
	}
}

// scheduleState returns what the audit keeps of a schedule: all but its request.
func scheduleState(s *schedule.Schedule) any {
	if s == nil {
		return nil
	}
	state := struct {
		schedule.Definition
		Every  string `json:"every,omitempty"` // as clients write them, in place of the numbers
		Jitter string `json:"jitter,omitempty"`
		Paused bool   `json:"paused"`
	}{Definition: s.Definition, Paused: s.Paused}
	if s.Every > 0 {
		state.Every = setting.FormatDuration(s.Every)
	}
	if s.Jitter > 0 {
		state.Jitter = setting.FormatDuration(s.Jitter)
	}
	return state
}

// createSchedule is POST /admin/v1/schedules.
func (a *API) createSchedule(c *httpapi.Call) error {
	name, edit, err := readSchedule(c)
	if err != nil {
		return err
	}
	if name == nil {
		return invalid("name is required")
	}
	s, err := a.newSchedule(c, *name, edit)
	if err != nil {
		return err
	}
	return a.sendSchedule(c, http.StatusCreated, s, 1)
}

// newSchedule stores a schedule of a name with what edit sets.
func (a *API) newSchedule(c *httpapi.Call, name string,
	edit func(*schedule.Schedule) error) (*schedule.Schedule, error) {
	made := schedule.Schedule{Name: name}
	if err := edit(&made); err != nil {
		return nil, err
	}
	return a.Schedules.Create(c.Context(), made, a.RecordSchedule(c))
}

// ScheduleMembers are the members of a schedule beside its name.
func ScheduleMembers() []string { return slices.Clone(scheduleMembers) }

// ReadSchedule returns the schedule that members, JSON by their names, would make now, with its
// times. It changes nothing.
func (a *API) ReadSchedule(c *httpapi.Call, members map[string][]byte) (s *schedule.Schedule,
	now time.Time, err error) {
	if now, err = a.Schedules.Now(c.Context()); err != nil {
		return nil, now, err
	}
	s = &schedule.Schedule{CreatedAt: now}
	if err := patchSchedule(s, members); err != nil {
		return nil, now, err
	}
	return s, now, a.Schedules.Check(c.Context(), s, now)
}

// ScheduleMemberErrors returns the problems of members, which are JSON by their names. Each member
// is checked by itself.
func ScheduleMemberErrors(members map[string][]byte) map[string]string {
	wrong := map[string]string{}
	for name, raw := range members {
		one := schedule.Schedule{}
		if err := patchSchedule(&one, map[string][]byte{name: raw}); err != nil {
			wrong[name] = Answer(err).Detail
		}
	}
	return wrong
}

// CreateSchedule stores a schedule of a name with members, JSON by their names.
func (a *API) CreateSchedule(c *httpapi.Call, name string,
	members map[string][]byte) (*schedule.Schedule, error) {
	return a.newSchedule(c, name, func(s *schedule.Schedule) error {
		return patchSchedule(s, members)
	})
}

// EditSchedule changes members, JSON by their names, of the schedule of the path of a call.
func (a *API) EditSchedule(c *httpapi.Call, members map[string][]byte) error {
	_, err := a.Schedules.Edit(c.Context(), c.PathValue("name"),
		func(s *schedule.Schedule) error { return patchSchedule(s, members) }, a.RecordSchedule(c))
	return err
}

// setSchedule is PATCH /admin/v1/schedules/{name}.
func (a *API) setSchedule(c *httpapi.Call) error {
	name, edit, err := readSchedule(c)
	if err != nil {
		return err
	}
	if name != nil {
		return invalid("name cannot be changed")
	}
	s, err := a.Schedules.Edit(c.Context(), c.PathValue("name"), edit, a.RecordSchedule(c))
	if err != nil {
		return err
	}
	return a.sendSchedule(c, http.StatusOK, s, 1)
}

// deleteSchedule is DELETE /admin/v1/schedules/{name}.
func (a *API) deleteSchedule(c *httpapi.Call) error {
	err := a.Schedules.Remove(c.Context(), c.PathValue("name"), false, a.RecordSchedule(c))
	if err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// pauseSchedule is POST /admin/v1/schedules/{name}/pause or …/resume.
func (a *API) pauseSchedule(c *httpapi.Call, paused bool) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	s, err := a.Schedules.Pause(c.Context(), c.PathValue("name"), paused, a.RecordSchedule(c))
	if err != nil {
		return err
	}
	return a.sendSchedule(c, http.StatusOK, s, 1)
}

// runSchedule is POST /admin/v1/schedules/{name}/run: it submits once, beside the times.
func (a *API) runSchedule(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	j, err := a.RunSchedule(c)
	if err != nil {
		return err
	}
	return a.sendJob(c, http.StatusCreated, 0, j)
}

// RunSchedule submits the job of the schedule of the path of a call.
func (a *API) RunSchedule(c *httpapi.Call) (*job.Job, error) {
	return a.Schedules.SubmitNow(a.withAudit(c, scheduleTarget(c)), c.PathValue("name"))
}

// listTicks is GET /admin/v1/schedules/{name}/ticks: those that are kept, the latest first.
func (a *API) listTicks(c *httpapi.Call) error {
	ticks, err := a.Schedules.Ticks(c.Context(), c.PathValue("name"))
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(ticks), "", func(i int, o *strictjson.Object) {
		writeTick(o, shown, &ticks[i])
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}
