package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/schedule"
)

// The page of a schedule shows its next times and what was done about the latest ones, its ticks. A
// schedule that cannot submit says so with the reason, unless the caller may not see what jobs
// carry: the reason may repeat a part of the request.

// schedulePages are the pages of schedules and the forms on them.
func (o *Console) schedulePages() []admin.Page {
	const one = Path + "/schedules/{name}"
	change := func(name string, do func(c *httpapi.Call, of string) (string, error)) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + "/" + name, Audit: "schedule." + name,
			Action: "console.schedule." + name, Target: scheduleTarget,
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return do(c, c.PathValue("name"))
			})}
	}
	pause := func(paused bool) func(*httpapi.Call, string) (string, error) {
		return func(c *httpapi.Call, of string) (string, error) {
			_, err := o.api.Schedules.Pause(c.Context(), of, paused, o.api.RecordSchedule(c))
			return pathOf("schedules", of), err
		}
	}
	return append(o.scheduleFormPages(), []admin.Page{
		{Method: "GET", Pattern: Path + "/schedules", Action: "console.schedules",
			Query: httpapi.PageQuery(), Handle: o.show(o.showSchedules)},
		{Method: "GET", Pattern: one, Action: "console.schedule", Handle: o.show(o.showSchedule)},
		change("pause", pause(true)),
		change("resume", pause(false)),
		change("run", func(c *httpapi.Call, _ string) (string, error) {
			j, err := o.api.RunSchedule(c)
			if err != nil {
				return "", err
			}
			return pathOf("jobs", strconv.FormatInt(j.Seq, 10)), nil
		}),
		change("delete", func(c *httpapi.Call, of string) (string, error) {
			return Path + "/schedules", o.api.Schedules.Remove(c.Context(), of, false,
				o.api.RecordSchedule(c))
		}),
	}...)
}

// scheduleTarget names the schedule of the path for the audit.
func scheduleTarget(c *httpapi.Call) string { return "schedule:" + c.PathValue("name") }

// scheduleRow is a schedule as pages show it.
type scheduleRow struct {
	*schedule.Schedule
	Next    []time.Time
	Failing time.Time
	Why     string
}

// rowOfSchedule returns the row of a schedule with its next n times.
func rowOfSchedule(viewer admin.Viewer, s *schedule.Schedule, now time.Time, n int) scheduleRow {
	failing, why := s.Failing()
	viewer.RedactSchedule(s)
	return scheduleRow{s, s.Next(now, n), failing, viewer.RedactText(why)}
}

// showSchedules is GET /console/schedules.
func (o *Console) showSchedules(c *httpapi.Call) (view, error) {
	found, now, next, err := o.api.ListSchedules(c)
	if err != nil {
		return view{}, err
	}
	var rows []scheduleRow
	viewer := o.api.Viewer(c)
	for _, s := range found {
		rows = append(rows, rowOfSchedule(viewer, s, now, 1))
	}
	return view{Name: "schedules", Title: "Schedules", Page: struct {
		Schedules []scheduleRow
		Next      string
	}{rows, nextPage(c.Request, next)}}, nil
}

// shownTimes is how many of its next times the page of a schedule shows.
const shownTimes = 10

// showSchedule is GET /console/schedules/{name}.
func (o *Console) showSchedule(c *httpapi.Call) (view, error) {
	s, err := o.api.Schedules.Get(c.Context(), c.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	now, err := o.api.Schedules.Now(c.Context())
	if err != nil {
		return view{}, err
	}
	ticks, err := o.api.Schedules.Ticks(c.Context(), s.Name)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	viewer.RedactTicks(ticks)
	return view{Name: "schedule", Title: s.Name, Page: struct {
		scheduleRow
		Ticks []schedule.Tick
	}{rowOfSchedule(viewer, s, now, shownTimes), ticks}}, nil
}
