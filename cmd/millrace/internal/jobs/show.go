package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The page answers the three questions about a job at once: what it is, why it does not run, and
// what has happened to it. They are three requests, each of a moment of its own, so a job that
// moves meanwhile may be further in a later part than in the one before.

// page is what `millrace jobs show` prints: the job, why it does not run and what happened to it.
type page struct {
	Job      client.AdminJobDetail `json:"job"`
	Why      client.AdminWhy       `json:"why"`
	Timeline client.AdminTimeline  `json:"timeline"`
}

// showCommand is `millrace jobs show` (AD-013, AD-014).
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "show JOB",
		Short: "Show a job: its facts and bodies, why it does not run, and what happened to it",
		Long: `Show a job: its facts and bodies, why it does not run or that it does, and its timeline,
the oldest first. --json prints all three as one object.

` + cli.JobNames,
		Args: cli.OneJob,
	}
	return cli.Show[page]{
		Get: func(ctx context.Context, server *client.Admin, argument string) (page, error) {
			return cli.OfJob(ctx, server, argument, func(number int64) (page, error) {
				return readPage(ctx, server, number)
			})
		},
		Text: writePage,
	}.Command(p, operator, c)
}

// readPage reads what there is about a job. One that is removed meanwhile has no why.
func readPage(ctx context.Context, server *client.Admin, number int64) (got page, err error) {
	if got.Job, err = server.Job(ctx, number); err != nil {
		return got, err
	}
	if got.Timeline, err = server.Timeline(ctx, number); err != nil {
		return got, err
	}
	if got.Why, err = server.Why(ctx, number); errors.Is(err, client.ErrNotFound) {
		return got, nil
	}
	return got, err
}

// writePage writes a job for people.
func writePage(w io.Writer, got page) error {
	var b strings.Builder
	lines := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	j := &got.Job
	for _, fact := range []struct{ name, text string }{
		{"number", fmt.Sprint(j.Number)}, {"queue", cli.QueueName(j.Contract, j.Queue)},
		{"id", j.ID}, {"kind", cli.Format(j.Kind)}, {"state", j.State}, {"phase", j.Phase},
		{"owner", cli.Format(j.Owner)}, {"priority", cli.Format(j.Priority)},
		{"attempts", attempts(j)}, {"created", cli.FormatTime(j.CreatedAt)},
		{"due", cli.FormatTimePtr(j.DueAt)}, {"started", cli.FormatTimePtr(j.StartedAt)},
		{"done", cli.FormatTimePtr(j.FinishedAt)},
		{"lease until", cli.FormatTimePtr(j.LeaseUntil)}, {"worker", cli.Format(j.Worker)},
		{"parent", cli.Format(j.ParentNumber)}, {"children", cli.Format(j.Children)},
		{"dead letter", cli.Format(j.DeadLetterID)}, {"replayed as", cli.Format(j.ReplayedAs)},
		{"actions", joined(j.Actions)}, {"route", cli.Format(j.Links.Contract)},
		{"payload", bodyText(j.Payload)}, {"definition", bodyText(j.Definition)},
		{"progress", bodyText(j.Progress)}, {"result", bodyText(j.Result)},
		{failureName(j), bodyText(j.Failure)},
	} {
		if fact.text != "" {
			fmt.Fprintf(lines, "%s\t%s\n", fact.name, cli.Printable(fact.text))
		}
	}
	_ = lines.Flush() // a Builder takes all
	if got.Why.Summary != "" {
		fmt.Fprintf(&b, "\n%s\n", cli.Printable(got.Why.Summary))
	}
	writeTimeline(&b, &got.Timeline)
	_, err := io.WriteString(w, b.String())
	return err
}

// attempts says how often a job was claimed, and how many failures its retry policy has counted,
// which a final one is not.
func attempts(j *client.AdminJobDetail) string {
	text := fmt.Sprintf("%d, retryable failures %d", j.Attempts, j.Failures)
	if j.MaxAttempts != nil {
		text += fmt.Sprintf(" of %d", *j.MaxAttempts)
	}
	return text
}

// failureName is what a failure is called: a job that has succeeded has that of an attempt before.
func failureName(j *client.AdminJobDetail) string {
	if j.Error == nil && j.Phase == "done" {
		return "earlier failure"
	}
	return "failure"
}

// joined writes actions with commas.
func joined(actions []client.AdminAction) string {
	texts := make([]string, len(actions))
	for i, a := range actions {
		texts[i] = string(a)
	}
	return strings.Join(texts, ", ")
}

// maxBodyText bounds how much of a body people see, in characters; --json has more.
const maxBodyText = 200

// bodyText returns the start of a body on one line; "" for none.
func bodyText(body json.RawMessage) string {
	if len(body) == 0 || string(body) == "null" {
		return ""
	}
	text := []rune(strings.Join(strings.Fields(string(body)), " "))
	if len(text) > maxBodyText {
		return string(text[:maxBodyText]) + "…"
	}
	return string(text)
}

// writeTimeline writes the entries, one on a line.
func writeTimeline(b *strings.Builder, t *client.AdminTimeline) {
	b.WriteString("\n")
	lines := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i := range t.Entries {
		e := &t.Entries[i]
		text := cli.Format(e.Text)
		if e.Error != nil {
			text += ": " + *e.Error
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", cli.FormatTime(e.At), e.Kind, cli.FormatSeconds(e.Duration),
			cli.Printable(text))
	}
	_ = lines.Flush() // a Builder takes all
	if t.Truncated {
		b.WriteString("and more, which are not shown\n")
	}
}
