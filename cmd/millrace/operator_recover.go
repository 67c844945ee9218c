package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// A client that has lost its key cannot prove who it is, and ForgeRun's document has no route for
// that. The operator, who can read the store and the pepper, issues a new key with this command
// (G-FR-03). It opens the store as a server does, with an engine of its own, because revoking the
// earlier key must reach the other nodes like any change:
//
//	existingPepper   the schema and the pepper file are those of the servers, or nothing is opened
//	openStore        SQLite refuses while a server has the file open; PostgreSQL is shared
//	Accounts.Bind    the keys in the store were made under this pepper
//	Accounts.Recover one transaction: the new key, the end of the earlier one, and the entry of
//	                 the audit
//	printKey         the key leaves the process only after the commit
//
// A crash before the commit changes nothing. After a crash between commit and output the key is
// lost, and the command is run once more.

// recoverCommand is `millrace operator recover`. The new key has the lifetime that a server would
// give it, as the contract makes the accounts by its settings.
func recoverCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	c := &cobra.Command{
		Use:   "recover CLIENT_ID",
		Short: "Give a ForgeRun client that lost its API key a new one",
		Long: `Give a ForgeRun client that lost its API key, or revoked it, a new one. The new
key is the only line on standard output and cannot be shown again; the client's
earlier key, if it has one, is refused from then on.

It works on the store of the settings directly. On SQLite the server must be
stopped first, as one process at a time may use the data directory. On PostgreSQL
servers may go on; they refuse the earlier key within a second. The pepper file
must be the servers'.

Exit codes: 0 done, 1 there is no such client, 2 the command line or a setting is
wrong, 3 the store or the pepper file cannot be opened.`,
		Example: "  millrace operator recover 7b0c7d1e-3f0f-4a55-9a39-0d8f6c2a4f11 --config " +
			"millrace.toml",
		Args: oneClientArg,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := flags.load(p, c)
			if err != nil {
				return err
			}
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			return recoverKey(ctx, p, s, args[0])
		},
	}
	flags.register(c)
	return c
}

// oneClientArg checks the arguments of recover: exactly one UUID, in the form with hyphens.
func oneClientArg(_ *cobra.Command, args []string) error {
	const expected = "operator recover expects one CLIENT_ID, the UUID that POST /v1/clients " +
		"answered with as client_id"
	if len(args) != 1 {
		return cli.UsageError("%s, and there are %s", expected,
			cli.Pluralize(int64(len(args)), "argument"))
	}
	if _, ok := uuids.Parse(args[0]); !ok {
		return cli.UsageError("%s; %q is not a UUID", expected, args[0])
	}
	return nil
}

// recoverKey issues a new key for a client and prints it. It makes neither a store nor a pepper
// where there is none: no server would accept a key that was made with them.
func recoverKey(ctx context.Context, p cli.Process, s *nodeSettings, clientID string) error {
	pepper, err := existingPepper(ctx, s)
	if err != nil {
		return err
	}
	opened, err := openStore(ctx, p, s, func(string, time.Duration, error) {})
	if err != nil {
		if !databaseOf(s).shared {
			return cli.WithCode(cli.ExitUnable,
				fmt.Errorf("%w; a server that runs on it must be stopped first", err))
		}
		return err
	}
	defer opened.Close()
	e, err := engine.New(engine.Config{Store: opened, Node: nodeName(), Random: randomBytes,
		Monotonic: p.Elapsed})
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	defer e.Close()
	clients := s.definitions[slices.IndexFunc(s.definitions, hasAccounts)]
	accounts, err := clients.Accounts(account.Config{Engine: e, Pepper: pepper, Elapsed: p.Elapsed})
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	if err := accounts.Bind(ctx); err != nil {
		return recoverError(ctx, err)
	}
	issued, err := accounts.Recover(ctx, clientID, func(w engine.RecordWriter) error {
		return admin.RecordCommand(w, s.Operator.AuditRetention, "client.recover",
			"client:"+clientID)
	})
	if err != nil {
		return recoverError(ctx, err)
	}
	return printKey(p, issued)
}

// hasAccounts reports whether a contract has accounts of clients. One does.
func hasAccounts(d *contract.Definition) bool { return d.Accounts != nil }

// existingPepper reads the pepper of a server that uses the store of the settings. A store with
// another schema, or no pepper file, means that the settings are not those of the servers; it is an
// error of ExitUnable, and nothing is changed.
func existingPepper(ctx context.Context, s *nodeSettings) ([]byte, error) {
	have, want, err := schemaVersion(ctx, s)
	if err != nil {
		return nil, err
	}
	if have != want {
		return nil, cli.UnableError(
			"the store %s in %s has schema %d and this binary has %d: use the "+
				"servers' settings and version", s.Store, s.DataDir, have, want)
	}
	if _, err := os.Stat(s.PepperFile()); errors.Is(err, fs.ErrNotExist) {
		return nil, cli.UnableError("there is no pepper file %s: use the servers' settings",
			s.PepperFile())
	}
	pepper, err := account.LoadPepper(s.PepperFile())
	return pepper, cli.WithCode(cli.ExitUnable, err)
}

// recoverError gives an error of the accounts its exit code, as the help of the command lists them.
func recoverError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return cli.ErrInterrupted
	case errors.Is(err, account.ErrPepper):
		return cli.WithCode(cli.ExitUnable, err)
	case job.IsKind(err, job.NotFound):
		return cli.FailedError("there is no such client in this store")
	case job.IsKind(err, job.Unavailable) || job.IsKind(err, job.ReadOnly):
		return cli.WithCode(cli.ExitUnable, err)
	}
	return cli.WithCode(cli.ExitFailed, err)
}

// printKey prints the key alone to standard output, where a script reads it, and everything about
// the key to standard error.
func printKey(p cli.Process, issued account.Issued) error {
	until := "does not expire"
	if !issued.Key.ExpiresAt.IsZero() {
		until = "expires at " + issued.Key.ExpiresAt.Format(time.RFC3339)
	}
	fmt.Fprintf(p.Stderr,
		"key %s of client %s %s; earlier keys of the client are refused from now on\n",
		issued.Key.ID, issued.Key.ClientID, until)
	if issued.CallbackSecret != "" {
		fmt.Fprintf(p.Stderr, "it is the client's first key; callbacks are signed with %s\n",
			issued.CallbackSecret)
	}
	_, err := fmt.Fprintln(p.Stdout, issued.Secret)
	return cli.WithCode(cli.ExitFailed, err)
}
