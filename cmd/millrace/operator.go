package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/admin"
)

// Commands for operators find their server by a flag, the environment or a profile that 'millrace
// login' has stored, and else by the settings of this machine (cli.Operator). A server of this
// machine needs no token to be given: its data directory has it. The token of the settings goes to
// no other machine, and to nobody who does not have their pepper.

// operatorCommand is `millrace operator`. token and login are about the access of operators, and
// recover is about that of a client of ForgeRun.
func operatorCommand(p cli.Process) *cobra.Command {
	c := cli.Group("operator", "Commands for the operator")
	c.AddCommand(tokenCommand(p), loginCommand(p), secretCommand(p), recoverCommand(p))
	return c
}

// localServer is the server that the settings of this machine describe. It is what commands for
// operators use where nothing names another one.
type localServer struct{ settings settingsFlags }

// newOperator makes the connection of a command for operators.
func newOperator() *cli.Operator { return &cli.Operator{Local: &localServer{}} }

// Register implements cli.LocalServer.
func (l *localServer) Register(c *cobra.Command) { l.settings.register(c) }

// Find implements cli.LocalServer. A token that a server has made is read from its data directory.
func (l *localServer) Find(p cli.Process, c *cobra.Command) (address string,
	token func() (cli.Stored, error), err error) {
	s, err := l.settings.load(p, c)
	if err != nil {
		return "", nil, err
	}
	return cli.URLOf(s.Listen, s.TLS.Enabled()),
		func() (cli.Stored, error) { return storedFor(s) }, nil
}

// storedFor returns the operator's token with what its server proves itself by.
func storedFor(s *nodeSettings) (stored cli.Stored, err error) {
	if stored.Token, stored.Source, err = storedToken(s); err != nil || stored.Token == "" {
		return stored, err
	}
	if _, err := os.Stat(s.PepperFile()); errors.Is(err, fs.ErrNotExist) {
		return stored, nil // no server was ever started with these settings
	}
	pepper, err := loadPepper(s)
	if err != nil {
		return stored, err
	}
	stored.ProofKey, err = account.ProofKey(pepper)
	return stored, cli.WithCode(cli.ExitFailed, err)
}

// storedToken returns the operator's token, and where it is: that of the settings, else the one
// that a server keeps in the data directory; "" if there is none.
func storedToken(s *nodeSettings) (token, source string, err error) {
	if set := s.Operator.Token; !set.Empty() {
		return set.Reveal(), "the setting operator.token", nil
	}
	file := operatorTokenFile(s)
	if token, err = admin.ReadToken(file); err != nil {
		return "", "", cli.UnableError("the operator's token cannot be read: %v", err)
	}
	whole, err := filepath.Abs(file)
	if err != nil {
		whole = file // there is no working directory
	}
	return token, whole, nil
}

// tokenFlags are the flags of `millrace operator token`.
type tokenFlags struct {
	local    *localServer
	operator *cli.Operator
	rotate   bool
	asJSON   bool
}

// tokenCommand is `millrace operator token`.
func tokenCommand(p cli.Process) *cobra.Command {
	f := tokenFlags{local: &localServer{}}
	f.operator = &cli.Operator{Local: f.local}
	c := &cobra.Command{
		Use:   "token",
		Short: "Print the operator's token, or replace it",
		Long: `Print the operator's token: that of the setting operator.token, else the one that
a server has made and keeps in its data directory (operator.token). A terminal shows
which file that is, and the server that the settings have: the token is that of no
other.

With --rotate the running server makes a new token, which is printed. It is in force
on all nodes within two seconds, and all sessions and login links end. A token of
the settings is changed there.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.rotate {
				return f.replace(p, c)
			}
			return f.print(p, c)
		},
	}
	f.operator.Register(c)
	c.Flags().BoolVar(&f.rotate, "rotate", false, "replace the token; the server must be running")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

// print prints the token that this machine has.
func (f *tokenFlags) print(p cli.Process, c *cobra.Command) error {
	if c.Flags().Changed("server") {
		return cli.UsageError("a token is read on the server's machine; --server goes with --rotate")
	}
	s, err := f.local.settings.load(p, c)
	if err != nil {
		return err
	}
	token, source, err := storedToken(s)
	if err != nil {
		return err
	}
	if token == "" {
		return cli.UnableError("there is no token in %s: a server makes one at its first start "+
			"(of several on one database, the first), and is found from the folder in which it was "+
			"started, or by its --config or --set data_dir",
			filepath.Dir(operatorTokenFile(s)))
	}
	if cli.IsTerminal(p.Stdout) { // a script may read both outputs
		fmt.Fprintf(p.Stderr, "millrace: the token of %s, for the server that these settings "+
			"have at %s\n", source, cli.URLOf(s.Listen, s.TLS.Enabled()))
	}
	return f.write(p, token)
}

// replace has the server make a new token. Where the settings give the token, those of this machine
// or of the server, it is a usage error that names the setting.
func (f *tokenFlags) replace(p cli.Process, c *cobra.Command) error {
	const ofSetting = "the setting operator.token gives the token: change it there, on every node"
	s, err := f.local.settings.load(p, c)
	if err != nil {
		return err
	}
	if !s.Operator.Token.Empty() {
		return cli.UsageError(ofSetting)
	}
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	server, _, err := f.operator.Connect(p, c)
	if err != nil {
		return err
	}
	token, err := server.RotateToken(ctx)
	if errors.Is(err, client.ErrConflict) {
		return cli.UsageError(ofSetting)
	}
	if err != nil {
		return f.operator.Error(ctx, err)
	}
	return f.write(p, token)
}

// write prints a token.
func (f *tokenFlags) write(p cli.Process, token string) error {
	if f.asJSON {
		return writeJSON(p, map[string]string{"token": token})
	}
	_, err := fmt.Fprintln(p.Stdout, token)
	return cli.WithCode(cli.ExitFailed, err)
}

// loginCommand is `millrace operator login`.
func loginCommand(p cli.Process) *cobra.Command {
	operator, asJSON := newOperator(), false
	c := &cobra.Command{
		Use:   "login",
		Short: "Print a link that logs a browser in to the console",
		Long: `Print a link that logs a browser in to the console. It is good for one login
within 15 minutes.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			server, address, err := operator.Connect(p, c)
			if err != nil {
				return err
			}
			code, err := server.CreateLoginCode(ctx)
			if err != nil {
				return operator.Error(ctx, err)
			}
			link := address + code.Path
			if asJSON {
				return writeJSON(p, map[string]any{"url": link, "expires_at": code.ExpiresAt})
			}
			_, err = fmt.Fprintln(p.Stdout, link)
			return cli.WithCode(cli.ExitFailed, err)
		},
	}
	operator.Register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// writeJSON prints a document.
func writeJSON(p cli.Process, document any) error {
	enc := json.NewEncoder(p.Stdout)
	enc.SetEscapeHTML(false)
	return cli.WithCode(cli.ExitFailed, enc.Encode(document))
}
