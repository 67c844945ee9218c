package console

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// cronWords says in words when a cron expression comes, such as "Mondays at 03:00"; "" for one of
// which few words are not enough. It is for expressions that are stored, and so right.
func cronWords(cron string) string {
	if words := cronNames[strings.ToLower(cron)]; words != "" {
		return words
	}
	fields := strings.Fields(cron)
	if len(fields) == 6 && fields[0] == "0" {
		fields = fields[1:]
	}
	if len(fields) != 5 {
		return ""
	}
	minute, hour := fields[0], fields[1]
	days := dayWords(fields[2], fields[3], fields[4])
	switch isDaily := days == "daily"; {
	case days == "":
		return ""
	case isNumber(minute) && isNumber(hour):
		return days + " at " + twoDigits(hour) + ":" + twoDigits(minute)
	case isNumber(minute) && hour == "*" && isDaily:
		return "hourly at :" + twoDigits(minute)
	case minute == "*" && hour == "*" && isDaily:
		return "every minute"
	case isEven(minute, 60) && hour == "*" && isDaily:
		return "every " + strings.TrimPrefix(minute, "*/") + " min"
	case isNumber(minute) && isEven(hour, 24) && isDaily:
		return "every " + strings.TrimPrefix(hour, "*/") + " h at :" + twoDigits(minute)
	}
	return ""
}

// cronNames are the expressions that are one word.
var cronNames = map[string]string{"@hourly": "hourly at :00", "@daily": "daily at 00:00",
	"@midnight": "daily at 00:00", "@weekly": "Sundays at 00:00",
	"@monthly": "on day 1 of the month at 00:00", "@yearly": "on January 1 at 00:00",
	"@annually": "on January 1 at 00:00"}

// dayWords says on which days an expression comes.
func dayWords(day, month, weekday string) string {
	if weekday == "?" {
		weekday = "*"
	}
	if day == "?" {
		day = "*"
	}
	switch {
	case day == "*" && month == "*" && weekday == "*":
		return "daily"
	case day == "*" && month == "*":
		return weekdayWords(strings.ToUpper(weekday))
	case isNumber(day) && weekday == "*" && month == "*":
		return "on day " + day + " of the month"
	case isNumber(day) && weekday == "*" && isNumber(month):
		n, _ := strconv.Atoi(month)
		return fmt.Sprintf("on %s %s", time.Month(n), day)
	}
	return ""
}

// weekdayNames are the names of days of the week in expressions.
var weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"}

// weekdayWords says which days of the week a field has: some of them, or Monday to Friday.
func weekdayWords(field string) string {
	if field == "1-5" || field == "MON-FRI" {
		return "Mondays to Fridays"
	}
	var words []string
	for part := range strings.SplitSeq(field, ",") {
		at := -1
		for i, name := range weekdayNames {
			if part == name || part == strconv.Itoa(i) {
				at = i % 7
			}
		}
		if at < 0 {
			return ""
		}
		words = append(words, time.Weekday(at).String()+"s")
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

var numberField = regexp.MustCompile(`^[0-9]{1,2}$`)

// isNumber reports whether a field is one number.
func isNumber(field string) bool { return numberField.MatchString(field) }

// isEven reports whether a field is a step by which a whole can be divided, so that the time
// between two times is always the same.
func isEven(field string, whole int) bool {
	step, isStep := strings.CutPrefix(field, "*/")
	n, _ := strconv.Atoi(step) // 0 where it is no number
	return isStep && n > 1 && whole%n == 0
}

// twoDigits writes a number of a field with two digits.
func twoDigits(field string) string {
	n, _ := strconv.Atoi(field) // it is one
	return fmt.Sprintf("%02d", n)
}
