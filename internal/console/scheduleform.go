package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/schedule"
)

// One form makes and edits schedules. It has two buttons: one shows the times that the schedule
// would have and stores nothing, the other stores it. Its fields are members of the API, which
// membersOf writes as JSON, so what the API refuses is refused here with the same words.
//
//	form ─▶ membersOf ─┬─ look  ─▶ previewSchedule ─▶ the form with the next times
//	                   └─ store ─▶ createSchedule, setSchedule ─▶ 303 to the schedule
//	                                    refused ─▶ the form as it was sent, with the reason

// newSchedule is the path of the form for a new schedule. No schedule has it: see pathOf.
const newSchedule = Path + "/schedules/" + reservedPrefix + "new"

// previewButton is the value of the button that shows the next times and stores nothing.
const previewButton = "look"

// scheduleFields are the fields of the form: the members of the API, with do, the button. Beside
// each member stands what the form has shown first, as shown_cron and so on.
func scheduleFields() []string {
	all := append(admin.ScheduleMembers(), "name", "do")
	for _, name := range admin.ScheduleMembers() {
		all = append(all, "shown_"+name)
	}
	return all
}

// scheduleFormPages are the pages with the form for a schedule.
func (o *Console) scheduleFormPages() []admin.Page {
	const edit = Path + "/schedules/{name}/edit"
	return []admin.Page{
		{Method: "GET", Pattern: newSchedule, Action: "console.schedule.new",
			Handle: o.show(o.showNewSchedule)},
		{Method: "POST", Pattern: newSchedule, Action: "console.schedule.create",
			Audit: "schedule.create", Target: admin.FixedTarget("schedules"),
			Handle: o.scheduleForm(newSchedule, o.createSchedule)},
		{Method: "GET", Pattern: edit, Action: "console.schedule.edit",
			Handle: o.show(o.showEditSchedule)},
		{Method: "POST", Pattern: edit, Action: "console.schedule.set", Audit: "schedule.set",
			Target: scheduleTarget,
			Handle: func(c *httpapi.Call) error {
				return o.scheduleForm(editPath(c.PathValue("name")), o.setSchedule)(c)
			}},
	}
}

// editPath is the path of the form for a schedule.
func editPath(name string) string { return pathOf("schedules", name, "edit") }

// schedulePage is what the page with the form shows.
type schedulePage struct {
	Path        string // of the form
	IsNew       bool
	Form        url.Values
	FieldErrors map[string]string // the problem of a field, by its name
	Shown       []field           // of a schedule that there is, what its form has shown first
	Overlaps    []choice
	CatchUps    []choice
	Targets     []target    // the contracts that take submissions
	Next        []time.Time // of what was sent, where it is right
	TimeZone    string      // in which these are shown too
}

// choice is a value of a field with what it means. The first one is the default.
type choice struct{ Value, Meaning string }

// overlaps and catchUps are what the form says of the values of the API.
var (
	overlaps = []choice{{string(schedule.Allow), "both run (default)"},
		{string(schedule.Skip), "this time is left out"},
		{string(schedule.Queue), "this time waits for its end"},
		{string(schedule.Replace), "the earlier one is canceled"}}
	catchUps = []choice{{string(schedule.CatchUpLast), "one job for all of them (default)"},
		{string(schedule.CatchUpNone), "they are left out"},
		{string(schedule.CatchUpAll), "a job for each of the latest 1,000"}}
)

// target is a contract that takes submissions, with an example of one.
type target struct {
	Name    string
	Example contract.Request
	Text    string // of its body
}

// targetsOf returns the contracts that take submissions of schedules, by their names.
func targetsOf(contracts []*contract.Contract) (all []target) {
	for _, name := range slices.Sorted(slices.Values(contract.Submitters(contracts))) {
		if example := contract.OperatorOf(contracts, name).Example; len(example.Body) > 0 {
			all = append(all, target{name, example, string(example.Body)})
		}
	}
	return all
}

// scheduleFormPage is the page with the form.
func (o *Console) scheduleFormPage(path string, form url.Values) view {
	p := schedulePage{Path: path, IsNew: path == newSchedule, Form: form,
		Overlaps: overlaps, CatchUps: catchUps, Targets: targetsOf(o.api.Contracts),
		TimeZone: form.Get("time_zone")}
	title := "New schedule"
	if !p.IsNew {
		title = "Edit " + form.Get("name")
		for _, name := range admin.ScheduleMembers() {
			p.Shown = append(p.Shown, field{"shown_" + name, form.Get("shown_" + name)})
		}
	}
	return view{Name: "scheduleform", Title: title, Page: p}
}

// showNewSchedule is GET /console/schedules/~new.
func (o *Console) showNewSchedule(*httpapi.Call) (view, error) {
	return o.scheduleFormPage(newSchedule, url.Values{}), nil
}

// showEditSchedule is GET /console/schedules/{name}/edit.
func (o *Console) showEditSchedule(c *httpapi.Call) (view, error) {
	s, err := o.api.Schedules.Get(c.Context(), c.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	o.api.Viewer(c).RedactSchedule(s)
	return o.scheduleFormPage(editPath(s.Name), formOf(s)), nil
}

// formOf returns the fields of a schedule.
func formOf(s *schedule.Schedule) url.Values {
	form := url.Values{}
	for name, value := range map[string]string{"name": s.Name, "cron": s.Cron,
		"time_zone": s.TimeZone, "contract": s.Contract, "owner": s.Owner, "job_type": s.JobType,
		"callback_url": s.Callback,
		"overlap":      string(s.Overlap), "catch_up": string(s.CatchUp),
		"starts_at": timeField(s.StartsAt), "ends_at": timeField(s.EndsAt)} {
		form.Set(name, value)
	}
	if len(s.Request) > 0 {
		form.Set("request", escapeHidden(indentJSON(s.Request)))
	}
	if s.Every > 0 {
		form.Set("every", periodText(s.Every))
	}
	if s.Jitter > 0 {
		form.Set("jitter", periodText(s.Jitter))
	}
	if s.Paused {
		form.Set("paused", "true")
	}
	for _, name := range admin.ScheduleMembers() {
		form.Set("shown_"+name, form.Get(name))
	}
	return form
}

// timeField returns a time as a field has it, "" for none.
func timeField(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// scheduleForm makes the handler of the form at a path. do stores the schedule. A form that is
// refused, or asks for the next times, is shown again as it was sent, with the problems beside the
// fields.
func (o *Console) scheduleForm(path string, do func(c *httpapi.Call, form url.Values,
	members map[string][]byte) (to string, err error)) httpapi.Handler {
	return func(c *httpapi.Call) error {
		form, err := readForm(c, scheduleFields())
		if err != nil {
			return err
		}
		v, members := o.scheduleFormPage(path, form), membersOf(form)
		p := v.Page.(schedulePage)
		p.FieldErrors = admin.ScheduleMemberErrors(members)
		to := ""
		switch {
		case len(p.FieldErrors) > 0:
			err = invalid(p.FieldErrors[slices.Min(slices.Collect(maps.Keys(p.FieldErrors)))])
		case form.Get("do") == previewButton:
			p.Next, err = o.previewSchedule(c, members)
		default:
			to, err = do(c, form, members)
		}
		if err != nil {
			answer := admin.Answer(err)
			if answer.Status >= http.StatusInternalServerError {
				return err
			}
			v.Problem, v.Status = answer.Detail, answer.Status
			if len(p.FieldErrors) == 0 {
				p.FieldErrors = fieldErrors(answer.Detail, append(admin.ScheduleMembers(), "name"))
			}
			if p.IsNew && answer.Status == http.StatusConflict {
				p.FieldErrors = map[string]string{"name": answer.Detail}
			}
		} else if to != "" {
			c.Header().Set("Location", to)
			c.WriteHeader(http.StatusSeeOther)
			return nil
		}
		v.Page = p
		return o.send(c, v)
	}
}

// membersOf returns the members of the API that a form means, as JSON. An empty field is null.
func membersOf(form url.Values) map[string][]byte {
	members := map[string][]byte{}
	for _, name := range admin.ScheduleMembers() {
		text := strings.TrimSpace(form.Get(name))
		switch {
		case name == "paused":
			members[name] = strconv.AppendBool(nil, text == "true")
		case name == "request":
			members[name] = []byte(text)
		case text == "":
			members[name] = []byte("null")
		default:
			members[name] = strictjson.AppendString(nil, text)
		}
	}
	return members
}

// previewTimes is how many times the form shows.
const previewTimes = 5

// previewSchedule returns the next times of the schedule that members make.
func (o *Console) previewSchedule(c *httpapi.Call, members map[string][]byte) ([]time.Time,
	error) {
	s, now, err := o.api.ReadSchedule(c, members)
	if err != nil {
		return nil, err
	}
	return s.Next(now, previewTimes), nil
}

// createSchedule is POST /console/schedules/~new.
func (o *Console) createSchedule(c *httpapi.Call, form url.Values,
	members map[string][]byte) (string, error) {
	s, err := o.api.CreateSchedule(c, strings.TrimSpace(form.Get("name")), members)
	if err != nil {
		return "", err
	}
	return pathOf("schedules", s.Name), nil
}

// setSchedule is POST /console/schedules/{name}/edit. Members that are as they were shown are left
// as they are, as others may have changed them since; cron and every are set together.
func (o *Console) setSchedule(c *httpapi.Call, form url.Values,
	members map[string][]byte) (string, error) {
	isSame := func(name string) bool { return lines(form.Get(name)) == lines(form.Get("shown_"+name)) }
	sameTimes := isSame("cron") && isSame("every")
	maps.DeleteFunc(members, func(name string, _ []byte) bool {
		if name == "cron" || name == "every" {
			return sameTimes
		}
		return isSame(name)
	})
	to := pathOf("schedules", c.PathValue("name"))
	if len(members) == 0 {
		return to, nil
	}
	return to, o.api.EditSchedule(c, members)
}

// lines returns a text as it is stored: browsers send other ends of lines.
func lines(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}
