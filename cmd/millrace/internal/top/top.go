// Package top is `millrace top`: queues, workers, throughput and failures of a server as they are
// now, on a terminal (CL-003).
//
//	server ──read, every interval──▶ snapshot ─▶ model ─▶ View ─▶ lines that have changed
//	keys ───────────────────────────────────────▶   │
//	                                                └─▶ a change, such as to pause a queue
//
// A read that fails leaves what was there, with the reason above it; the next one tries again. So a
// server that is restarted is waited for.
package top

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// minInterval bounds how often a server is read.
const minInterval = 200 * time.Millisecond

// Command is `millrace top`.
func Command(p cli.Process, operator *cli.Operator) *cobra.Command {
	interval := 2 * time.Second
	c := &cobra.Command{
		Use:   "top",
		Short: "Show queues, workers, throughput and failures live",
		Long: `Show queues, workers, throughput and failures live, on a terminal of 80 by 24 or
larger. A server that is restarted is waited for.

The state of a queue says what holds it: it is paused, no worker polls it, as many
of its jobs run as its limit allows, or its ready jobs start at a rate.

` + keysHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case !cli.IsTerminal(p.Stdin) || !cli.IsTerminal(p.Stdout):
				return cli.UsageError("top needs a terminal; without one there is: " +
					"millrace queues list --watch")
			case interval < minInterval:
				return cli.UsageError("--interval must not be below %s", minInterval)
			}
			return run(p, c, operator, interval)
		},
	}
	operator.Register(c)
	c.Flags().DurationVar(&interval, "interval", interval, "read the server again after each `time`")
	return c
}

// run shows the server until the user leaves or a signal comes.
func run(p cli.Process, c *cobra.Command, operator *cli.Operator, interval time.Duration) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	operator.Retry = client.Retry{MaxTries: 1}
	server, address, err := operator.Connect(p, c)
	if err != nil {
		return err
	}
	m := newModel(&remote{ctx, server}, address, interval, p.Now)
	if first := m.server.read(m.request()); first.err != nil {
		return operator.Error(ctx, first.err) // such as a wrong token, before the screen is taken
	}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(p.Stdin),
		tea.WithOutput(p.Stdout), tea.WithEnvironment(p.Environ),
		tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return cli.WithCode(cli.ExitFailed, err)
}
