package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// An export is written from a running server, or from the store itself while no server runs or
// beside one. Both ways give the same lines. It goes through the ledger from the newest job to the
// oldest and filters here: a filter by status in the server would miss jobs whose status changes
// meanwhile.

// exportFlags are the flags of export. Those of the settings select the store, those of a server
// the server to ask; the two exclude each other.
type exportFlags struct {
	settings settingsFlags
	remote   cli.RemoteFlags
	since    string
	until    string
	status   string
}

// exportCommand is `millrace export`.
func exportCommand(p cli.Process) *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the ledger of FetchBox as JSON lines, before it is pruned",
		Long: `Write the ledger of FetchBox as JSON lines, the newest job first: what operators see
of each job. With --server or MILLRACE_SERVER it asks a server, as an operator
does. Else, and with --config or --set whatever MILLRACE_SERVER is, it reads the
store that the settings name and changes nothing there, beside a running server or
without one.

--since and --until are about when a job was created, as a time (2026-03-01 or
2026-03-01T12:00:00Z) or as how long ago (36h). Jobs that come or change meanwhile
do no harm: each job that was there when the export began is written once, as it
was when it was read.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(p, c) },
	}
	f.settings.register(c)
	f.remote.Register(c)
	c.Flags().Lookup("server").Usage = "ask the server at this address instead of " +
		"reading the store (" + cli.EnvServer + ")"
	c.Flags().Lookup("token").Usage = "token of the operator, for --server (" +
		cli.EnvOperatorToken + ", which others cannot see, else " + cli.EnvToken + ")"
	c.Flags().StringVar(&f.since, "since", "", "leave out jobs created before this time")
	c.Flags().StringVar(&f.until, "until", "", "leave out jobs created at this time or later")
	c.Flags().StringVar(&f.status, "status", "",
		"only jobs with one of these statuses: queued, in_progress, completed, failed; separated by commas")
	c.MarkFlagsMutuallyExclusive("server", "config")
	c.MarkFlagsMutuallyExclusive("server", "set")
	return c
}

// exportFilter is a part of the ledger: the jobs created at or after since and before until, zero
// times being no bounds, that have one of the statuses, or any for none.
type exportFilter struct {
	since, until time.Time
	statuses     []client.FetchBoxStatus
}

// run exports from the server that --server or MILLRACE_SERVER names. Without one, and always with
// --config or --set, it exports from the store of the settings. A wrong time or status is a usage
// error, before anything is opened.
func (f *exportFlags) run(p cli.Process, c *cobra.Command) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	part, err := f.filter(p)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	ofStore := c.Flags().Changed("config") || c.Flags().Changed("set")
	if !ofStore && f.remote.ServerSetting(p) != "" {
		return f.exportServer(ctx, p, part)
	}
	s, err := f.settings.load(p, c)
	if err != nil {
		return err
	}
	return exportStore(ctx, p, s, part)
}

// exportServer exports from a server, as an operator.
func (f *exportFlags) exportServer(ctx context.Context, p cli.Process, part exportFilter) error {
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	box := c.FetchBox()
	if token := p.Env(cli.EnvOperatorToken); token != "" && !f.remote.HasTokenFlag() {
		box = box.WithOperatorToken(token)
	}
	err = part.write(p.Stdout, box.Jobs(ctx, client.FetchBoxFilter{PageSize: 100}))
	if errors.Is(err, client.ErrUnauthorized) {
		return cli.WithCode(cli.ExitUnauthorized, fmt.Errorf(
			"the server refuses the operator's token (--token or %s): %w", cli.EnvOperatorToken, err))
	}
	return cli.RemoteError(ctx, err)
}

// filter returns the part of the ledger that the flags select. Ages such as 36h count back from
// now.
func (f *exportFlags) filter(p cli.Process) (l exportFilter, err error) {
	now := p.Now()
	since, err := cli.ParseTimeOrAge(now, "--since", f.since)
	until, wrong := cli.ParseTimeOrAge(now, "--until", f.until)
	if err = errors.Join(err, wrong); err != nil {
		return l, err
	}
	l.since, l.until = since, until
	for word := range strings.SplitSeq(f.status, ",") {
		status := client.FetchBoxStatus(strings.TrimSpace(word))
		switch status {
		case client.FetchBoxStatusQueued, client.FetchBoxStatusInProgress,
			client.FetchBoxStatusCompleted, client.FetchBoxStatusFailed:
			l.statuses = append(l.statuses, status)
		case "":
		default:
			return l, fmt.Errorf(
				"--status: unknown status %q: must be queued, in_progress, completed or failed",
				status)
		}
	}
	return l, nil
}

// exportStore exports from the store that the settings name (FB-093). It reads page by page in read
// transactions and takes no lock that a server could wait for. A store that cannot be read is an
// error of ExitUnable, an output that cannot be written one of ExitFailed.
func exportStore(ctx context.Context, p cli.Process, s *nodeSettings, part exportFilter) error {
	opened, err := openViews(ctx, p, s)
	if err != nil {
		return err
	}
	defer opened.Close()
	export := s.definitions[slices.IndexFunc(s.definitions, hasExport)].Export
	err = part.write(p.Stdout, func(yield func(client.FetchBoxJob, error) bool) {
		for line, err := range export(ctx, opened.View, part.since, part.until) {
			if !yield(decodeExported(line, err)) {
				return
			}
		}
	})
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	var unread *job.Error
	if errors.As(err, &unread) {
		return storeError(s, err)
	}
	return cli.WithCode(cli.ExitFailed, err)
}

// hasExport reports whether a contract has a ledger. One does.
func hasExport(d *contract.Definition) bool { return d.Export != nil }

// decodeExported decodes a line that was read, unless reading it failed. Lines of the store take
// the type of the client as well, so that an export has the same members from either.
func decodeExported(line []byte, readErr error) (j client.FetchBoxJob, err error) {
	if readErr != nil {
		return j, readErr
	}
	err = json.Unmarshal(line, &j)
	return j, err
}

// exportLine is a job in an export. What it does not have is null, as in the answers of a server.
type exportLine struct {
	client.FetchBoxJob
	ManifestKey *string `json:"manifest_key"`
	Tenant      *string `json:"tenant"`
}

// write writes the jobs that pass the filter. The jobs arrive newest first and with every status:
// asked for by status, a job that changes its status meanwhile would be missed. Behind the first
// job that is older than since there are only older ones, and write stops reading. After an error
// of jobs the lines before it are written nevertheless.
func (l *exportFilter) write(w io.Writer, jobs iter.Seq2[client.FetchBoxJob, error]) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for j, err := range jobs {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if !l.since.IsZero() && j.CreatedAt.Before(l.since) {
			break
		}
		if (!l.until.IsZero() && !j.CreatedAt.Before(l.until)) ||
			(len(l.statuses) > 0 && !slices.Contains(l.statuses, j.Status)) {
			continue
		}
		line := exportLine{FetchBoxJob: j, ManifestKey: textOrNull(j.ManifestKey),
			Tenant: textOrNull(j.Tenant)}
		if err := lines.Encode(line); err != nil {
			return cli.FailedError("%w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return cli.FailedError("%w", err)
	}
	return nil
}

// textOrNull returns nil for an empty text, which is null in JSON.
func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
