package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

// defaultWatch is the time between two repetitions where --watch has no value.
const defaultWatch = 2 * time.Second

// registerWatch adds --watch, which may have a value: --watch=10s.
func registerWatch(c *cobra.Command, every *time.Duration) {
	c.Flags().DurationVar(every, "watch", 0,
		"print again after each `time`, 2s without one (--watch=10s), until interrupted")
	c.Flags().Lookup("watch").NoOptDefVal = defaultWatch.String()
	takes := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if err := takes(c, args); err != nil {
			return offerWatch(c, args, err)
		}
		return nil
	}
}

// offerWatch adds to the error of arguments that the last of them may be the time of --watch.
func offerWatch(c *cobra.Command, args []string, err error) error {
	if !c.Flags().Changed("watch") || len(args) == 0 {
		return err
	}
	last := args[len(args)-1]
	if _, notTime := time.ParseDuration(last); notTime != nil {
		return err
	}
	return UsageError("%w; --watch takes its time after an =: --watch=%s", err, last)
}

// repeat connects and prints once, or with a time for --watch until a signal, which is then no
// error. On a terminal each repetition takes the place of the one before it. A server that cannot
// be reached meanwhile is waited for.
func repeat(p Process, c *cobra.Command, operator *Operator, every time.Duration,
	print func(context.Context, *client.Admin, io.Writer) error) error {
	ctx, stop := UntilSignal(context.Background())
	defer stop()
	server, _, err := operator.Connect(p, c)
	switch {
	case err != nil:
		return err
	case every < 0:
		return UsageError("--watch must not be below 0")
	case every == 0:
		return operator.Error(ctx, print(ctx, server, p.Stdout))
	}
	next := time.NewTicker(every)
	defer next.Stop()
	for {
		var page bytes.Buffer
		err := operator.Error(ctx, print(ctx, server, &page))
		switch {
		case ctx.Err() != nil:
			return nil
		case ExitCode(err) == ExitServer:
			fmt.Fprintln(&page, ErrorText(err))
		case err != nil:
			return err
		}
		if err := replacePage(p, page.String()); err != nil {
			return WithCode(ExitFailed, err)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// replacePage writes a page. On a terminal it takes the place of the former one: each line is
// overwritten and its rest erased, which does not flicker as an erased screen would.
func replacePage(p Process, page string) error {
	if IsTerminal(p.Stdout) {
		page = "\x1b[H" + strings.ReplaceAll(page, "\n", "\x1b[K\n") + "\x1b[J"
	}
	_, err := io.WriteString(p.Stdout, page)
	return err
}
