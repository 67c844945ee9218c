package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

// Show is a command that prints one thing, which its one argument names.
type Show[T any] struct {
	// Columns are the members that people see, a line for each.
	Columns []Column[T]
	// Get reads the thing. argument is empty for a command without one.
	Get func(ctx context.Context, server *client.Admin, argument string) (T, error)
	// Text writes what people see in place of the columns; nil where those say all.
	Text func(w io.Writer, thing T) error
}

// Command completes c, which has its name, help and flags of its own. Without Args it takes one
// argument.
func (s Show[T]) Command(p Process, operator *Operator, c *cobra.Command) *cobra.Command {
	var asJSON bool
	var watch time.Duration
	if c.Args == nil {
		c.Args = cobra.ExactArgs(1)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		argument := ""
		if len(args) > 0 {
			argument = args[0]
		}
		return repeat(p, c, operator, watch,
			func(ctx context.Context, server *client.Admin, w io.Writer) error {
				thing, err := s.Get(ctx, server, argument)
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeLine(w, thing)
				case s.Text != nil:
					return WithCode(ExitFailed, s.Text(w, thing))
				}
				return writeMembers(w, terminalOf(p), s.Columns, thing)
			})
	}
	operator.Register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	registerWatch(c, &watch)
	operator.complete(p, c)
	return c
}

// Each is a command that does one thing to each of its arguments.
type Each[T any] struct {
	// Do does it to one argument.
	Do func(ctx context.Context, server *client.Admin, argument string) (T, error)
	// Done returns the line for people about the result.
	Done func(argument string, result T) string
	// Failed reports whether a result, which was printed, is a failure; nil if none is.
	Failed func(result T) error
	// Check looks at arguments and flags before anything is sent, and may ask with a
	// [Confirmation]; nil if there is nothing to check. Its error is one of the command line, if
	// it has no other code.
	Check func(arguments []string) error
	// Default is the argument of a command that is given none, where Args of the command allows it.
	Default string
}

// Command completes c, which has its name, help and flags of its own. Without Args it takes one
// argument or more. An argument that is refused does not keep the others from being tried; the
// first refusal decides the exit code.
func (e Each[T]) Command(p Process, operator *Operator, c *cobra.Command) *cobra.Command {
	var asJSON bool
	if c.Args == nil {
		c.Args = cobra.MinimumNArgs(1)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if e.Check != nil {
			if err := e.Check(args); err != nil {
				return orUsage(err)
			}
		}
		return e.run(p, c, operator, asJSON, args)
	}
	operator.Register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each argument, on its line")
	operator.complete(p, c)
	return c
}

// run does it to all arguments. Where there are several, each failure is written as it comes.
func (e Each[T]) run(p Process, c *cobra.Command, operator *Operator, asJSON bool,
	args []string) error {
	ctx, stop := UntilSignal(context.Background())
	defer stop()
	server, _, err := operator.Connect(p, c)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{e.Default}
	}
	code, failed := ExitOK, 0
	for _, argument := range args {
		refusal, err := e.runOne(ctx, p, server, operator, asJSON, argument)
		switch {
		case err != nil:
			return err
		case refusal != nil:
			if !concernsOne(refusal) || len(args) == 1 {
				return refusal
			}
			fmt.Fprintln(p.Stderr, ErrorText(fmt.Errorf("%s: %w", argument, refusal)))
			code, failed = cmp.Or(code, ExitCode(refusal)), failed+1
		}
	}
	if failed > 0 {
		return WithCode(code, fmt.Errorf("%d of %d were refused", failed, len(args)))
	}
	return nil
}

// runOne does it to one argument and prints the result. refusal is why that was refused, or what
// the result says that failed; err is why the result could not be printed.
func (e Each[T]) runOne(ctx context.Context, p Process, server *client.Admin, operator *Operator,
	asJSON bool, argument string) (refusal, err error) {
	result, err := e.Do(ctx, server, argument)
	if err != nil {
		return operator.Error(ctx, err), nil
	}
	if err := e.print(p, asJSON, argument, result); err != nil || e.Failed == nil {
		return nil, err
	}
	return WithCode(ExitFailed, e.Failed(result)), nil
}

// concernsOne reports whether a refusal is about one argument: others may then succeed.
func concernsOne(refusal error) bool {
	code := ExitCode(refusal)
	return code == ExitFailed || code == ExitUsage
}

// print prints the result of an argument.
func (e Each[T]) print(p Process, asJSON bool, argument string, result T) error {
	if asJSON {
		return writeLine(p.Stdout, result)
	}
	_, err := fmt.Fprintln(p.Stdout, e.Done(argument, result))
	return WithCode(ExitFailed, err)
}
