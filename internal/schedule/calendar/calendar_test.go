package calendar_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule/calendar"
)

func parse(t testing.TB, r calendar.Rule) *calendar.Calendar {
	t.Helper()
	c, err := calendar.Parse(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return c
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// next returns the first n times after a moment as they are in UTC.
func next(c *calendar.Calendar, after time.Time, n int) (all []string) {
	for range n {
		moment, ok := c.Next(after)
		if !ok {
			return append(all, "none")
		}
		all = append(all, moment.Format(time.RFC3339))
		after = moment
	}
	return all
}

// SC-002, G-AD-16: what cron expressions mean.
func TestCron(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cron, want string }{
		{"*/20 * * * *", "2026-03-01T00:20:00Z 2026-03-01T00:40:00Z 2026-03-01T01:00:00Z"},
		{"*/30 0 * * * *", "2026-03-01T00:00:30Z 2026-03-01T01:00:00Z 2026-03-01T01:00:30Z"},
		{"0 9 * * MON-FRI", "2026-03-02T09:00:00Z 2026-03-03T09:00:00Z 2026-03-04T09:00:00Z"},
		{"0 0 1 JAN,Jul *", "2026-07-01T00:00:00Z 2027-01-01T00:00:00Z 2027-07-01T00:00:00Z"},
		{"15,45 8-9/1 * * *", "2026-03-01T08:15:00Z 2026-03-01T08:45:00Z 2026-03-01T09:15:00Z"},
		{"0 0 * * 7", "2026-03-08T00:00:00Z 2026-03-15T00:00:00Z 2026-03-22T00:00:00Z"},
		{"0 0 * * 0", "2026-03-08T00:00:00Z 2026-03-15T00:00:00Z 2026-03-22T00:00:00Z"},
		{"0 0 * * 5-7", "2026-03-06T00:00:00Z 2026-03-07T00:00:00Z 2026-03-08T00:00:00Z"},
		{"0 0 13 * FRI", "2026-03-06T00:00:00Z 2026-03-13T00:00:00Z 2026-03-20T00:00:00Z"},
		{"0 0 2 * FRI", "2026-03-02T00:00:00Z 2026-03-06T00:00:00Z 2026-03-13T00:00:00Z"},
		{"0 0 29 2 *", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z 2036-02-29T00:00:00Z"},
		{"@hourly", "2026-03-01T01:00:00Z 2026-03-01T02:00:00Z 2026-03-01T03:00:00Z"},
		{"@daily", "2026-03-02T00:00:00Z 2026-03-03T00:00:00Z 2026-03-04T00:00:00Z"},
		{"@weekly", "2026-03-08T00:00:00Z 2026-03-15T00:00:00Z 2026-03-22T00:00:00Z"},
		{"@monthly", "2026-04-01T00:00:00Z 2026-05-01T00:00:00Z 2026-06-01T00:00:00Z"},
		{"@yearly", "2027-01-01T00:00:00Z 2028-01-01T00:00:00Z 2029-01-01T00:00:00Z"},
	} {
		c := parse(t, calendar.Rule{Cron: tt.cron})
		if got := strings.Join(next(c, at(t, "2026-03-01T00:00:00Z"), 3), " "); got != tt.want {
			t.Errorf("SC-002 %q: got %s, want %s", tt.cron, got, tt.want)
		}
	}
}

// SC-002, G-AD-16: what is refused, with the member that is wrong.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule calendar.Rule
		want string
	}{
		{calendar.Rule{}, "cron or every"},
		{calendar.Rule{Cron: "* * * * *", Every: time.Second}, "only one"},
		{calendar.Rule{Every: time.Millisecond}, "every must"},
		{calendar.Rule{Every: -time.Hour}, "every must"},
		{calendar.Rule{Every: 90000 * time.Hour}, "every must"},
		{calendar.Rule{Cron: "* * * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "* * * * * * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "60 * * * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "*/0 * * * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "0 0 L * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "0 0 * * 5L"}, "cron is not valid"},
		{calendar.Rule{Cron: "0 0 15W * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "0 0 * * MON#1"}, "cron is not valid"},
		{calendar.Rule{Cron: "H * * * *"}, "cron is not valid"},
		{calendar.Rule{Cron: "@reboot"}, "cron is not valid"},
		{calendar.Rule{Cron: "\x00"}, "cron is not valid"},
		{calendar.Rule{Cron: strings.Repeat("1,", 400) + "1 * * * *"}, "at most"},
		{calendar.Rule{Cron: "0 0 30 2 *"}, "never comes"},
		{calendar.Rule{Cron: "0 0 31 4,6 *"}, "never comes"},
		{calendar.Rule{Cron: "@every 5s"}, "member every"},
		{calendar.Rule{Cron: "TZ=UTC 0 0 * * *"}, "member time_zone"},
		{calendar.Rule{Cron: "CRON_TZ=Asia/Tokyo 0 0 * * *"}, "member time_zone"},
		{calendar.Rule{Cron: "@daily", Zone: "Mars/Olympus"}, "time_zone must"},
		{calendar.Rule{Cron: "@daily", Zone: "Local"}, "time_zone must"},
		{calendar.Rule{Cron: "@daily", Zone: "../../etc/passwd"}, "time_zone must"},
		{calendar.Rule{Cron: "@daily", From: at(t, "2026-01-02T00:00:00Z"),
			Until: at(t, "2026-01-02T00:00:00Z")}, "ends_at must"},
	} {
		_, err := calendar.Parse(tt.rule)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("SC-002 %+v: got %v, want %q", tt.rule, err, tt.want)
		}
	}
}

// SC-003: a time that is not there is the first moment after the change, once; one that is there
// twice is the first of them, once.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ what, zone, cron, after, want string }{
		{"Berlin skips 02:30", "Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z",
			"2026-03-29T01:00:00Z 2026-03-30T00:30:00Z"},
		{"Berlin skips an hour of minutes", "Europe/Berlin", "*/20 * * * *",
			"2026-03-29T00:40:00Z", "2026-03-29T01:00:00Z 2026-03-29T01:20:00Z"},
		{"Berlin has 02:30 twice", "Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z",
			"2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"the second 02:30 of Berlin is none", "Europe/Berlin", "30 2 * * *",
			"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"Berlin in the second hour", "Europe/Berlin", "0,30 2-3 * * *", "2026-10-25T01:10:00Z",
			"2026-10-25T02:00:00Z 2026-10-25T02:30:00Z"},
		{"New York skips 02:00", "America/New_York", "0 2 * * *", "2026-03-07T12:00:00Z",
			"2026-03-08T07:00:00Z 2026-03-09T06:00:00Z"},
		{"New York has 01:59:59 twice", "America/New_York", "59 59 1 * * *",
			"2026-10-31T12:00:00Z", "2026-11-01T05:59:59Z 2026-11-02T06:59:59Z"},
		{"Lord Howe skips half an hour", "Australia/Lord_Howe", "15 2 * * *",
			"2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:15:00Z"},
		{"Lord Howe keeps 02:30", "Australia/Lord_Howe", "30 2 * * *",
			"2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z 2026-10-04T15:30:00Z"},
		{"Lord Howe has 01:45 twice", "Australia/Lord_Howe", "45 1 * * *",
			"2026-04-04T00:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		{"Santiago skips midnight", "America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z",
			"2026-09-06T04:00:00Z 2026-09-07T03:00:00Z"},
		{"Cairo skips midnight", "Africa/Cairo", "@daily", "2026-04-23T12:00:00Z",
			"2026-04-23T22:00:00Z 2026-04-24T21:00:00Z"},
		{"Beirut has 23:30 twice", "Asia/Beirut", "30 23 * * *", "2026-10-24T12:00:00Z",
			"2026-10-24T20:30:00Z 2026-10-25T21:30:00Z"},
		{"Apia skipped a day", "Pacific/Apia", "0 12 30 12 *", "2011-12-01T00:00:00Z",
			"2011-12-30T10:00:00Z 2012-12-29T22:00:00Z"},
		{"Kathmandu has no change", "Asia/Kathmandu", "0 6 * * *", "2026-03-01T12:00:00Z",
			"2026-03-02T00:15:00Z 2026-03-03T00:15:00Z"},
	} {
		c := parse(t, calendar.Rule{Cron: tt.cron, Zone: tt.zone})
		wants := strings.Fields(tt.want)
		if got := next(c, at(t, tt.after), len(wants)); !slices.Equal(got, wants) {
			t.Errorf("SC-003 %s: got %v, want %v", tt.what, got, wants)
		}
	}
}

// SC-003: over a year of many zones, every day has its time once, and times only grow.
func TestEveryDayOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
		"America/Santiago", "Africa/Cairo", "Asia/Beirut", "America/Havana", "Africa/Casablanca",
		"Pacific/Chatham", "America/Asuncion", "UTC"} {
		for _, cron := range []string{"0 0 * * *", "30 0 * * *", "30 1 * * *", "30 2 * * *",
			"45 3 * * *", "59 23 * * *"} {
			c := parse(t, calendar.Rule{Cron: cron, Zone: name})
			from, until := at(t, "2026-01-02T23:59:59.5Z"), at(t, "2027-01-02T23:59:59.5Z")
			last, n := from, 0
			for moment, _ := c.Next(from); moment.Before(until); moment, _ = c.Next(moment) {
				apart := moment.Sub(last)
				if n > 0 && (apart < 22*time.Hour || apart > 26*time.Hour) {
					t.Errorf("SC-003 %s %s: %v follows %v", name, cron, moment, last)
				}
				last, n = moment, n+1
			}
			if n != 365 {
				t.Errorf("SC-003 %s %s: %d times in a year", name, cron, n)
			}
		}
	}
}

// G-AD-16: every counts from its anchor; starts_at is inclusive and ends_at exclusive.
func TestEvery(t *testing.T) {
	t.Parallel()
	anchor := at(t, "2026-03-01T12:00:00.25Z")
	c := parse(t, calendar.Rule{Every: 90 * time.Second, Anchor: anchor})
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, -1: 0, 0: 90 * time.Second, 89 * time.Second: 90 * time.Second,
		90 * time.Second: 180 * time.Second, 1000 * time.Second: 1080 * time.Second,
	} {
		if got, ok := c.Next(anchor.Add(after)); !ok || !got.Equal(anchor.Add(want)) {
			t.Errorf("SC-002 after %v: got %v", after, got.Sub(anchor))
		}
	}
	// An anchor may be longer ago than the longest duration.
	c = parse(t, calendar.Rule{Every: time.Hour, Anchor: at(t, "0000-01-01T00:00:00.5Z")})
	if got, ok := c.Next(at(t, "2026-03-01T12:00:00Z")); !ok ||
		!got.Equal(at(t, "2026-03-01T12:00:00.5Z")) {
		t.Errorf("SC-002 with an old anchor: got %v", got)
	}
	c = parse(t, calendar.Rule{Cron: "@hourly", From: at(t, "2026-03-01T12:00:00Z"),
		Until: at(t, "2026-03-01T14:00:00Z")})
	if got := strings.Join(next(c, at(t, "2026-02-01T00:00:00Z"), 3), " "); got !=
		"2026-03-01T12:00:00Z 2026-03-01T13:00:00Z none" {
		t.Errorf("SC-001 between the bounds: got %s", got)
	}
}

// SC-005: the last times of a long downtime are found without going through all of it.
func TestLast(t *testing.T) {
	t.Parallel()
	until := at(t, "2026-03-01T12:00:00Z")
	second := parse(t, calendar.Rule{Cron: "* * * * * *"})
	if got := second.Last(until.AddDate(-300, 0, 0), until, 3); len(got) != 3 ||
		!got[2].Equal(until) || !got[0].Equal(until.Add(-2*time.Second)) {
		t.Errorf("SC-005 got %v", got)
	}
	daily := parse(t, calendar.Rule{Cron: "30 2 * * *", Zone: "Europe/Berlin"})
	got := daily.Last(until.AddDate(0, 0, -3), until, 1000)
	if len(got) != 3 || !got[0].Equal(at(t, "2026-02-27T01:30:00Z")) {
		t.Errorf("SC-005 got %v", got)
	}
	if got := daily.Last(until, until, 5); len(got) != 0 {
		t.Errorf("SC-005 nothing has passed, got %v", got)
	}
}
