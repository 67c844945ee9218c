package dlq

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A dead letter says why a job was given up. Whoever replays it also wants to know what it was: its
// payload, and the state that it had reached. These are of its job, which the server knows by its
// number for as long as the dead letter is there, and no members of the dead letter in JSON.

// shown is a dead letter with the bodies of its job.
type shown struct {
	client.AdminDeadLetter
	payload, state json.RawMessage
}

// showCommand is `millrace dlq show`.
func showCommand(p cli.Process, operator *cli.Operator) *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Print a dead letter, with its job's payload and state"}
	return cli.Show[shown]{Columns: shownColumns(), Get: readShown}.Command(p, operator, c)
}

// shownColumns are the columns of a list, and the bodies below.
func shownColumns() []cli.Column[shown] {
	var all []cli.Column[shown]
	for _, c := range columns {
		all = append(all, cli.Column[shown]{Name: c.Name, Time: c.Time, Keep: c.Keep, Text: c.Text,
			Get: func(s shown) string { return c.Get(s.AdminDeadLetter) }})
	}
	return append(all,
		cli.Column[shown]{Name: "payload", Text: true,
			Get: func(s shown) string { return bodyText(s.payload) }},
		cli.Column[shown]{Name: "state", Text: true,
			Get: func(s shown) string { return bodyText(s.state) }})
}

// bodyText writes a body on one line; "" for none.
func bodyText(body json.RawMessage) string {
	if string(body) == "null" {
		return ""
	}
	return cli.Printable(string(body))
}

// readShown reads a dead letter and its job. A job that was removed since has no bodies.
func readShown(ctx context.Context, server *client.Admin, argument string) (s shown, err error) {
	id, err := parseID(argument)
	if err != nil {
		return s, err
	}
	if s.AdminDeadLetter, err = server.DeadLetter(ctx, id); err != nil {
		return s, offerIDs(err)
	}
	j, err := server.Job(ctx, s.Number)
	if errors.Is(err, client.ErrNotFound) {
		return s, nil
	}
	s.payload, s.state = j.Payload, j.Progress
	return s, err
}
