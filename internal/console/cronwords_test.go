package console

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/schedule"
)

// The form for a schedule explains every value of its choices, the default first.
func TestScheduleChoices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		choices []choice
		want    []string
	}{{overlaps, schedule.Overlaps}, {catchUps, schedule.CatchUps}} {
		var got []string
		for _, one := range c.choices {
			got = append(got, one.Value)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("the form explains %q, and there are %q", got, c.want)
		}
	}
}

// Expressions that few words describe are said in words, and no others.
func TestCronWords(t *testing.T) {
	t.Parallel()
	for cron, want := range map[string]string{
		"0 3 * * *": "daily at 03:00", "30 14 * * MON": "Mondays at 14:30",
		"0 9 * * 1-5": "Mondays to Fridays at 09:00", "0 9 * * mon-fri": "Mondays to Fridays at 09:00",
		"5 0 * * 0,7,3": "Sundays, Sundays and Wednesdays at 00:05",
		"0 0 1 * *":     "on day 1 of the month at 00:00", "0 12 24 12 *": "on December 24 at 12:00",
		"15 * * * *": "hourly at :15", "* * * * *": "every minute", "*/5 * * * *": "every 5 min",
		"0 */6 * * ?": "every 6 h at :00", "@weekly": "Sundays at 00:00",
		"0 0 3 * * *": "daily at 03:00",
		// not a regular time, or not in few words
		"*/7 * * * *": "", "30 0 3 * * *": "", "0 3 1 * MON": "", "0 3 * 6 *": "", "0-5 3 * * *": "",
		"0 9,17 * * *": "", "*/5 9 * * *": "", "0 3 * * MON#1": "", "": "", "a b c": "",
		"*/5 * * * MON": "", "* 3 * * *": "", "0 3 ? * ?": "daily at 03:00",
	} {
		if got := cronWords(cron); got != want {
			t.Errorf("%q is %q, want %q", cron, got, want)
		}
	}
}
