package bulk

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// Starter starts a bulk operation for a command that acts on what its arguments name, or on what
// its filters select. It asks before (CL-001).
type Starter struct {
	Request client.AdminBulkRequest
	// Noun is the singular of the things that are counted, such as "job".
	Noun string

	filters *pflag.FlagSet // the flags that select
	dryRun  bool
	confirm cli.Confirmation
}

// Register adds the flags of bulk operations to a command: those that filters adds select.
func (s *Starter) Register(c *cobra.Command, filters func(*pflag.FlagSet)) {
	s.filters = pflag.NewFlagSet("filters", pflag.ContinueOnError)
	filters(s.filters)
	s.filters.BoolVar(&s.Request.Everything, "everything", false,
		"all "+s.Noun+"s, where no filter is given")
	c.Flags().AddFlagSet(s.filters)
	c.Flags().IntVar(&s.Request.RatePerSecond, "rate", 0, "how many a second; 0 is no rate")
	c.Flags().IntVar(&s.Request.Limit, "limit", 0, "how many at most; 0 is no limit")
	c.Flags().IntVar(&s.Request.Canary, "canary", 0,
		"how many go first and have to end well before the others go")
	c.Flags().BoolVar(&s.dryRun, "dry-run", false, "change nothing and print how many match")
	s.confirm.Register(c)
}

// Selects reports whether a filter is given.
func (s *Starter) Selects() (given bool) {
	s.filters.VisitAll(func(f *pflag.Flag) { given = given || f.Changed })
	return given
}

// Check refuses arguments together with filters, and a command without either.
func (s *Starter) Check(arguments []string, what string) error {
	switch {
	case len(arguments) > 0 && s.Selects():
		return cli.UsageError("give %s or filters, not both", what)
	case len(arguments) == 0 && !s.Selects():
		return cli.UsageError("%s or a filter is required; --everything means all", what)
	}
	return nil
}

// Started is what --json prints of an operation that was started, or of a dry run.
type Started struct {
	ID       string `json:"bulk_id,omitempty"`
	Matching int    `json:"matching"`
	More     bool   `json:"more"`
	Refused  int    `json:"refused"`
	action   client.AdminAction
}

// participles are the actions in the form "12 jobs replayed".
var participles = map[client.AdminAction]string{client.AdminActionRetry: "retried",
	client.AdminActionRerun: "rerun", client.AdminActionRunNow: "made due", client.AdminActionCancel: "canceled",
	client.AdminActionRelease: "released", client.AdminActionDelete: "deleted", client.AdminActionReplay: "replayed"}

// String is the line for people.
func (s Started) String() string {
	if s.ID == "" {
		atLeast := ""
		if s.More {
			atLeast = "at least "
		}
		text := fmt.Sprintf("%s%d would be %s", atLeast, s.Matching-s.Refused,
			participles[s.action])
		if s.Refused > 0 {
			text += fmt.Sprintf("; %d of the %d that match do not allow it", s.Refused, s.Matching)
		}
		return text
	}
	return fmt.Sprintf("bulk %s has begun; see millrace bulk show %s", s.ID, s.ID)
}

// Start looks at what matches, asks, and starts the operation.
func (s *Starter) Start(ctx context.Context, p cli.Process, server *client.Admin) (Started, error) {
	seen, err := server.PreviewBulkOperation(ctx, s.Request)
	if err != nil {
		return Started{}, err
	}
	started := Started{Matching: seen.Matching, More: seen.More, Refused: seen.Refused,
		action: s.Request.Action}
	if s.dryRun {
		return started, nil
	}
	if seen.Matching == 0 && !seen.More {
		return started, cli.FailedError("no %s matches", s.Noun)
	}
	what := fmt.Sprintf("%s %s", s.Request.Action, cli.Pluralize(int64(seen.Matching), s.Noun))
	if seen.More {
		what = fmt.Sprintf("%s at least %d %ss", s.Request.Action, seen.Matching, s.Noun)
	}
	if seen.Refused > 0 {
		what += fmt.Sprintf(", %d of which do not allow it", seen.Refused)
	}
	if err := s.confirm.Ask(p, what); err != nil {
		return started, err
	}
	s.Request.AsOf = seen.AsOf
	started.ID, err = server.StartBulkOperation(ctx, s.Request)
	return started, err
}
