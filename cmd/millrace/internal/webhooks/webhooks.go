// Package webhooks is `millrace webhooks`: how operators see the webhooks of all clients and have
// their own, test them, and send again what failed.
//
// Webhooks of clients can be disabled, enabled, tested and replayed; what they subscribe to, and
// their secrets, are their owners' (edit.go is about those of operators). A secret is printed by
// the command that makes it, and by no other.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of the table of webhooks.
var columns = []cli.Column[client.AdminWebhook]{
	{Name: "id", Keep: true, Get: func(h client.AdminWebhook) string { return h.ID }},
	{Name: "url", Text: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(h.URL) }},
	{Name: "state", Get: func(h client.AdminWebhook) string { return h.State },
		Tone: tone(func(h client.AdminWebhook) bool { return h.State == "disabled" })},
	{Name: "success_rate", Right: true, Get: successRate},
	{Name: "last_status", Right: true, Get: lastStatus,
		Tone: tone(func(h client.AdminWebhook) bool { return h.LastError != "" })},
	{Name: "pending", Right: true,
		Get: func(h client.AdminWebhook) string { return strconv.Itoa(h.Pending) }},
	{Name: "exhausted", Right: true,
		Get: func(h client.AdminWebhook) string { return strconv.Itoa(h.Exhausted) }},
	{Name: "delivered", Extra: true, Right: true,
		Get: func(h client.AdminWebhook) string { return strconv.Itoa(h.Delivered) }},
	{Name: "client", Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(h.ClientID) }},
	{Name: "name", Text: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(h.Name) }},
	{Name: "events", Text: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(strings.Join(h.Events, ",")) }},
	{Name: "disabled_reason", Text: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(h.DisabledReason) }},
	{Name: "last_error", Text: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.Printable(h.LastError) }},
	{Name: "last_try_at", Time: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.FormatTimePtr(h.LastAttemptAt) }},
	{Name: "failing_since", Time: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.FormatTimePtr(h.FailingSince) }},
	{Name: "created_at", Time: true, Extra: true,
		Get: func(h client.AdminWebhook) string { return cli.FormatTime(h.CreatedAt) }},
}

// tone colours a cell of those webhooks that are bad.
func tone(bad func(client.AdminWebhook) bool) func(client.AdminWebhook) cli.Tone {
	return func(h client.AdminWebhook) cli.Tone {
		if bad(h) {
			return cli.ToneBad
		}
		return cli.ToneNone
	}
}

// successRate is a percentage to one place, empty where no delivery is done.
func successRate(h client.AdminWebhook) string {
	if h.SuccessRate == nil {
		return ""
	}
	return strconv.FormatFloat(math.Round(1000**h.SuccessRate)/10, 'f', -1, 64) + "%"
}

// lastStatus is "none" where the receiver did not answer, and empty where it was not called.
func lastStatus(h client.AdminWebhook) string {
	switch {
	case h.LastAttemptAt == nil:
		return ""
	case h.LastStatus == 0:
		return "none"
	}
	return strconv.Itoa(h.LastStatus)
}

// deliveryColumns are the columns of the table of deliveries.
var deliveryColumns = []cli.Column[client.AdminDelivery]{
	{Name: "id", Keep: true, Get: func(d client.AdminDelivery) string { return d.ID }},
	{Name: "event_name",
		Get: func(d client.AdminDelivery) string { return cli.Printable(d.EventName) }},
	{Name: "job", Text: true, Get: aboutJob},
	{Name: "state", Get: func(d client.AdminDelivery) string { return d.State }},
	{Name: "tries", Right: true,
		Get: func(d client.AdminDelivery) string { return strconv.Itoa(len(d.Attempts)) }},
	{Name: "last_try", Text: true, Get: lastAttempt},
	{Name: "next_try_at", Time: true,
		Get: func(d client.AdminDelivery) string { return cli.FormatTimePtr(d.NextAttemptAt) }},
	{Name: "event_id", Extra: true,
		Get: func(d client.AdminDelivery) string { return cli.Printable(d.EventID) }},
	{Name: "number", Extra: true, Right: true,
		Get: func(d client.AdminDelivery) string { return strconv.FormatInt(d.Number, 10) }},
}

// aboutJob names the job that the event of a delivery is about, as other commands take it; it is
// empty where the event is about none.
func aboutJob(d client.AdminDelivery) string {
	if d.JobID == "" {
		return ""
	}
	return cli.Printable(d.JobContract + "/" + d.JobID)
}

// lastAttempt says what came of the last attempt at a delivery.
func lastAttempt(d client.AdminDelivery) string {
	if len(d.Attempts) == 0 {
		return ""
	}
	last := d.Attempts[len(d.Attempts)-1]
	if last.Error != "" {
		return cli.Printable(last.Error)
	}
	return strconv.Itoa(last.Status)
}

// Command is `millrace webhooks`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("webhooks",
		"Subscribe to events of all contracts; list, test, replay and disable all webhooks")
	c.AddCommand(addCommand(p, operator()), editCommand(p, operator()),
		removeCommand(p, operator()), rotateCommand(p, operator()), eventsCommand(p, operator()),
		listCommand(p, operator()), deliveriesCommand(p, operator()),
		testCommand(p, operator()), replayCommand(p, operator()),
		setCommand((*client.Admin).EnableWebhook).Command(p, operator(), &cobra.Command{
			Use:   "enable ID...",
			Short: "Resume the deliveries to webhooks",
		}),
		setCommand((*client.Admin).DisableWebhook).Command(p, operator(), &cobra.Command{
			Use:   "disable ID...",
			Short: "End the deliveries to webhooks; their clients may enable them again",
		}))
	return c
}

// listCommand is `millrace webhooks list` (AD-052).
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminWebhookFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List the webhooks of clients and operators, with how their newest 100 deliveries fared",
	}
	c.Flags().StringVar(&f.ClientID, "client", "", "only webhooks of the client with this id")
	c.Flags().StringVar(&f.State, "state", "", "only webhooks that are enabled or disabled")
	cli.CompleteWords(c, "state", "enabled", "disabled")
	return cli.List[client.AdminWebhook]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminWebhook, error] {
			f.PageSize = pageSize
			return server.Webhooks(ctx, f)
		},
	}.Command(p, operator, c)
}

// deliveriesCommand is `millrace webhooks deliveries`.
func deliveriesCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	state := ""
	c := &cobra.Command{
		Use:   "deliveries ID",
		Short: "List the deliveries of a webhook, the newest first",
		Args:  cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&state, "state", "", "only those that are pending, delivered or exhausted")
	cli.CompleteWords(c, "state", "pending", "delivered", "exhausted")
	return cli.List[client.AdminDelivery]{
		Columns: deliveryColumns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminDelivery, error] {
			return server.Deliveries(ctx, c.Flags().Arg(0), state, pageSize)
		},
	}.Command(p, operator, c)
}

// testCommand is `millrace webhooks test`.
func testCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{
		Use:   "test ID...",
		Short: "Send a signed event to webhooks now, and print what came back",
		Long: `Send a signed event named millrace.test to webhooks now, also to disabled ones, and
print what came back. It is not tried again and decides nothing about the webhook.
The exit code is 1 where the receiver has not accepted it.`,
	}
	return cli.Each[client.AdminWebhookTest]{
		Do: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminWebhookTest, error) {
			return server.TestWebhook(ctx, argument)
		},
		Done: describeTest,
		Failed: func(t client.AdminWebhookTest) error {
			if t.Succeeded {
				return nil
			}
			return errors.New("the receiver has not accepted the event")
		},
	}.Command(p, operator, c)
}

// maxResponse bounds the characters that are printed of an answer.
const maxResponse = 200

// describeTest returns the line about a test.
func describeTest(id string, t client.AdminWebhookTest) string {
	if t.Status == 0 {
		return fmt.Sprintf("%s: no answer in %d ms: %s", id, t.DurationMS, cli.Printable(t.Error))
	}
	text := fmt.Sprintf("%s: answered %d in %d ms", id, t.Status, t.DurationMS)
	answer := []rune(cli.Printable(strings.TrimSpace(t.Response)))
	if len(answer) == 0 {
		return text
	}
	return text + ": " + string(answer[:min(len(answer), maxResponse)])
}

// replayCommand is `millrace webhooks replay`.
func replayCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminDeliveryReplayFilter
	c := &cobra.Command{
		Use:   "replay ID...",
		Short: "Send again what webhooks have missed",
		Long: `Make the deliveries of webhooks once more that were given up, the oldest first, by a
bulk operation for each webhook. A delivery is replayed once, however often this is
run. --from and --to are times (2026-03-01 or 2026-03-01T12:00:00Z) or how long ago
(36h). On a terminal it asks before; --yes answers, --dry-run only counts.`,
	}
	var confirm cli.Confirmation
	confirm.Register(c)
	dryRun := c.Flags().Bool("dry-run", false, "change nothing and print how many there are")
	cli.TimeVar(c.Flags(), p, &f.From, "from", "only deliveries that were made at this time or later")
	cli.TimeVar(c.Flags(), p, &f.To, "to", "only deliveries that were made before this time")
	c.Flags().StringVar(&f.State, "state", "exhausted", "those that were given up (exhausted) or "+
		"accepted (delivered)")
	cli.CompleteWords(c, "state", "exhausted", "delivered")
	return cli.Each[replayed]{
		Do: func(ctx context.Context, server *client.Admin, argument string) (replayed, error) {
			missed, err := countDeliveries(ctx, server, argument, &f)
			if err != nil || *dryRun {
				return replayed{Webhook: argument, found: missed}, err
			}
			if err := confirm.AskOnTerminal(p, "send again "+missed+" to "+argument); err != nil {
				return replayed{}, err
			}
			id, err := server.ReplayDeliveries(ctx, argument, f)
			return replayed{Webhook: argument, BulkID: id}, err
		},
		Done: func(id string, done replayed) string {
			if done.BulkID == "" {
				return fmt.Sprintf("%s of %s would be made once more", done.found, id)
			}
			return fmt.Sprintf("bulk %s replays %s; see millrace bulk show %[1]s", done.BulkID, id)
		},
	}.Command(p, operator, c)
}

// replayed is what --json prints of a replay that has begun.
type replayed struct {
	Webhook string `json:"webhook"`
	BulkID  string `json:"bulk_id"` // empty for a dry run
	found   string
}

// maxCounted is up to how many deliveries a question counts.
const maxCounted = 1000

// countDeliveries says how many deliveries a replay is about. Of those of a time it says how many
// there are at all, as a list does not have the time of each.
func countDeliveries(ctx context.Context, server *client.Admin, id string,
	f *client.AdminDeliveryReplayFilter) (string, error) {
	n, more := int64(0), ""
	for _, err := range server.Deliveries(ctx, id, f.State, maxCounted/2) {
		if err != nil {
			return "", err
		}
		if n == maxCounted {
			more = "more than "
			break
		}
		n++
	}
	what := more + strconv.FormatInt(n, 10) + " deliveries"
	if n == 1 {
		what = "1 delivery"
	}
	if f.From.IsZero() && f.To.IsZero() {
		return what, nil
	}
	return "what was made in that time of " + what, nil
}

// setCommand enables or disables each of its arguments.
func setCommand(do func(a *client.Admin, ctx context.Context,
	id string) (client.AdminWebhook, error)) cli.Each[client.AdminWebhook] {
	return cli.Each[client.AdminWebhook]{
		Do: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminWebhook, error) {
			return do(server, ctx, argument)
		},
		Done: func(_ string, h client.AdminWebhook) string { return h.ID + " is " + h.State },
	}
}
