// Package audit is `millrace audit`: it lists what operators have changed.
//
// The table says of each entry which members it has changed; --json has the whole states before and
// after. With other commands --actor says who acts, for the audit. Here it selects whose entries
// are listed.
package audit

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// columns are the columns of the table.
var columns = []cli.Column[client.AdminAuditEntry]{
	{Name: "at", Time: true,
		Get: func(e client.AdminAuditEntry) string { return cli.FormatTime(e.At) }},
	{Name: "actor", Get: func(e client.AdminAuditEntry) string { return e.Actor }},
	{Name: "action", Keep: true, Get: func(e client.AdminAuditEntry) string { return e.Action }},
	{Name: "target", Keep: true, Get: func(e client.AdminAuditEntry) string { return e.Target }},
	{Name: "remote", Get: func(e client.AdminAuditEntry) string { return e.Remote }},
	{Name: "refused", Text: true,
		Get:  func(e client.AdminAuditEntry) string { return cli.Format(e.RefusalCode) },
		Tone: func(client.AdminAuditEntry) cli.Tone { return cli.ToneBad }},
	{Name: "change", Text: true, Get: change},
	{Name: "before", Text: true, Extra: true,
		Get: func(e client.AdminAuditEntry) string { return string(e.Before) }},
	{Name: "after", Text: true, Extra: true,
		Get: func(e client.AdminAuditEntry) string { return string(e.After) }},
	{Name: "request_id", Extra: true,
		Get: func(e client.AdminAuditEntry) string { return e.RequestID }},
}

// change says which members an entry has changed, such as "paused: true".
func change(e client.AdminAuditEntry) string {
	var before, after map[string]json.RawMessage
	if json.Unmarshal(e.After, &after) != nil {
		return ""
	}
	_ = json.Unmarshal(e.Before, &before) // without a state before, all is new
	var all []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if string(before[name]) != string(after[name]) {
			all = append(all, name+": "+string(after[name]))
		}
	}
	return cli.Printable(strings.Join(all, ", "))
}

// Command is `millrace audit`.
func Command(p cli.Process, operator *cli.Operator) *cobra.Command {
	var f client.AdminAuditFilter
	c := &cobra.Command{
		Use:   "audit",
		Short: "List what operators have changed, the newest first",
		Long: `List what operators have changed, through the admin API, the console or commands,
the newest first; also what they were refused.

--from and --to are times (2026-03-01 or 2026-03-01T12:00:00Z) or how long ago
(36h).`,
	}
	c.Flags().StringVar(&f.Action, "action", "", "only this action, such as token.rotate")
	c.Flags().StringVar(&f.Target, "target", "", "only this target, such as token:operator")
	cli.TimeVar(c.Flags(), p, &f.From, "from", "only entries of this time or later")
	cli.TimeVar(c.Flags(), p, &f.To, "to", "only entries before this time")
	list := cli.List[client.AdminAuditEntry]{
		Columns: columns,
		Items: func(ctx context.Context, server *client.Admin,
			pageSize int) iter.Seq2[client.AdminAuditEntry, error] {
			f.PageSize, f.Actor = pageSize, c.Flags().Lookup("actor").Value.String()
			return server.Audit(ctx, f)
		},
	}.Command(p, operator, c)
	list.Flags().Lookup("actor").Usage = "only what this `name` has done, with its kind or alone"
	return list
}
