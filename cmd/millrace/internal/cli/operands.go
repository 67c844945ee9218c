package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// QueueName returns the name by which commands know a queue (G-CL-01).
func QueueName(contract, queue string) string { return contract + "/" + queue }

// ParseQueue reads the name of a queue, "contract/queue" (G-CL-01).
func ParseQueue(name string) (contract, queue string, err error) {
	contract, queue, found := strings.Cut(name, "/")
	if !found || contract == "" || queue == "" {
		return "", "", UsageError("invalid queue %q: write contract/queue, such as taskflow/mail",
			name)
	}
	return contract, queue, nil
}

// CheckQueues reports the arguments that are no names of queues.
func CheckQueues(names []string) error {
	var all []error
	for _, name := range names {
		_, _, err := ParseQueue(name)
		all = append(all, err)
	}
	return errors.Join(all...)
}

// QueueVar adds the flags --contract and --queue of a filter. --queue takes the name that tables
// print too, which says the contract as well (G-CL-01). usage is the help of both, without the last
// word.
func QueueVar(f *pflag.FlagSet, contract, queue *string, usage string) {
	var flag, named string // the contract of each flag
	set := func() error {
		if flag != "" && named != "" && flag != named {
			return fmt.Errorf("the queue is one of %s, and --contract is %s", named, flag)
		}
		*contract = cmp.Or(flag, named)
		return nil
	}
	f.Var(&checkedText{set: func(text string) error {
		flag = text
		return set()
	}}, "contract", usage+"contract")
	f.Var(&checkedText{set: func(text string) (err error) {
		named, *queue = "", text
		if strings.Contains(text, "/") {
			if named, *queue, err = ParseQueue(text); err != nil {
				return err
			}
		}
		return set()
	}}, "queue", usage+"queue, as contract/queue or without the contract")
}

// checkedText is the value of a flag that set takes, or refuses.
type checkedText struct {
	text string
	set  func(text string) error
}

// String returns what was given; empty without.
func (v *checkedText) String() string { return v.text }

// Type is what the help shows in the place of the value.
func (v *checkedText) Type() string { return "string" }

// Set takes a value that was given.
func (v *checkedText) Set(text string) error {
	v.text = text
	return v.set(text)
}

// ParseNumber reads the number of a job.
func ParseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, UsageError("%q is not the number of a job, such as 1204", text)
	}
	return n, nil
}

// CheckNumbers reports the arguments that are no numbers of jobs.
func CheckNumbers(texts []string) error {
	var all []error
	for _, text := range texts {
		_, err := ParseNumber(text)
		all = append(all, err)
	}
	return errors.Join(all...)
}

// TimeVar adds a flag that takes a time, or how long ago it was; see [ParseTimeOrAge].
func TimeVar(f *pflag.FlagSet, p Process, at *time.Time, name, usage string) {
	f.Var(&timeValue{at, p.Now}, name, usage)
}

// timeValue is the value of a flag of TimeVar.
type timeValue struct {
	at  *time.Time
	now func() time.Time
}

// String returns the time; empty where it is zero.
func (v *timeValue) String() string {
	if v.at == nil {
		return ""
	}
	return FormatTime(*v.at)
}

// Type is what the help shows in the place of the value.
func (v *timeValue) Type() string { return "time" }

// Set reads a time.
func (v *timeValue) Set(text string) (err error) {
	*v.at, err = parseTimeOrAge(v.now(), text)
	return err
}

// FormatTime returns a time in UTC with seconds; "" for the zero time.
func FormatTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// FormatTimePtr returns the time like [FormatTime]; "" for nil.
func FormatTimePtr(at *time.Time) string {
	if at == nil {
		return ""
	}
	return FormatTime(*at)
}

// Format returns a value that may be missing, "" for nil. Numbers are written plainly, with two
// digits behind the point at most.
func Format[T any](value *T) string {
	if value == nil {
		return ""
	}
	if f, isFloat := any(*value).(float64); isFloat {
		return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
	}
	return fmt.Sprint(*value)
}

// FormatSeconds formats a duration in seconds, to the millisecond; empty where there is none.
func FormatSeconds(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return time.Duration(*seconds * float64(time.Second)).Round(time.Millisecond).String()
}
