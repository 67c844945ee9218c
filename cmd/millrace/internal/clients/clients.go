// Package clients is `millrace clients`: how operators see the clients of ForgeRun, limit them, and
// revoke their keys.
//
// A client is named by its id, and a key by both ids, CLIENT/KEY, so that no key of another client
// is revoked by mistake. Limits that a command sets take the place of those of the settings for
// this client, until --reset.
package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of the table of clients.
var columns = []cli.Column[client.AdminClient]{
	{Name: "id", Keep: true, Get: func(k client.AdminClient) string { return cli.Printable(k.ID) }},
	{Name: "created_at", Time: true,
		Get: func(k client.AdminClient) string { return cli.FormatTime(k.CreatedAt) }},
	{Name: "key", Get: keyState, Tone: func(k client.AdminClient) cli.Tone {
		if keyState(k) == active {
			return cli.ToneNone
		}
		return cli.ToneWarn
	}},
	{Name: "jobs", Right: true, Get: jobs},
	{Name: "rate", Right: true, Get: func(k client.AdminClient) string {
		return used(k.RateUsed, k.RateLimitPerMinute)
	}},
	{Name: "quota", Right: true, Get: func(k client.AdminClient) string {
		return used(k.QuotaUsed, k.QuotaPerDay)
	}},
	{Name: "own_limits", Text: true, Get: func(k client.AdminClient) string {
		return cli.Printable(strings.Join(k.OverriddenLimits, ","))
	}},
}

// active is the state of a key that is good.
const active = "active"

// keyState is the state of a client's key: active if it has such a one, else that of its last one.
func keyState(k client.AdminClient) string {
	isActive := func(key client.AdminAPIKey) bool { return key.State == active }
	switch {
	case len(k.APIKeys) == 0:
		return "none"
	case slices.ContainsFunc(k.APIKeys, isActive):
		return active
	}
	return cli.Printable(k.APIKeys[len(k.APIKeys)-1].State)
}

// jobs is how many jobs a client has, with a + where there may be more.
func jobs(k client.AdminClient) string {
	if k.Jobs.Count == nil {
		return strconv.Itoa(k.Jobs.AtLeast) + "+"
	}
	return strconv.Itoa(*k.Jobs.Count)
}

// used shows how much of a limit is used, such as 12/600, and "no limit" where there is none.
func used(n, limit int) string {
	if limit == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d/%d", n, limit)
}

// Command is `millrace clients`. Each of its commands gets a connection from operator.
func Command(p cli.Process, operator func() *cli.Operator) *cobra.Command {
	c := cli.Group("clients",
		"List and limit the clients of ForgeRun and revoke their keys, as an operator")
	c.AddCommand(listCommand(p, operator()), showCommand(p, operator()),
		limitsCommand(p, operator()), revokeCommand(p, operator()))
	return c
}

// listCommand is `millrace clients list` (AD-053).
func listCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.List[client.AdminClient]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminClient, error] {
			return server.Clients(ctx, pageSize)
		},
	}.Command(p, operator, &cobra.Command{
		Use:   "list",
		Short: "List the clients, with what they have used of this minute and day",
		Long: `List the clients of ForgeRun, in the order in which they were made. RATE is what is used
of the requests of this minute, QUOTA of this UTC day. A + behind the number of jobs
says that no more were counted; 'clients show' counts more.`,
	})
}

// showCommand is `millrace clients show`.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.Show[client.AdminClient]{
		Get: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminClient, error) {
			return server.Client(ctx, argument)
		},
		Text: write,
	}.Command(p, operator, &cobra.Command{
		Use:   "show CLIENT",
		Short: "Print a client with its keys, without their secrets",
	})
}

// write writes a line for each member of a client and one for each of its keys.
func write(w io.Writer, k client.AdminClient) error {
	var b strings.Builder
	for _, c := range columns {
		if text := c.Get(k); text != "" && c.Name != "key" {
			fmt.Fprintf(&b, "%-10s  %s\n", c.Name, text)
		}
	}
	for _, key := range k.APIKeys {
		fmt.Fprintf(&b, "%-10s  %s %s, made %s", "key", cli.Printable(key.ID),
			cli.Printable(key.State), cli.FormatTime(key.CreatedAt))
		switch {
		case key.RevokedAt != nil:
			fmt.Fprintf(&b, ", revoked %s", cli.FormatTime(*key.RevokedAt))
		case key.ExpiresAt != nil:
			fmt.Fprintf(&b, ", expires %s", cli.FormatTime(*key.ExpiresAt))
		}
		b.WriteByte('\n')
	}
	if k.MoreAPIKeys {
		b.WriteString("            and others, which are revoked\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// limitsCommand is `millrace clients limits`.
func limitsCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	var rate, quota int
	var reset bool
	c := &cobra.Command{
		Use:   "limits CLIENT...",
		Short: "Limit the requests of clients, or take back what was set for them",
		Long: `Limit the requests of clients in a minute and in a UTC day, over all nodes, within two
seconds. It takes the place of the server's settings until --reset.`,
	}
	c.Flags().IntVar(&rate, "rate", 0, "requests in a minute; 0 is no limit")
	c.Flags().IntVar(&quota, "quota", 0, "requests in a day; 0 is no limit")
	c.Flags().BoolVar(&reset, "reset", false, "take back what operators have set")
	c.MarkFlagsMutuallyExclusive("reset", "rate")
	c.MarkFlagsMutuallyExclusive("reset", "quota")
	c.MarkFlagsOneRequired("reset", "rate", "quota")
	return cli.Each[client.AdminClient]{
		Check: func([]string) error {
			if rate < 0 || quota < 0 {
				return errors.New("--rate and --quota must not be below 0")
			}
			return nil
		},
		Do: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminClient, error) {
			var change client.AdminClientChange
			if reset {
				change.RateLimitPerMinute = client.LimitFromSettings()
				change.QuotaPerDay = client.LimitFromSettings()
			}
			if c.Flags().Changed("rate") {
				change.RateLimitPerMinute = client.LimitTo(rate)
			}
			if c.Flags().Changed("quota") {
				change.QuotaPerDay = client.LimitTo(quota)
			}
			return server.SetClient(ctx, argument, change)
		},
		Done: describe,
	}.Command(p, operator, c)
}

// describe returns the line about the limits of a client.
func describe(_ string, k client.AdminClient) string {
	limit := func(n int, period string) string {
		if n == 0 {
			return "any number of requests in " + period
		}
		return fmt.Sprintf("%d requests in %s", n, period)
	}
	return fmt.Sprintf("%s may make %s and %s", cli.Printable(k.ID),
		limit(k.RateLimitPerMinute, "a minute"), limit(k.QuotaPerDay, "a day"))
}

// revokeCommand is `millrace clients revoke`.
func revokeCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	return cli.Each[client.AdminClient]{
		Check: func(arguments []string) error {
			var all []error
			for _, argument := range arguments {
				_, _, err := parseKey(argument)
				all = append(all, err)
			}
			return errors.Join(all...)
		},
		Do: func(ctx context.Context, server *client.Admin,
			argument string) (client.AdminClient, error) {
			clientID, keyID, err := parseKey(argument)
			if err != nil {
				return client.AdminClient{}, err
			}
			return server.RevokeAPIKey(ctx, clientID, keyID)
		},
		Done: func(argument string, _ client.AdminClient) string { return argument + " is revoked" },
	}.Command(p, operator, &cobra.Command{
		Use:   "revoke CLIENT/KEY...",
		Short: "Revoke keys of clients",
		Long: `Revoke keys of clients, which are named by the ids of both. All nodes refuse them within
two seconds. A client whose active key is revoked gets another one by
'millrace operator recover' alone.`,
	})
}

// parseKey reads the name of a key, CLIENT/KEY.
func parseKey(argument string) (clientID, keyID string, err error) {
	clientID, keyID, found := strings.Cut(argument, "/")
	if !found || clientID == "" || keyID == "" {
		return "", "", cli.UsageError(
			"invalid key %q: write CLIENT/KEY, as 'clients show' has them", argument)
	}
	return clientID, keyID, nil
}
