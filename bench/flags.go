package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// newFlags returns the flags of a subcommand. Its help is a text and the flags.
func newFlags(name, help string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, help)
		f.PrintDefaults()
	}
	return f
}

// parseFlags parses flags and then checks what they and the arguments behind them say. It prints
// the error that it returns.
func parseFlags(f *flag.FlagSet, args []string, check func(rest []string) error) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	err := check(f.Args())
	if err != nil {
		fmt.Fprintln(f.Output(), "bench:", err)
	}
	return err
}

// usageCode returns the exit code for an error of parseFlags: help that was asked for is none.
func usageCode(err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	return 2
}
