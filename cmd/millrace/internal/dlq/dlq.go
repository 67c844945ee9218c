// Package dlq is `millrace dlq`: how operators see, replay and discard the dead letters of all
// contracts.
//
//	groups ─▶ list --fingerprint ─▶ show ─▶ the reason is mended ─▶ replay
//
// A dead letter that was replayed stays, with the job that it was replayed as, until it is past its
// retention; a second replay needs --again.
package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/bulk"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A dead letter is named by its id, and a group by its fingerprint, of which the beginning is
// enough (completeFingerprint). With filters in place of ids a replay is a bulk operation, which
// package bulk starts and follows.

// columns are the columns of a table of dead letters.
var columns = []cli.Column[client.AdminDeadLetter]{
	{Name: "id", Keep: true, Right: true,
		Get: func(l client.AdminDeadLetter) string { return strconv.FormatInt(l.ID, 10) }},
	{Name: "at", Time: true,
		Get: func(l client.AdminDeadLetter) string { return cli.FormatTime(l.FailedAt) }},
	{Name: "queue", Keep: true, Get: func(l client.AdminDeadLetter) string {
		return cli.Printable(cli.QueueName(l.Contract, l.Queue))
	}},
	{Name: "number", Keep: true, Right: true,
		Get: func(l client.AdminDeadLetter) string { return strconv.FormatInt(l.Number, 10) }},
	{Name: "job_id",
		Get: func(l client.AdminDeadLetter) string { return cli.Printable(l.JobID) }},
	{Name: "attempts", Right: true,
		Get: func(l client.AdminDeadLetter) string { return strconv.Itoa(l.Attempts) }},
	{Name: "worker", Extra: true,
		Get: func(l client.AdminDeadLetter) string { return cli.Printable(l.Worker) }},
	{Name: "replayed_as", Right: true,
		Get: func(l client.AdminDeadLetter) string { return cli.Format(l.ReplayedAs) }},
	{Name: "replayed_at", Time: true, Extra: true,
		Get: func(l client.AdminDeadLetter) string { return cli.FormatTimePtr(l.ReplayedAt) }},
	{Name: "fingerprint", Keep: true, Extra: true,
		Get: func(l client.AdminDeadLetter) string { return l.Fingerprint }},
	{Name: "error_type", Extra: true,
		Get: func(l client.AdminDeadLetter) string { return cli.Printable(l.ErrorType) }},
	{Name: "error", Text: true,
		Get:  func(l client.AdminDeadLetter) string { return reason(l.ErrorType, l.Error) },
		Tone: func(client.AdminDeadLetter) cli.Tone { return cli.ToneBad }},
}

// groupColumns are the columns of a table of groups.
var groupColumns = []cli.Column[client.AdminDeadLetterGroup]{
	{Name: "count", Right: true,
		Get: func(g client.AdminDeadLetterGroup) string { return strconv.FormatInt(g.Count, 10) }},
	{Name: "queue", Keep: true, Get: func(g client.AdminDeadLetterGroup) string {
		return cli.Printable(cli.QueueName(g.Contract, g.Queue))
	}},
	{Name: "first_at", Time: true,
		Get: func(g client.AdminDeadLetterGroup) string { return cli.FormatTime(g.FirstAt) }},
	{Name: "last_at", Time: true,
		Get: func(g client.AdminDeadLetterGroup) string { return cli.FormatTime(g.LastAt) }},
	{Name: "fingerprint", Keep: true,
		Get: func(g client.AdminDeadLetterGroup) string { return g.Fingerprint }},
	{Name: "error_type", Extra: true,
		Get: func(g client.AdminDeadLetterGroup) string { return cli.Printable(g.ErrorType) }},
	{Name: "error", Text: true,
		Get:  func(g client.AdminDeadLetterGroup) string { return reason(g.ErrorType, g.Error) },
		Tone: func(client.AdminDeadLetterGroup) cli.Tone { return cli.ToneBad }},
}

// maxReason bounds the error in a table, in characters.
const maxReason = 80

// reason returns the error of a dead letter, its type where there is no text, and words for none.
func reason(kind, text string) string {
	text = cli.Printable(cmp.Or(text, kind, "no error is known"))
	if runes := []rune(text); len(runes) > maxReason {
		return string(runes[:maxReason-1]) + "…"
	}
	return text
}

// Command is `millrace dlq`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("dlq",
		"List, replay and discard dead letters of every contract, as an operator")
	c.AddCommand(listCommand(p, operator()), groupsCommand(p, operator()),
		showCommand(p, operator()), replayCommand(p, operator()), discardCommand(p, operator()))
	return c
}

// registerFilter adds the filters of dead letters to a command.
func registerFilter(p cli.Process, flags *pflag.FlagSet, f *client.AdminDeadLetterFilter) {
	cli.QueueVar(flags, &f.Contract, &f.Queue, "only dead letters of this ")
	flags.StringVar(&f.Fingerprint, "fingerprint", "", "only dead letters of this reason, as millrace "+
		"dlq groups prints it, or as much of its beginning as no other reason has")
	flags.StringVar(&f.ErrorContains, "error", "", "only dead letters with this `text` in their error")
	cli.TimeVar(flags, p, &f.FailedFrom, "from", "only dead letters of this time or later")
	cli.TimeVar(flags, p, &f.FailedBefore, "to", "only dead letters before this time")
}

// fingerprintLength is how many characters a fingerprint has.
const fingerprintLength = 32

// completeFingerprint completes a fingerprint of which the beginning was given, by the groups of
// dead letters that were not replayed.
func completeFingerprint(ctx context.Context, server *client.Admin,
	f *client.AdminDeadLetterFilter) error {
	f.Fingerprint = strings.ToLower(f.Fingerprint)
	if f.Fingerprint == "" || len(f.Fingerprint) >= fingerprintLength {
		return nil
	}
	var found []client.AdminDeadLetterGroup
	for g, err := range server.DeadLetterGroups(ctx, f.Contract, 0) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(g.Fingerprint, f.Fingerprint) && (f.Queue == "" || g.Queue == f.Queue) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 0:
		return cli.FailedError("no reason of dead letters that were not replayed has a fingerprint "+
			"that begins with %s; millrace dlq groups prints them", cli.Printable(f.Fingerprint))
	case 1:
		f.Fingerprint = found[0].Fingerprint
		return nil
	}
	var lines strings.Builder
	for _, g := range found {
		fmt.Fprintf(&lines, "\n  %s  %s  %s", g.Fingerprint,
			cli.Printable(cli.QueueName(g.Contract, g.Queue)), reason(g.ErrorType, g.Error))
	}
	return cli.FailedError("several fingerprints begin with %s:%s", f.Fingerprint, lines.String())
}

// listCommand is `millrace dlq list` (AD-050).
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminDeadLetterFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first",
		Long: `List dead letters, the oldest first; --from 1h leaves out those before the last
hour. --from and --to are times (2026-03-01 or 2026-03-01T12:00:00Z) or how long ago
(36h).`,
	}
	registerFilter(p, c.Flags(), &f)
	return cli.List[client.AdminDeadLetter]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminDeadLetter, error] {
			return func(yield func(client.AdminDeadLetter, error) bool) {
				if err := completeFingerprint(ctx, server, &f); err != nil {
					yield(client.AdminDeadLetter{}, err)
					return
				}
				f.PageSize = pageSize
				server.DeadLetters(ctx, f)(yield)
			}
		},
		Hint: "millrace dlq groups shows which have the same error",
	}.Command(p, operator, c)
}

// groupsCommand is `millrace dlq groups` (AD-050).
func groupsCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var contract string
	c := &cobra.Command{
		Use:   "groups",
		Short: "Group the dead letters that were not replayed by their reason",
		Long: `Group the dead letters that were not replayed by their reason, the largest group
first. Those of one reason have one fingerprint: contract, queue, type and text of
the error without numbers, paths and other text that varies.`,
	}
	c.Flags().StringVar(&contract, "contract", "", "only dead letters of this contract")
	return cli.List[client.AdminDeadLetterGroup]{
		Columns: groupColumns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminDeadLetterGroup, error] {
			return server.DeadLetterGroups(ctx, contract, pageSize)
		},
	}.Command(p, operator, c)
}

// whereIDs says where the ids of dead letters are: they are not those of the jobs.
const whereIDs = "millrace dlq list prints the ids"

// offerIDs adds to the error of an id that no dead letter has where the ids are.
func offerIDs(err error) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w; %s", err, whereIDs)
}

// parseID reads the id of a dead letter.
func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, cli.UsageError("%q is not the id of a dead letter, such as 12; %s", text,
			whereIDs)
	}
	return id, nil
}

// checkIDs reports the first argument that is no id.
func checkIDs(texts []string) error {
	for _, text := range texts {
		if _, err := parseID(text); err != nil {
			return err
		}
	}
	return nil
}

// replayCommand is `millrace dlq replay` (AD-051).
func replayCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var again bool
	var f client.AdminDeadLetterFilter
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Replay dead letters",
		Long: `Replay dead letters. The contract decides whether the same job runs again or a new
one is made.

With filters in place of ids it is a bulk operation on all that match and were not
replayed: it goes on in the server, and asks before. --yes answers, --dry-run only
counts.`,
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().BoolVar(&again, "again", false, "also those that were replayed before")
	s := bulk.Starter{Request: client.AdminBulkRequest{Action: client.AdminActionReplay},
		Noun: "dead letter"}
	s.Register(c, func(flags *pflag.FlagSet) { registerFilter(p, flags, &f) })
	return cli.Each[any]{
		Check: func(ids []string) error {
			if again && s.Selects() {
				return cli.UsageError("--again is for ids")
			}
			return errors.Join(s.Check(ids, "ids of dead letters"), checkIDs(ids))
		},
		Do: func(ctx context.Context, server *client.Admin, argument string) (any, error) {
			if argument == "" {
				if err := completeFingerprint(ctx, server, &f); err != nil {
					return nil, err
				}
				s.Request.Filter = client.AdminFilter{Contract: f.Contract, Queue: f.Queue,
					Fingerprint: f.Fingerprint, ErrorContains: f.ErrorContains,
					FailedFrom: f.FailedFrom, FailedBefore: f.FailedBefore}
				return s.Start(ctx, p, server)
			}
			id, err := parseID(argument)
			if err != nil {
				return nil, err
			}
			j, err := server.ReplayDeadLetter(ctx, id, again)
			return j, offerIDs(offerAgain(err))
		},
		Done: func(argument string, result any) string {
			j, isJob := result.(client.AdminActionResult)
			if !isJob {
				return fmt.Sprint(result)
			}
			return cli.Printable(fmt.Sprintf("dead letter %s runs as job %d (%s, %s), which is %s",
				argument, j.Number, cli.QueueName(j.Contract, j.Queue), j.ID, j.State))
		},
	}.Command(p, operator, c)
}

// offerAgain changes the error of a refused replay for the command line: where the server's text
// advises the member "again" of the request, the text of the command advises the flag --again.
func offerAgain(err error) error {
	if !errors.Is(err, client.ErrConflict) {
		return err
	}
	return cli.FailedError("%s", strings.Replace(err.Error(), "again: true replays",
		"--again replays", 1))
}

// discarded is what --json prints of a dead letter that is gone.
type discarded struct {
	ID int64 `json:"id"`
}

// discardCommand is `millrace dlq discard` (AD-051).
func discardCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "discard ID...",
		Short: "Delete dead letters",
		Long:  "Delete dead letters. A job that is still stored stays as it is.",
	}
	return cli.Each[discarded]{
		Check: checkIDs,
		Do: func(ctx context.Context, server *client.Admin, argument string) (discarded, error) {
			id, err := parseID(argument)
			if err != nil {
				return discarded{}, err
			}
			return discarded{id}, offerIDs(server.DiscardDeadLetter(ctx, id))
		},
		Done: func(argument string, _ discarded) string {
			return "dead letter " + argument + " is gone"
		},
	}.Command(p, operator, c)
}
