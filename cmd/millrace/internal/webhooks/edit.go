package webhooks

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/setting"
)

// One set of flags serves add and edit. Which flags were given decides which members the request
// has: edit leaves out all others, so they stay as they are.

// specFlags are the flags of what operators subscribe to (WH-001).
type specFlags struct {
	url, name, ratePeriod            string
	events, contracts, queues, kinds []string
	includePayload, isNew            bool
	maxInFlight, rate                int
	changed                          func(name string) bool
}

// register adds the flags to a command; url only where the command changes it.
func (f *specFlags) register(c *cobra.Command) {
	all := c.Flags()
	f.changed = all.Changed
	all.StringSliceVar(&f.events, "events", nil,
		"types of events, or patterns such as \"*.job.failed\"; 'millrace webhooks events' lists them")
	all.StringSliceVar(&f.contracts, "contracts", nil, "only events of these contracts")
	all.StringSliceVar(&f.queues, "queues", nil, "only events of these queues")
	all.BoolVar(&f.isNew, "new", false, "take --queues also where a queue had no job yet")
	all.StringSliceVar(&f.kinds, "kinds", nil, "only events of jobs of these kinds")
	all.StringVar(&f.name, "name", "", "what it is called")
	all.BoolVar(&f.includePayload, "include-payload", false, "add the payload of jobs to their events")
	all.IntVar(&f.maxInFlight, "max-in-flight", 0, "the maximum number of requests at a time; 0 is 4")
	all.IntVar(&f.rate, "rate", 0, "the maximum number of requests in every --rate-period; 0 is no bound")
	all.StringVar(&f.ratePeriod, "rate-period", "", "the period of --rate: a `duration` such as 1m")
}

// spec returns what the flags that were given say.
func (f *specFlags) spec() (s client.AdminWebhookSpec) {
	set(&s.URL, &f.url, f.changed("url"))
	set(&s.Name, &f.name, f.changed("name"))
	set(&s.Contracts, &f.contracts, f.changed("contracts"))
	set(&s.Queues, &f.queues, f.changed("queues"))
	set(&s.Kinds, &f.kinds, f.changed("kinds"))
	set(&s.IncludePayload, &f.includePayload, f.changed("include-payload"))
	set(&s.MaxInFlight, &f.maxInFlight, f.changed("max-in-flight"))
	set(&s.RateLimit, &f.rate, f.changed("rate"))
	set(&s.RatePeriod, &f.ratePeriod, f.changed("rate-period"))
	s.Events = f.events
	return s
}

// checkQueues refuses queues that the server does not list without --new: a name may be misspelt.
func (f *specFlags) checkQueues(ctx context.Context, server *client.Admin) error {
	if f.isNew {
		return nil
	}
	for _, name := range f.queues {
		known, err := queueNames(ctx, server, client.AdminQueueFilter{NameContains: name})
		if err != nil {
			return err
		}
		if slices.Contains(known, name) {
			continue
		}
		known, err = queueNames(ctx, server, client.AdminQueueFilter{})
		if err != nil {
			return err
		}
		hint := ";"
		if similar, ok := closestQueue(name, known); ok {
			hint = "; did you mean " + similar + "?"
		}
		return cli.FailedError("there is no queue %s%s --new subscribes to one that has had no job "+
			"yet", cli.Printable(name), cli.Printable(hint))
	}
	return nil
}

// closestQueue returns the queue that a name was most likely meant to be. Other commands name a
// queue together with its contract, as in relay/mail.
func closestQueue(name string, known []string) (queue string, ok bool) {
	if _, queue, ok = strings.Cut(name, "/"); ok && slices.Contains(known, queue) {
		return queue, true
	}
	return setting.Closest(name, known)
}

// maxSuggested is how many queues are looked at for the one that was meant.
const maxSuggested = 500

// queueNames returns the first queues of the server that a filter selects.
func queueNames(ctx context.Context, server *client.Admin,
	f client.AdminQueueFilter) (names []string, err error) {
	f.PageSize = maxSuggested
	for q, err := range server.Queues(ctx, f) {
		if err != nil {
			return nil, err
		}
		if names = append(names, q.Queue); len(names) == maxSuggested {
			break
		}
	}
	return names, nil
}

// set has a member point to the value of a flag that was given.
func set[T any](member **T, value *T, given bool) {
	if given {
		*member = value
	}
}

// made is a webhook with its secret.
type made struct {
	client.AdminWebhook
	Secret string `json:"secret"`
}

// addCommand is `millrace webhooks add`.
func addCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f specFlags
	secret := ""
	c := &cobra.Command{
		Use:   "add URL --events TYPES",
		Short: "Subscribe a URL to events of all contracts",
		Long: `Subscribe a URL to events of all contracts, as an operator, and print the secret under
which the requests are signed. It is shown this once.`,
		Args: cobra.ExactArgs(1),
	}
	f.register(c)
	c.Flags().StringVar(&secret, "secret", "", "the secret, whsec_ and Base64; without it one is made")
	_ = c.MarkFlagRequired("events") // it exists
	return cli.Each[made]{
		Do: func(ctx context.Context, server *client.Admin, url string) (made, error) {
			if err := f.checkQueues(ctx, server); err != nil {
				return made{}, err
			}
			spec := f.spec()
			spec.URL = &url
			h, plain, err := server.CreateWebhook(ctx, spec, secret)
			return made{h, plain}, err
		},
		Done: func(_ string, m made) string {
			return fmt.Sprintf("%s gets %s\nsecret: %s", m.ID,
				cli.Printable(strings.Join(m.Events, ", ")), m.Secret)
		},
	}.Command(p, operator, c)
}

// editCommand is `millrace webhooks edit`.
func editCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f specFlags
	c := &cobra.Command{Use: "edit ID", Args: cobra.ExactArgs(1),
		Short: "Change what the flags name of a webhook of operators"}
	f.register(c)
	c.Flags().StringVar(&f.url, "url", "", "where events are sent to")
	return cli.Each[client.AdminWebhook]{
		Do: func(ctx context.Context, server *client.Admin,
			id string) (client.AdminWebhook, error) {
			if err := f.checkQueues(ctx, server); err != nil {
				return client.AdminWebhook{}, err
			}
			return server.SetWebhook(ctx, id, f.spec())
		},
		Done: func(_ string, h client.AdminWebhook) string {
			return h.ID + ": " + strings.Join(f.describe(&h), ", ")
		},
	}.Command(p, operator, c)
}

// describe says what the flags that were given have set, in the order of the flags.
func (f *specFlags) describe(h *client.AdminWebhook) (all []string) {
	list := func(names []string) string {
		if len(names) == 0 {
			return "all"
		}
		return strings.Join(names, ",")
	}
	rate := "no bound"
	if h.RateLimit > 0 {
		rate = fmt.Sprintf("%d in %s", h.RateLimit, h.RatePeriod)
	}
	for _, of := range []struct {
		flag, is string
	}{
		{"url", h.URL}, {"events", list(h.Events)}, {"contracts", list(h.Contracts)},
		{"queues", list(h.Queues)}, {"kinds", list(h.Kinds)}, {"name", h.Name},
		{"include-payload", strconv.FormatBool(h.IncludePayload)},
		{"max-in-flight", strconv.Itoa(h.MaxInFlight)}, {"rate", rate},
	} {
		isRate := of.flag == "rate" && f.changed("rate-period")
		if f.changed(of.flag) || isRate {
			all = append(all, of.flag+" is "+cli.Printable(of.is))
		}
	}
	return all
}

// removeCommand is `millrace webhooks remove`.
func removeCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.Each[struct{}]{
		Do: func(ctx context.Context, server *client.Admin, id string) (struct{}, error) {
			return struct{}{}, server.DeleteWebhook(ctx, id)
		},
		Done: func(id string, _ struct{}) string { return id + " is removed" },
	}.Command(p, operator, &cobra.Command{Use: "remove ID...",
		Short: "Remove webhooks of operators"})
}

// rotateCommand is `millrace webhooks rotate-secret`.
func rotateCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	type rotated struct {
		Secret string `json:"secret"`
	}
	return cli.Each[rotated]{
		Do: func(ctx context.Context, server *client.Admin, id string) (rotated, error) {
			secret, err := server.RotateWebhookSecret(ctx, id)
			return rotated{secret}, err
		},
		Done: func(id string, r rotated) string { return id + ": the secret is " + r.Secret },
	}.Command(p, operator, &cobra.Command{Use: "rotate-secret ID", Args: cobra.ExactArgs(1),
		Short: "Give a webhook of operators a new secret; the old one is good for a day"})
}

// eventColumns are the columns of the table of types of events.
var eventColumns = []cli.Column[client.AdminWebhookEventType]{
	{Name: "type", Keep: true, Get: func(t client.AdminWebhookEventType) string { return t.Type }},
	{Name: "meaning", Text: true, Get: func(t client.AdminWebhookEventType) string { return t.Description }},
}

// eventsCommand is `millrace webhooks events`.
func eventsCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.List[client.AdminWebhookEventType]{
		Columns: eventColumns,
		Items: func(ctx context.Context, server *client.Admin,
			_ int) iter.Seq2[client.AdminWebhookEventType, error] {
			return server.WebhookEventTypes(ctx)
		},
	}.Command(p, operator, &cobra.Command{Use: "events",
		Short: "List the types of events; --json has their JSON Schemas and examples"})
}
