package schedule

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/schedule/calendar"
	"github.com/millrace/millrace/internal/setting"
)

// Schedules of the settings are the same as those that operators create, but for who may change
// them. When a node starts it stores those of its settings, see apply.go, and removes those that
// settings have defined before. Here they are only declared and checked, with the rules of
// Definition: a file that is wrong is refused before a node starts.

// Settings are the schedules that the settings define, by name (SC-007).
type Settings map[string]*Definition

const settingsSection = "schedules"

// Group declares the settings. contracts are the names of all contracts.
func (s *Settings) Group(contracts []string) *setting.Group {
	return &setting.Group{Name: settingsSection, Check: s.check,
		Sections: []setting.Section{{
			Name:       settingsSection,
			AllowDots:  true,
			AddEmpty:   true,
			Valid:      ValidName,
			ValidNames: ValidNames,
			Items: setting.ItemsOf((*map[string]*Definition)(s), newDefinition,
				func(d *Definition) []setting.Key { return d.keys(contracts) }),
		}},
	}
}

func newDefinition() *Definition { return &Definition{Overlap: Allow, CatchUp: CatchUpLast} }

// keys declares the settings of one schedule, below schedules.NAME.
func (d *Definition) keys(contracts []string) []setting.Key {
	return []setting.Key{
		setting.Define("cron", "", "Times of the schedule as a cron expression; it has cron or every.",
			optional(&d.Cron, checkedText(&d.Cron, func(text string) error {
				_, err := calendar.Parse(calendar.Rule{Cron: text})
				return err
			}))),
		setting.Define("every", "", "Time between two times of the schedule.",
			optional(&d.Every, setting.Duration(&d.Every, calendar.MinEvery, calendar.MaxEvery))),
		setting.Define("time_zone", "", "IANA time zone of cron; UTC when empty.",
			checkedText(&d.TimeZone, func(text string) error {
				_, err := calendar.ParseZone(text)
				return err
			})),
		setting.Define("contract", "", "Contract that gets the request.",
			setting.Choice(&d.Contract, contracts...)),
		setting.Define("request", "",
			"What is submitted: a JSON object as the contract's own route takes it.",
			request(d)),
		setting.Define("owner", "", "Client that owns the jobs, where the contract has clients.",
			checkedText(&d.Owner, nil)),
		setting.Define("job_type", "", "Job type, where the contract has job types.",
			checkedText(&d.JobType, nil)),
		setting.Define("callback_url", "",
			"URL that gets the final events of the jobs of FetchBox; other requests hold their own.",
			checkedText(&d.Callback, nil)),
		setting.Define("overlap", "",
			"What happens while the job of an earlier time is not done: allow, skip, queue or "+
				"replace.",
			setting.Choice((*string)(&d.Overlap), Overlaps...)),
		setting.Define("catch_up", "",
			"What becomes of times that pass in a downtime or a pause: last, none or all.",
			setting.Choice((*string)(&d.CatchUp), CatchUps...)),
		setting.Define("jitter", "", "Longest random delay of a job after its time.",
			setting.Duration(&d.Jitter, 0, MaxJitter)),
		setting.Define("starts_at", "", "First moment that may be a time; none when empty.",
			optional(&d.StartsAt, moment(&d.StartsAt))),
		setting.Define("ends_at", "", "First moment after the last time; none when empty.",
			optional(&d.EndsAt, moment(&d.EndsAt))),
	}
}

// optional is a value that may be empty, which is the zero value of its field.
func optional[T comparable](p *T, v setting.Value) setting.Value {
	var zero T
	set, show := v.Set, v.Show
	v.Set = func(in setting.Input) error {
		if in.Raw == "" {
			*p = zero
			return nil
		}
		return set(in)
	}
	v.Show = func() string {
		if *p == zero {
			return ""
		}
		return show()
	}
	return v
}

// checkedText is a text that check, unless nil, returns no error for.
func checkedText(p *string, check func(string) error) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			text, ok := in.Text()
			if !ok {
				return errors.New("expected a text")
			}
			if check != nil {
				if err := check(text); err != nil {
					return err
				}
			}
			*p = text
			return nil
		},
		Show: func() string { return *p },
	}
}

// request is the request of a definition. A refused request may hold a secret.
func request(d *Definition) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			text, ok := in.Text()
			if !ok || !isObject([]byte(text)) {
				return errors.New(`expected a text with a JSON object, such as '{"queue":"mail"}'`)
			}
			d.Request = []byte(text)
			return nil
		},
		Show:   func() string { return string(d.Request) },
		Secret: true,
	}
}

// moment is a time with its offset, as a text or as TOML has it.
func moment(p *time.Time) setting.Value {
	return setting.Value{
		Set: func(in setting.Input) error {
			at, ok := in.Raw.(time.Time)
			if text, isText := in.Text(); isText {
				var err error
				at, err = time.Parse(time.RFC3339, text)
				ok = err == nil
			}
			if !ok {
				return errors.New("expected a time with its offset, such as 2026-03-01T12:00:00Z")
			}
			*p = at
			return nil
		},
		Show: func() string { return p.UTC().Format(time.RFC3339Nano) },
	}
}

// check holds the rules between the settings of a schedule. Whether its contract takes the request
// is found out when the schedule is stored, as the contract may read the store for it.
func (s *Settings) check(c *setting.Checker) {
	for _, name := range slices.Sorted(maps.Keys(*s)) {
		d, at := (*s)[name], settingsSection+"."+name+"."
		missing := func(key, why string) {
			if c.Valid(key) {
				c.Report(key, "\""+key+"\" is missing: "+why)
			}
		}
		switch hasTimes := c.Valid(at+"cron", at+"every"); {
		case hasTimes && d.Cron == "" && d.Every == 0:
			missing(at+"cron", "a schedule has cron or every")
		case hasTimes && d.Cron != "" && d.Every != 0:
			c.Reportf(at+"every", "a schedule has cron or every, and %q is set (%s)", at+"cron",
				c.Origin(at+"cron"))
		}
		if d.Contract == "" {
			missing(at+"contract", "it names the contract that gets the request")
		}
		if d.Request == nil {
			missing(at+"request", "it is what is submitted")
		}
		if !d.EndsAt.IsZero() && !d.EndsAt.After(d.StartsAt) &&
			c.Valid(at+"starts_at", at+"ends_at") {
			c.Reportf(at+"ends_at", "it must be after %q, which is %s (%s)", at+"starts_at",
				moment(&d.StartsAt).Show(), c.Origin(at+"starts_at"))
		}
		times, err := d.calendar(time.Time{})
		if err != nil || !c.Valid(at+"jitter") {
			continue
		}
		if bounds := d.jitterProblem(times); bounds != "" {
			c.Reportf(at+"jitter", "it must be %s", bounds)
		}
	}
}
