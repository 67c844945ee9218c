package cli

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
)

// completionTimeout is how long the shell waits for names of the server. Without them nothing is
// completed, and nothing is said.
const completionTimeout = time.Second

// maxCompleted is how many names of the server a completion looks at.
const maxCompleted = 1000

// Names lists names of one kind, such as those of the queues.
type Names func(ctx context.Context, server *client.Admin) iter.Seq2[string, error]

// complete has the shell complete the names that a command takes (CL-005): values of flags, and
// arguments by the noun of the command above, as in "queues pause".
func (o *Operator) complete(p Process, c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("profile", completeProfiles)
	if contract := c.Flags().Lookup("contract"); contract != nil && c.Flags().Lookup("queue") != nil {
		_ = c.RegisterFlagCompletionFunc("queue", func(c *cobra.Command, args []string,
			word string) ([]string, cobra.ShellCompDirective) {
			names := Names(queueNames)
			if contract.Changed {
				names = queuesOf(contract.Value.String())
			}
			return o.completeNames(p, names)(c, args, word)
		})
	}
	for flag, names := range flagNames {
		_, registered := c.GetFlagCompletionFunc(flag) // by the command itself
		if c.Flags().Lookup(flag) != nil && !registered {
			_ = c.RegisterFlagCompletionFunc(flag, o.completeNames(p, names))
		}
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string,
			word string) ([]string, cobra.ShellCompDirective) {
			names := argumentNames[c.Parent().Name()]
			if names == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.completeNames(p, names)(c, args, word)
		}
	}
}

// CompleteWords has the shell complete the values of a flag, which are always the same.
func CompleteWords(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words,
		cobra.ShellCompDirectiveNoFileComp))
}

// completeNames completes the last of the words that commas separate. Names that are arguments
// already are left out.
func (o *Operator) completeNames(p Process, names Names) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]string,
		cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(context.Background(), completionTimeout)
		defer stop()
		o.Retry.MaxTries = 1
		server, _, err := o.Connect(p, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		before, last := "", word
		if at := strings.LastIndex(word, ","); at >= 0 {
			before, last = word[:at+1], word[at+1:]
		}
		var found []string
		seen := 0
		for name, err := range names(ctx, server) {
			if seen++; err != nil || seen > maxCompleted {
				break
			}
			if strings.HasPrefix(name, last) && !slices.Contains(args, name) {
				found = append(found, before+name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeProfiles completes names of profiles.
func completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(all)), cobra.ShellCompDirectiveNoFileComp
}

// distinct yields the text of each item once.
func distinct[T any](all iter.Seq2[T, error], text func(T) string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := map[string]bool{}
		for item, err := range all {
			if err != nil {
				yield("", err)
				return
			}
			name := text(item)
			if seen[name] {
				continue
			}
			seen[name] = true
			if !yield(name, nil) {
				return
			}
		}
	}
}
