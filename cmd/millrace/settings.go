package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
)

// Commands that run on the settings of a server take them from four layers, each over the one
// before it: defaults, the file, the environment, --set. They share this file, so that `millrace
// config` shows exactly what serve, migrate, export and operator recover would use.

// settingsFlags are the flags of commands that use the settings of a server.
type settingsFlags struct {
	// file is the settings file. It must exist if the flag is given; the default file need not.
	file string
	// set are settings as KEY=VALUE, over the file and the environment.
	set []string
}

// register adds the flags to a command.
func (f *settingsFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "config", "",
		"settings file (TOML); "+config.DefaultFile+" of the working directory if there is one")
	c.Flags().StringArrayVar(&f.set, "set", nil,
		"a setting as KEY=VALUE, over file and environment; may be repeated. Others can see it: keep secrets in the file")
}

// otherVariables are environment variables that are no settings: those that commands read, those
// that work and servers set for their commands, and those of the tests. A name that ends in _ is a
// prefix.
var otherVariables = []string{cli.EnvServer, cli.EnvToken, cli.EnvCACert, cli.EnvOperatorToken,
	"MILLRACE_QUEUE", "MILLRACE_JOB_ID",
	"MILLRACE_RUN_ID", "MILLRACE_STATE", "MILLRACE_CONTRACT", "MILLRACE_ATTEMPT", "MILLRACE_EVENT",
	"MILLRACE_JOB_TYPE", "MILLRACE_TEST_"}

// load resolves the settings. An invalid setting is a usage error, which names all that are wrong.
func (f *settingsFlags) load(p cli.Process, c *cobra.Command) (*nodeSettings, error) {
	src, err := f.sources(p, c)
	if err != nil {
		return nil, err
	}
	s, err := loadSettings(src)
	return s, cli.WithCode(cli.ExitUsage, err)
}

// sources returns where the settings come from: the file, the environment and the flags. Of several
// values for a key in --set the last counts.
func (f *settingsFlags) sources(p cli.Process, c *cobra.Command) (config.Sources, error) {
	src := config.Sources{File: config.DefaultFile, Environ: p.Environ, Flags: map[string]string{},
		OtherVariables: otherVariables}
	if c.Flags().Changed("config") {
		src.File, src.Explicit = f.file, true
	}
	for _, pair := range f.set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return src, cli.UsageError("--set takes KEY=VALUE, such as --set listen=127.0.0.1:9000")
		}
		src.Flags[strings.TrimSpace(key)] = value
	}
	return src, nil
}

// settingsServer returns the address of the server that the settings of this folder and the
// environment describe; "" where they are invalid, which only commands that use them say.
func settingsServer(p cli.Process) string {
	src := config.Sources{File: config.DefaultFile, Environ: p.Environ,
		OtherVariables: otherVariables}
	s, err := loadSettings(src)
	if err != nil {
		return ""
	}
	return cli.URLOf(s.Listen, s.TLS.Enabled())
}

// logFormat returns the format of the log. It works with invalid settings too, whose errors are
// logged in this format; it is text where the command line itself cannot be read.
func (f *settingsFlags) logFormat(p cli.Process, c *cobra.Command) string {
	src, err := f.sources(p, c)
	if err != nil {
		return "text"
	}
	src.Contracts = groups(defineContracts())
	return config.LogFormat(src)
}

// configCommand is `millrace config`. It reads settings and opens nothing.
func configCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "config",
		Short: "Print every setting as it is resolved, and where it comes from",
		Long: `Print every setting with its value and its origin: default, file, environment or
flag, each over the one before it. Secrets are masked. Settings that would stop
the start are named as 'serve' names them, with exit code 2.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := flags.load(p, c)
			if err != nil {
				return err
			}
			for _, text := range s.UnknownVariables() {
				fmt.Fprintln(p.Stderr, "millrace:", text)
			}
			if asJSON {
				return cli.WithCode(cli.ExitFailed, s.Resolved().WriteJSON(p.Stdout))
			}
			return cli.WithCode(cli.ExitFailed, s.Resolved().WriteText(p.Stdout))
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with a sentence about each setting")
	return c
}
