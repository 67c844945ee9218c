package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/setting"
)

// A name that differs from an existing one in a letter or two is an error that is hard to find: a
// misspelled variable has no effect and no error. The messages here name the flag, the setting or
// the variable that was most likely meant, by the distance of the names (setting.Closest).

// warnMisspelledVariables warns of environment variables that have no effect because their names
// are most likely misspelled. It runs before every command; serve and config are left out, as they
// report all unknown variables with their settings. A warning does not end the command.
func warnMisspelledVariables(p cli.Process, c *cobra.Command) {
	if c.Name() == "serve" || c.Name() == "config" {
		return
	}
	for _, text := range defaultSettings().MisspelledVariables(p.Environ, otherVariables) {
		fmt.Fprintln(p.Stderr, "millrace:", text)
	}
}

// flagNames finds the names in the help of flags.
var flagNames = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)

// flagError makes the error of a wrong flag, with the flag or setting that was most likely meant.
// It is a usage error. A setting is named with the value that args give it.
func flagError(args []string, c *cobra.Command, err error) error {
	var flagErr interface {
		error
		GetSpecifiedName() string
	}
	if text, _, isDuration := strings.Cut(err.Error(), ": time: "); isDuration {
		return cli.UsageError("%s: a duration has its unit, such as 30s, 5m or 1h", text)
	}
	if text, _, isNumber := strings.Cut(err.Error(), ": strconv."); isNumber {
		return cli.UsageError("%s: %s", text, numberHint(c, text))
	}
	if !errors.As(err, &flagErr) || len(flagErr.GetSpecifiedName()) < 2 {
		return cli.UsageError("%v", err)
	}
	name, isKnown := flagErr.GetSpecifiedName(), !strings.HasPrefix(err.Error(), "unknown ")
	switch {
	case isKnown && name == "set":
		return cli.UsageError("%v; write --set KEY=VALUE, such as --set listen=127.0.0.1:9000", err)
	case isKnown:
		return cli.UsageError("%v", err)
	}
	takesSettings := c.Flags().Lookup("set") != nil
	key, isSetting := defaultSettings().SimilarKey(name)
	isExact := key == strings.ReplaceAll(name, "-", "_")
	// A command for operators has settings to find its server only: a flag of it that is misspelt
	// is no setting that looks alike.
	isOperators := c.Flags().Lookup("actor") != nil
	isSetting = isSetting && takesSettings && (isExact || !isOperators)
	var names []string
	for _, match := range flagNames.FindAllStringSubmatch(c.Flags().FlagUsages(), -1) {
		names = append(names, match[1])
	}
	similar, ok := setting.Closest(name, names)
	switch {
	case ok && !(isSetting && isExact):
		return cli.UsageError("%v; did you mean --%s?", err, similar)
	case isSetting:
		value := valueOf(args, name)
		if defaultSettings().MasksValue(key, value) {
			value = "VALUE"
		}
		return cli.UsageError("%v; did you mean --set %s=%s?", err, key, value)
	case takesSettings && !isOperators:
		return cli.UsageError("%v; settings are given as --set KEY=VALUE, "+
			"and 'millrace config' lists them", err)
	}
	return cli.UsageError("%v; '%s --help' lists the flags", err,
		strings.TrimSpace(c.CommandPath()))
}

// numberHint says what a flag takes whose value is no number, by the error about it.
func numberHint(c *cobra.Command, text string) string {
	hint := "a whole number is needed"
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Value.Type(), "Slice") && strings.Contains(text, "--"+f.Name+"\"") {
			hint = "whole numbers with commas are needed, such as 1,2,5"
		}
	})
	return hint
}

// valueOf returns the value that arguments give the flag of a name, as they would be written for a
// shell; VALUE where they give none, or one that a shell would want quoted.
func valueOf(args []string, name string) string {
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--"+name+"=")
		if arg == "--"+name && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value, ok = args[i+1], true
		}
		if ok && plainWord.MatchString(value) {
			return value
		}
	}
	return "VALUE"
}

// plainWord finds what no shell wants quoted.
var plainWord = regexp.MustCompile(`^[\w.,:/@%+=-]{1,100}$`)

// noArguments checks the arguments of a command that takes settings, by --set, and no arguments. An
// argument is most likely the name of a setting, alone or with a value. The value may be a secret
// and is not shown.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name, _, _ := strings.Cut(args[0], "=")
	hint := "settings are given as --set KEY=VALUE, and 'millrace config' lists them"
	key, isSetting := defaultSettings().SimilarKey(name)
	printsAll := c.Name() == "config"
	switch {
	case printsAll && key == name:
		hint = "without arguments all settings are printed"
	case printsAll && isSetting:
		hint = fmt.Sprintf("did you mean %q? Without arguments all settings are printed", key)
	case isSetting:
		hint = fmt.Sprintf("did you mean --set %s=VALUE?", key)
	}
	return cli.UsageError("unknown argument %q for %q; %s", name, c.CommandPath(), hint)
}
