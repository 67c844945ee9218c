package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
)

// settingsFlags are the flags of commands that need the settings of a server.
type settingsFlags struct {
	file string
	set  []string
}

func (f *settingsFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "config", "",
		"settings file (TOML); "+config.DefaultFile+" of the working directory if there is one")
	c.Flags().StringArrayVar(&f.set, "set", nil,
		"a setting as KEY=VALUE, over file and environment; may be repeated. Others can see it: keep secrets in the file")
}

// otherVariables are those that commands read or `work` sets; with the last one tests are told
// what there is.
var otherVariables = []string{cli.EnvServer, cli.EnvToken, cli.EnvCACert, cli.EnvOperatorToken,
	"MILLRACE_QUEUE", "MILLRACE_JOB_ID",
	"MILLRACE_RUN_ID", "MILLRACE_STATE", "MILLRACE_CONTRACT", "MILLRACE_ATTEMPT", "MILLRACE_TEST_"}

// loadUntilKilled resolves the settings; whatever is wrong with them is a usage error.
func (f *settingsFlags) load(p cli.Process, c *cobra.Command) (*config.Settings, error) {
	src, err := f.sources(p, c)
	if err != nil {
		return nil, err
	}
	s, err := config.Load(src)
	return s, cli.WithCode(cli.ExitUsage, err)
}

// sources are where the settings come from.
func (f *settingsFlags) sources(p cli.Process, c *cobra.Command) (config.Sources, error) {
	src := config.Sources{File: config.DefaultFile, Environ: p.Environ, Flags: map[string]string{},
		OtherVariables: otherVariables, Handlers: handler.Options()}
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

// logFormat is the format of the log, also where something else is wrong with the settings.
func (f *settingsFlags) logFormat(p cli.Process, c *cobra.Command) string {
	src, err := f.sources(p, c)
	if err != nil {
		return "text"
	}
	return config.LogFormat(src)
}
