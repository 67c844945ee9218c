package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule"
)

// TestSchedules goes through the settings of schedules (SC-007).
func TestSchedules(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{
		File: mustFile(t, `[schedules."nightly-2.0"]
cron = "30 2 * * *"
time_zone = "Europe/Berlin"
contract = "forgerun"
owner = "c"
request = '{"type":"EXECUTE"}'
overlap = "skip"
catch_up = "all"
jitter = "5m"
starts_at = 2026-03-01T12:00:00+01:00
ends_at = "2027-03-01T12:00:00Z"
[schedules.often]
every = "1m"
contract = "fetchbox"
job_type = "gallery"
request = '{}'
`),
		Environ: []string{"MILLRACE__SCHEDULES__OFTEN__EVERY=90s"},
		Flags:   map[string]string{"schedules.nightly-2.0.jitter": "10m"},
	})
	starts := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	want := map[string]schedule.Definition{
		"nightly-2.0": {Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Contract: "forgerun",
			Owner: "c", Request: []byte(`{"type":"EXECUTE"}`), Overlap: schedule.Skip,
			CatchUp: schedule.CatchUpAll, Jitter: 10 * time.Minute, StartsAt: starts,
			EndsAt: starts.AddDate(1, 0, 0).Add(time.Hour)},
		"often": {Every: 90 * time.Second, Contract: "fetchbox", JobType: "gallery",
			Request: []byte("{}"), Overlap: schedule.Allow, CatchUp: schedule.CatchUpLast},
	}
	for name, d := range want {
		if got := s.Schedules[name]; got == nil || !got.Equal(&d) {
			t.Errorf("SC-007 %s: got %+v, want %+v", name, got, d)
		}
	}
	if len(s.Schedules) != len(want) {
		t.Errorf("SC-007 got %d schedules", len(s.Schedules))
	}
	var b strings.Builder
	if err := s.Resolved().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"schedules.nightly-2.0.cron 30 2 * * * file ",
		"schedules.nightly-2.0.jitter 10m flag --set schedules.nightly-2.0.jitter",
		"schedules.nightly-2.0.starts_at 2026-03-01T11:00:00Z file ",
		`schedules.often.cron "" default`, "schedules.often.ends_at \"\" default",
		"schedules.often.every 1m30s environment MILLRACE__SCHEDULES__OFTEN__EVERY",
		"schedules.often.overlap allow default", "schedules.often.request {} file "} {
		if !strings.Contains(lines, want) {
			t.Errorf("SC-007 %q is missing in %s", want, b.String())
		}
	}
}

// TestScheduleRules: what is wrong between the settings of a schedule is named with its key.
func TestScheduleRules(t *testing.T) {
	t.Parallel()
	got := loadProblems(t, Sources{File: mustFile(t, `[schedules.empty]
[schedules.both]
cron = "@daily"
every = "1m"
contract = "relay"
request = "{}"
[schedules.ended]
every = "1m"
contract = "relay"
request = "{}"
starts_at = 2026-03-01T12:00:00Z
ends_at = 2026-03-01T12:00:00Z
[schedules.late]
every = "1m"
contract = "relay"
request = "{}"
jitter = "2m"
[schedules.typo]
evry = "1m"
[schedules.'a b']
every = "1m"
`)})
	want := []string{
		`config: unknown key "schedules.a b.every" (file millrace.toml); did you mean ` +
			`"schedules.NAME.every"? NAME is ` + schedule.ValidNames,
		`config: "schedules.both.every" (file millrace.toml): a schedule has cron or every, and ` +
			`"schedules.both.cron" is set (file millrace.toml)`,
		`config: "schedules.empty.contract" is missing: it names the contract that gets the request`,
		`config: "schedules.empty.cron" is missing: a schedule has cron or every`,
		`config: "schedules.empty.request" is missing: it is what is submitted`,
		`config: "schedules.ended.ends_at" (file millrace.toml): it must be after ` +
			`"schedules.ended.starts_at", which is 2026-03-01T12:00:00Z (file millrace.toml)`,
		`config: "schedules.late.jitter" (file millrace.toml): it must be a duration from 0s to 1m: ` +
			`up to 24h, and not beyond the next time`,
		`config: unknown key "schedules.typo.evry" (file millrace.toml); did you mean ` +
			`"schedules.typo.every"?`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("SC-007 got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
