package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
)

// noSuchCommand takes the arguments of a command that has subcommands and does nothing by itself.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := ""
	if similar, ok := config.Closest(args[0], names); ok {
		hint = fmt.Sprintf("; did you mean %q?", c.CommandPath()+" "+similar)
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
}

// warnMisspelledVariables names environment variables that were most likely meant as others, which
// would have no effect. What serves, and config, tell it with their settings.
func warnMisspelledVariables(p cli.Process, c *cobra.Command) {
	if c.Name() == "serve" || c.Name() == "config" {
		return
	}
	for _, text := range config.MisspelledVariables(p.Environ, otherVariables) {
		fmt.Fprintln(p.Stderr, "millrace:", text)
	}
}

// flagNames finds the names in the help of flags.
var flagNames = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)

// flagError is what is wrong with the flags of a command, with the flag or the setting that was
// most likely meant.
func flagError(c *cobra.Command, err error) error {
	var flagErr interface {
		error
		GetSpecifiedName() string
	}
	if !errors.As(err, &flagErr) || len(flagErr.GetSpecifiedName()) < 2 {
		return cli.UsageError("%v", err)
	}
	name, isKnown := flagErr.GetSpecifiedName(), !strings.HasPrefix(err.Error(), "unknown ")
	switch {
	case isKnown && name == "set":
		return cli.UsageError("%v; it takes KEY=VALUE, such as --set listen=127.0.0.1:9000", err)
	case isKnown:
		return cli.UsageError("%v", err)
	}
	takesSettings := c.Flags().Lookup("set") != nil
	if key, ok := config.SimilarKey(name); ok && takesSettings {
		return cli.UsageError("%v; did you mean --set %s=VALUE?", err, key)
	}
	var names []string
	for _, match := range flagNames.FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
		names = append(names, match[1])
	}
	similar, ok := config.Closest(name, names)
	switch {
	case ok:
		return cli.UsageError("%v; did you mean --%s?", err, similar)
	case takesSettings:
		return cli.UsageError("%v; settings are given as --set KEY=VALUE, "+
			"and 'millrace config' lists them", err)
	}
	return cli.UsageError("%v; '%s --help' lists the flags", err,
		strings.TrimSpace(c.CommandPath()))
}
