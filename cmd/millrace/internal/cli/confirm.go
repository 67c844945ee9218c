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

// Ask returns nil if --yes is given or the answer is yes. what says what would be done, such as
// "delete 1204 jobs". An answer other than y or yes is no, with exit code 1.
func (k *Confirmation) Ask(p Process, what string) error {
	if k.yes {
		return nil
	}
	if !IsTerminal(p.Stdin) || !IsTerminal(p.Stderr) {
		return UsageError("%s? There is no terminal to ask on; --yes does it", what)
	}
	fmt.Fprintf(p.Stderr, "%s? [y/N] ", what)
	answer, _ := bufio.NewReader(p.Stdin).ReadString('\n') // the end of the input is no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return FailedError("nothing was changed")
}
