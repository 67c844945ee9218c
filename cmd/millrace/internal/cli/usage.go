package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/setting"
)

// Group returns a command that only has subcommands, which the caller adds. By itself it prints its
// help.
func Group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: NoSuchCommand, RunE: showHelp}
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// CheckHelp makes a request for the help of a command that does not exist an error, as the command
// itself is one; cobra shows the help of the command above. The function that it returns gives the
// error of --help once the command has run.
func CheckHelp(root *cobra.Command) (failure func() error) {
	var unknown error
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() {
			unknown = NoSuchCommand(c, c.Flags().Args())
		}
		if unknown != nil {
			return
		}
		show(c, args)
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Run, c.RunE = nil, helpOf
		case "completion":
			c.Args, c.RunE = NoSuchCommand, showHelp
		}
	}
	return func() error { return unknown }
}

// helpOf prints the help of the command that arguments name.
func helpOf(c *cobra.Command, args []string) error {
	named, rest, err := c.Root().Find(args)
	if err != nil {
		return err
	}
	if err := NoSuchCommand(named, rest); err != nil {
		return err
	}
	named.InitDefaultHelpFlag()
	return named.Help()
}

// NoSuchCommand checks the arguments of a command that only has subcommands. An argument is the
// name of a subcommand that does not exist; the error names the most similar one, or else all
// subcommands where the command is itself one.
func NoSuchCommand(c *cobra.Command, args []string) error {
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
	if similar, ok := setting.Closest(args[0], names); ok {
		hint = fmt.Sprintf("; did you mean %q?", c.CommandPath()+" "+similar)
	} else if c.HasParent() {
		hint = "; there are " + strings.Join(names, ", ")
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
}

// MoveInPlace renames a complete file to its final path, which then holds either the old content or
// the new. err is the error of writing the file: with one, or if renaming fails, MoveInPlace
// removes the file and returns the error.
func MoveInPlace(written, path string, err error) error {
	if err != nil {
		return errors.Join(err, os.Remove(written))
	}
	if err := os.Rename(written, path); err != nil {
		return errors.Join(err, os.Remove(written))
	}
	return nil
}
