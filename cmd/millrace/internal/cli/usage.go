package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/setting"
)

// Group returns a command that only has subcommands, which the caller adds. By itself it prints its
// help.
func Group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: NoSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
}

// NoSuchCommand checks the arguments of a command that only has subcommands. An argument is the
// name of a subcommand that does not exist; the error names the most similar one.
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
