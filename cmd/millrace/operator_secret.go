package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
)

// Callbacks of a contract's jobs are signed with one secret, which no client chooses. All nodes
// derive it from the pepper, which they share, so that it is stored nowhere; who replaces the
// pepper changes it. A setting takes its place where receivers need a secret that stays.

// secretCommand is `millrace operator secret`. It needs no server: the settings have the secret, or
// it is derived from the pepper of this machine as a server does it.
func secretCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	asJSON := false
	c := &cobra.Command{
		Use:   "secret CONTRACT",
		Short: "Print the secret that signs the callbacks of a contract's jobs",
		Long: `Print the secret that signs the callbacks of a contract's jobs: that of its setting
callback_secret, else the one that servers derive from their pepper file. Receivers
check by it that a request is genuine. Clients of ForgeRun have secrets of their own.`,
		Example: "  millrace operator secret taskflow",
		Args:    oneContractArg,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := flags.load(p, c)
			if err != nil {
				return err
			}
			secret, err := s.signingSecret(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(p, map[string]string{"secret": secret})
			}
			_, err = fmt.Fprintln(p.Stdout, secret)
			return cli.WithCode(cli.ExitFailed, err)
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// oneContractArg checks the arguments of secret: one contract whose jobs have callbacks.
func oneContractArg(_ *cobra.Command, args []string) error {
	var names []string
	for _, d := range defineContracts() {
		if d.Settings.CallbackSecret != nil {
			names = append(names, d.Name())
		}
	}
	if len(args) != 1 || !slices.Contains(names, args[0]) {
		return cli.UsageError("operator secret expects one of the contracts %s",
			strings.Join(names, ", "))
	}
	return nil
}

// signingSecret returns the secret that servers with these settings sign the callbacks of a
// contract with. It makes no pepper: no server would have it.
func (s *nodeSettings) signingSecret(name string) (string, error) {
	set, err := s.callbackSecret(name)
	if err != nil || !set.Empty() {
		return set.Reveal(), cli.WithCode(cli.ExitFailed, err)
	}
	if _, err := os.Stat(s.PepperFile()); errors.Is(err, fs.ErrNotExist) {
		return "", cli.UnableError("there is no pepper file %s: a server makes one at its first "+
			"start", s.PepperFile())
	}
	pepper, err := loadPepper(s)
	if err != nil {
		return "", err
	}
	secret, err := account.ContractSecret(pepper, name)
	return secret, cli.WithCode(cli.ExitFailed, err)
}
