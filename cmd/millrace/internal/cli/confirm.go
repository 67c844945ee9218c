package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Confirmation asks before a command changes more than its arguments name (CL-001). Without a
// terminal nobody can answer, and --yes is needed.
type Confirmation struct{ yes bool }

// Register adds --yes to the command.
func (k *Confirmation) Register(c *cobra.Command) {
	c.Flags().BoolVar(&k.yes, "yes", false, "do not ask; needed where there is no terminal")
}

// Check returns the error of [Confirmation.Ask] where nobody could answer. Commands that learn from
// the server what they ask call it before.
func (k *Confirmation) Check(p Process, what string) error {
	if k.yes || canAsk(p) {
		return nil
	}
	return UsageError("%s? There is no terminal to ask on; --yes does it", what)
}

// AskOnTerminal is Ask where there is a terminal. Without one the answer is yes: for commands that
// did not ask in earlier versions.
func (k *Confirmation) AskOnTerminal(p Process, what string) error {
	if !canAsk(p) {
		return nil
	}
	return k.Ask(p, what)
}

func canAsk(p Process) bool { return IsTerminal(p.Stdin) && IsTerminal(p.Stderr) }

// Ask returns nil if --yes is given or the answer is yes. what says what would be done, such as
// "delete 1204 jobs". An answer other than y or yes is no, with exit code 1.
func (k *Confirmation) Ask(p Process, what string) error {
	if err := k.Check(p, what); err != nil || k.yes {
		return err
	}
	fmt.Fprintf(p.Stderr, "%s? [y/N] ", what)
	answer, _ := bufio.NewReader(p.Stdin).ReadString('\n') // the end of the input is no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return FailedError("nothing was changed")
}
