package child

import (
	"errors"
	"flag"
	"io"
	"strconv"
	"time"
)

// Limits are enforced by the kernel of Linux, on each process by itself; zero is no limit. There is
// no core dump, whatever they are. Other systems have no such limits.
type Limits struct {
	Memory    int64         // bytes that only this process can write to
	CPU       time.Duration // the time of all its threads together
	FileSize  int64         // bytes of each file that it writes
	OpenFiles int64
}

// Arguments are the command line arguments with which Exec sets Memory and CPU.
func (l Limits) Arguments() []string {
	return []string{"-memory", strconv.FormatInt(l.Memory, 10), "-cpu", l.CPU.String(), "--"}
}

// parseArguments reads what Arguments wrote, and returns the program with its arguments.
func parseArguments(args []string) (l Limits, program []string, err error) {
	flags := flag.NewFlagSet(Subcommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Int64Var(&l.Memory, "memory", 0, "")
	flags.DurationVar(&l.CPU, "cpu", 0, "")
	if err := flags.Parse(args); err != nil {
		return Limits{}, nil, err
	}
	if flags.NArg() == 0 {
		return Limits{}, nil, errors.New("no program is named")
	}
	return l, flags.Args(), nil
}
