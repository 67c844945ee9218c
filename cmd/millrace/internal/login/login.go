// Package login is `millrace login` and `millrace logout`: profiles, which are servers that an
// operator uses by name.
package login

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// A profile is a server with a token in a file that only its user can read (cli.Profile). A login
// tries the token before it is stored, so that a wrong one is noticed here and not by the command
// that uses it.

// maxToken is the most that is read of standard input.
const maxToken = 4096

// Command is `millrace login`.
func Command(p cli.Process) *cobra.Command {
	var name string
	var remote cli.RemoteFlags
	c := &cobra.Command{
		Use:   "login",
		Short: "Keep a server and the operator's token under a name",
		Long: `Keep a server and the operator's token, or the read token, under a name in the
configuration folder of the user, in a file that nobody else can read. Commands for
operators then use it with --profile NAME, and for this server when its address is
given; they use the profile "default" where nothing names a server.

The token is that of ` + cli.EnvOperatorToken + ` or ` + cli.EnvToken + `, else it is asked for on a
terminal, else it is read from standard input. It is tried before it is kept.

'millrace operator login' is another command: it prints a link that logs a browser in.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return run(p, &remote, name) },
	}
	remote.RegisterServer(c)
	c.Flags().StringVar(&name, "name", cli.DefaultProfile, "the `name` of the profile")
	return c
}

// run tries the token and stores the profile.
func run(p cli.Process, remote *cli.RemoteFlags, name string) error {
	if strings.TrimSpace(name) == "" {
		return cli.UsageError("--name is empty")
	}
	token, err := readToken(p)
	if err != nil {
		return err
	}
	profile := cli.Profile{Server: strings.TrimSuffix(remote.Address(p), "/"), Token: token}
	if file := remote.CACert(p); file != "" {
		if profile.CACert, err = filepath.Abs(file); err != nil {
			return cli.UnableError("%v", err)
		}
	}
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	server, err := profile.Admin(p)
	if err != nil {
		return err
	}
	if _, err := server.Health(ctx); err != nil {
		return cli.OperatorError(ctx, err)
	}
	if err := cli.SaveProfile(name, &profile); err != nil {
		return err
	}
	how := ""
	if name != cli.DefaultProfile {
		how = "; use it with --profile " + name
	}
	_, err = fmt.Fprintf(p.Stdout, "logged in to %s%s\n", profile.Server, how)
	return cli.WithCode(cli.ExitFailed, err)
}

// readToken returns the token of the environment, else a text that is typed on a terminal without
// being shown, else what standard input holds (G-CL-01).
func readToken(p cli.Process) (string, error) {
	for _, name := range []string{cli.EnvOperatorToken, cli.EnvToken} {
		if token := p.Env(name); token != "" {
			return token, nil
		}
	}
	var text []byte
	var err error
	if cli.IsTerminal(p.Stdin) {
		fmt.Fprint(p.Stderr, "Token of the operator: ")
		text, err = term.ReadPassword(int(p.Stdin.(*os.File).Fd()))
		fmt.Fprintln(p.Stderr)
	} else {
		text, err = io.ReadAll(io.LimitReader(p.Stdin, maxToken))
	}
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", cli.UnableError("the token cannot be read: %v", err)
	case token == "":
		return "", cli.UsageError("there is no token: set %s, or give it on standard input",
			cli.EnvOperatorToken)
	}
	return token, nil
}

// LogoutCommand is `millrace logout`.
func LogoutCommand(p cli.Process) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "logout",
		Short: "Forget a server that 'millrace login' has kept",
		Long: `Forget a server that 'millrace login' has kept, and its token, which the server goes
on taking: 'millrace operator token --rotate' replaces it.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := cli.FindProfile(name); err != nil {
				return err
			}
			return cli.SaveProfile(name, nil)
		},
	}
	c.Flags().StringVar(&name, "name", cli.DefaultProfile, "the `name` of the profile")
	return c
}
