// Package schedules is `millrace schedules`: how operators have jobs submitted again and again.
//
// Flags have the names of the members of the API. Only those that were given are sent, so edit
// leaves all else as it is, and what a flag means is checked by the server alone. A schedule that
// the settings define is listed like others and changed there.
package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of the table of schedules.
var columns = []cli.Column[client.AdminSchedule]{
	{Name: "name", Keep: true, Get: func(s client.AdminSchedule) string { return s.Name }},
	{Name: "when", Get: when},
	{Name: "contract", Get: func(s client.AdminSchedule) string { return s.Contract }},
	{Name: "state", Get: state, Tone: func(s client.AdminSchedule) cli.Tone {
		if s.FailingTick != nil {
			return cli.ToneBad
		}
		return cli.ToneWarn
	}},
	{Name: "next", Time: true, Get: next},
	{Name: "latest", Get: latest},
	{Name: "overlap", Extra: true, Get: func(s client.AdminSchedule) string { return s.Overlap }},
	{Name: "catch_up", Extra: true, Get: func(s client.AdminSchedule) string { return s.CatchUp }},
	{Name: "jitter", Extra: true, Get: func(s client.AdminSchedule) string { return s.Jitter }},
	{Name: "owner", Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.Printable(s.Owner) }},
	{Name: "job_type", Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.Printable(s.JobType) }},
	{Name: "callback_url", Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.Printable(s.CallbackURL) }},
	{Name: "starts_at", Time: true, Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.FormatTimePtr(s.StartsAt) }},
	{Name: "ends_at", Time: true, Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.FormatTimePtr(s.EndsAt) }},
	{Name: "request", Text: true, Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.Printable(string(s.Request)) }},
	{Name: "error", Text: true, Extra: true,
		Get: func(s client.AdminSchedule) string { return cli.Printable(s.Error) }},
}

// when is the times of a schedule as they were written.
func when(s client.AdminSchedule) string {
	if s.Cron == "" {
		return "every " + s.Every
	}
	return cli.Printable(s.Cron) + " " + s.TimeZone
}

// state returns the state of a schedule; empty for one that runs at its times.
func state(s client.AdminSchedule) string {
	switch {
	case s.Paused:
		return "paused"
	case s.FailingTick != nil:
		return "failing"
	case s.QueuedTick != nil:
		return "queued"
	case len(s.NextTimes) == 0:
		return "ended"
	}
	return ""
}

// next is the next time, empty if there is none or the schedule is paused.
func next(s client.AdminSchedule) string {
	if s.Paused || len(s.NextTimes) == 0 {
		return ""
	}
	return cli.FormatTime(s.NextTimes[0])
}

// latest is what came of the latest time.
func latest(s client.AdminSchedule) string {
	if s.LastTick == nil {
		return ""
	}
	return s.LastTick.Outcome
}

// tickColumns are the columns of the table of ticks.
var tickColumns = []cli.Column[client.AdminScheduleTick]{
	{Name: "time", Time: true,
		Get: func(t client.AdminScheduleTick) string { return cli.FormatTime(t.Time) }},
	{Name: "outcome", Get: func(t client.AdminScheduleTick) string { return t.Outcome }},
	{Name: "job", Right: true, Get: func(t client.AdminScheduleTick) string {
		if t.JobNumber == 0 {
			return ""
		}
		return strconv.FormatInt(t.JobNumber, 10)
	}},
	{Name: "lateness", Right: true, Get: func(t client.AdminScheduleTick) string {
		return time.Duration(t.Lateness * float64(time.Second)).Round(time.Millisecond).String()
	}},
	{Name: "passed", Right: true,
		Get: func(t client.AdminScheduleTick) string { return strconv.Itoa(t.EarlierMissed) }},
	{Name: "error", Text: true,
		Get: func(t client.AdminScheduleTick) string { return cli.Printable(t.Error) }},
}

// Command is `millrace schedules`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("schedules", "Submit jobs to any contract again and again, as an operator")
	c.AddCommand(listCommand(p, operator()), showCommand(p, operator()),
		ticksCommand(p, operator()), addCommand(p, operator()), editCommand(p, operator()),
		removeCommand(p, operator()), runCommand(p, operator()),
		each((*client.Admin).PauseSchedule, "paused").Command(p, operator(), &cobra.Command{
			Use: "pause NAME...", Short: "Pause schedules: nothing is submitted until they are resumed"}),
		each((*client.Admin).ResumeSchedule, "resumed").Command(p, operator(), &cobra.Command{
			Use: "resume NAME...", Short: "Run paused schedules again"}))
	return c
}

// listCommand is `millrace schedules list`.
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the schedules, by name"}
	return cli.List[client.AdminSchedule]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminSchedule, error] {
			return server.Schedules(ctx, pageSize)
		},
	}.Command(p, operator, c)
}

// showCommand is `millrace schedules show`.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	times := 1
	c := &cobra.Command{Use: "show NAME", Short: "Print a schedule"}
	c.Flags().IntVar(&times, "next", 1, "how many of its next times --json has, at most 100")
	return cli.Show[client.AdminSchedule]{Columns: columns,
		Get: func(ctx context.Context, server *client.Admin,
			name string) (client.AdminSchedule, error) {
			return server.Schedule(ctx, name, times)
		}}.Command(p, operator, c)
}

// ticksCommand is `millrace schedules ticks` (SC-006).
func ticksCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	name := ""
	c := &cobra.Command{
		Use:   "ticks NAME",
		Short: "List what was done about the last 100 times of a schedule, the latest first",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("the name of a schedule is required")
			}
			name = args[0]
			return nil
		},
	}
	return cli.List[client.AdminScheduleTick]{
		Columns: tickColumns,
		Items: func(ctx context.Context, server *client.Admin,
			_ int) iter.Seq2[client.AdminScheduleTick, error] {
			return server.ScheduleTicks(ctx, name)
		},
	}.Command(p, operator, c)
}

// specFlags are the flags of what a schedule submits, and when.
type specFlags struct{ texts map[string]*string }

// register adds the flags to a command.
func (f *specFlags) register(c *cobra.Command) {
	f.texts = map[string]*string{}
	for _, flag := range []struct{ name, usage string }{
		{"cron", "its times: five fields, or six with seconds first, or @hourly and the like"},
		{"every", "its times: a `duration` from 1s"},
		{"time-zone", "the time `zone` of --cron, such as Europe/Berlin; UTC without one"},
		{"contract", "the contract that gets the jobs, such as taskflow"},
		{"request", "the `JSON` object that the contract's own route takes"},
		{"owner", "the client of ForgeRun, or the tenant of FetchBox"},
		{"job-type", "the job type of FetchBox"},
		{"callback-url", "the `URL` that is notified of the end of the jobs"},
		{"overlap", "while an earlier job is not done: allow, skip, queue or replace"},
		{"catch-up", "times that have passed in a downtime: last, none or all"},
		{"jitter", "the most by which a job is submitted after its time: a `duration`"},
		{"starts-at", "the first moment that may be a time: a `time`"},
		{"ends-at", "the first moment after those: a `time`"},
	} {
		f.texts[flag.name] = c.Flags().String(flag.name, "", flag.usage)
	}
}

// spec returns what the flags that were given say.
func (f *specFlags) spec(c *cobra.Command) (s client.AdminScheduleSpec, err error) {
	texts := map[string]**string{"cron": &s.Cron, "every": &s.Every, "time-zone": &s.TimeZone,
		"contract": &s.Contract, "owner": &s.Owner, "job-type": &s.JobType,
		"callback-url": &s.CallbackURL, "overlap": &s.Overlap, "catch-up": &s.CatchUp, "jitter": &s.Jitter}
	times := map[string]**time.Time{"starts-at": &s.StartsAt, "ends-at": &s.EndsAt}
	for _, name := range slices.Sorted(maps.Keys(f.texts)) {
		text := f.texts[name]
		switch {
		case !c.Flags().Changed(name):
		case name == "request":
			if !json.Valid([]byte(*text)) {
				return s, cli.UsageError("--request is not JSON")
			}
			s.Request = json.RawMessage(*text)
		case texts[name] != nil:
			*texts[name] = text
		default:
			at, err := time.Parse(time.RFC3339, *text)
			if err != nil {
				return s, cli.UsageError("--%s: %q is not a time, such as 2026-03-01T12:00:00Z",
					name, *text)
			}
			*times[name] = &at
		}
	}
	return s, nil
}

// addCommand is `millrace schedules add`.
func addCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f specFlags
	paused := false
	c := &cobra.Command{
		Use:   "add NAME (--cron CRON | --every DURATION) --contract CONTRACT --request JSON",
		Short: "Make a schedule",
		Args:  cobra.ExactArgs(1),
	}
	f.register(c)
	c.Flags().BoolVar(&paused, "paused", false, "run it at no time until it is resumed")
	return withSpec(c, &f, func(ctx context.Context, server *client.Admin, name string,
		spec client.AdminScheduleSpec) (client.AdminSchedule, error) {
		spec.Paused = &paused
		return server.CreateSchedule(ctx, name, spec)
	}).Command(p, operator, c)
}

// editCommand is `millrace schedules edit`.
func editCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f specFlags
	c := &cobra.Command{Use: "edit NAME", Short: "Change the parts of a schedule that flags name",
		Args: cobra.ExactArgs(1)}
	f.register(c)
	return withSpec(c, &f, func(ctx context.Context, server *client.Admin, name string,
		spec client.AdminScheduleSpec) (client.AdminSchedule, error) {
		return server.SetSchedule(ctx, name, spec)
	}).Command(p, operator, c)
}

// withSpec is a command that sends what the flags say about one schedule.
func withSpec(c *cobra.Command, f *specFlags, send func(context.Context, *client.Admin, string,
	client.AdminScheduleSpec) (client.AdminSchedule, error)) cli.Each[client.AdminSchedule] {
	return cli.Each[client.AdminSchedule]{
		Check: func([]string) error {
			_, err := f.spec(c)
			return err
		},
		Do: func(ctx context.Context, server *client.Admin,
			name string) (client.AdminSchedule, error) {
			spec, err := f.spec(c)
			if err != nil {
				return client.AdminSchedule{}, err
			}
			return send(ctx, server, name, spec)
		},
		Done: describe,
	}
}

// describe returns the line for people about a schedule.
func describe(name string, s client.AdminSchedule) string {
	text := fmt.Sprintf("%s: %s, %s", name, when(s), s.Contract)
	if special := state(s); special != "" {
		return text + ", " + special
	}
	return text + ", next at " + next(s)
}

// removeCommand is `millrace schedules remove`.
func removeCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.Each[struct{}]{
		Do: func(ctx context.Context, server *client.Admin, name string) (struct{}, error) {
			return struct{}{}, server.DeleteSchedule(ctx, name)
		},
		Done: func(name string, _ struct{}) string { return name + " is removed" },
	}.Command(p, operator, &cobra.Command{Use: "remove NAME...",
		Short: "Remove schedules; jobs that they have submitted stay"})
}

// runCommand is `millrace schedules run`.
func runCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.Each[client.AdminActionResult]{
		Do: func(ctx context.Context, server *client.Admin,
			name string) (client.AdminActionResult, error) {
			return server.RunSchedule(ctx, name)
		},
		Done: func(name string, j client.AdminActionResult) string {
			return fmt.Sprintf("%s has submitted job %d", name, j.Number)
		},
	}.Command(p, operator, &cobra.Command{Use: "run NAME...",
		Short: "Submit the jobs of schedules once, beside their times"})
}

// each is a command that does one thing to schedules.
func each(do func(*client.Admin, context.Context, string) (client.AdminSchedule, error),
	done string) cli.Each[client.AdminSchedule] {
	return cli.Each[client.AdminSchedule]{
		Do: func(ctx context.Context, server *client.Admin,
			name string) (client.AdminSchedule, error) {
			return do(server, ctx, name)
		},
		Done: func(name string, _ client.AdminSchedule) string { return name + " is " + done },
	}
}
