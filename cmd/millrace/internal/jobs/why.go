package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// WhyCommand is `millrace jobs why`, and `millrace why` (AD-015).
func WhyCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "why JOB",
		Short: "Say why a job does not run, or that it does",
		Long: `Say why a job does not run, or that it does: first what holds it longest, then all
reasons with what is known about each.

` + cli.JobNames,
		Args: cli.OneJob,
	}
	return cli.Show[client.AdminWhy]{
		Get: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminWhy, error) {
			return cli.OfJob(ctx, server, argument, func(number int64) (client.AdminWhy, error) {
				return server.Why(ctx, number)
			})
		},
		Text: writeWhy,
	}.Command(p, operator, c)
}

// writeWhy writes the sentence, the reasons with their facts, when that may change by itself, and
// the commands that change it.
func writeWhy(w io.Writer, why client.AdminWhy) error {
	var b strings.Builder
	fmt.Fprintln(&b, cli.Printable(why.Summary))
	for _, r := range why.Reasons {
		fmt.Fprintf(&b, "\n%s: %s\n", r.Code, cli.Printable(r.Text))
		for _, name := range slices.Sorted(maps.Keys(r.Facts)) {
			if name != factRoot { // the text and the commands say it
				fmt.Fprintf(&b, "  %s: %s\n", name, cli.Printable(factText(r.Facts[name])))
			}
		}
	}
	if why.Next != nil {
		fmt.Fprintf(&b, "\nmay change by itself at %s\n", why.Next.Format(time.RFC3339))
	}
	if commands := remedies(why); len(commands) > 0 {
		fmt.Fprintf(&b, "\nwhat may help:\n  %s\n", strings.Join(commands, "\n  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// factText writes a fact for people: a text without its quotes, a list with commas.
func factText(raw json.RawMessage) string {
	var text string
	var texts []string
	var relatives []struct {
		Number    int64
		ID, State string
	}
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &texts) == nil:
		return strings.Join(texts, ", ")
	case json.Unmarshal(raw, &relatives) == nil:
		texts = nil // Unmarshal left an empty text of each relative
		for _, r := range relatives {
			texts = append(texts, fmt.Sprintf("%d (%s, %s)", r.Number, r.ID, r.State))
		}
		return strings.Join(texts, ", ")
	}
	return string(raw)
}
