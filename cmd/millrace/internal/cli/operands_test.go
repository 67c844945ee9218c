package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestConfirmation: CL-001: where there is no terminal to ask on, --yes is needed.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	p := Process{Stdin: strings.NewReader("y\n"), Stderr: &strings.Builder{}}
	for _, args := range [][]string{nil, {"--yes"}} {
		var asks Confirmation
		c := &cobra.Command{}
		asks.Register(c)
		if err := c.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		want := ExitUsage
		if args != nil {
			want = ExitOK
		}
		if err := asks.Ask(p, "Delete 7 jobs"); ExitCode(err) != want {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestOperands: G-CL-01: queues are contract/queue, and jobs are numbers.
func TestOperands(t *testing.T) {
	t.Parallel()
	if contract, queue, err := ParseQueue("relay/a/b"); contract != "relay" || queue != "a/b" ||
		err != nil {
		t.Errorf("got %q, %q, %v", contract, queue, err)
	}
	for _, name := range []string{"", "mail", "/mail", "relay/"} {
		if err := CheckQueues([]string{"relay/q", name}); ExitCode(err) != ExitUsage {
			t.Errorf("the queue %q: %v", name, err)
		}
	}
	if n, err := ParseNumber("1204"); n != 1204 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	for _, text := range []string{"", "0", "-1", "1.5", "12a", "99999999999999999999"} {
		if err := CheckNumbers([]string{"1", text}); ExitCode(err) != ExitUsage {
			t.Errorf("the number %q: %v", text, err)
		}
	}
}

// TestTimeVar: a flag takes a time, or how long ago it was.
func TestTimeVar(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"36h": "2026-03-01T00:00:00Z",
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T12:00:00+02:00": "2026-03-01T10:00:00Z"} {
		var at time.Time
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		TimeVar(f, Process{Now: func() time.Time { return now }}, &at, "from", "")
		if err := f.Parse([]string{"--from", text}); err != nil || FormatTime(at) != want {
			t.Errorf("%s: got %v, %v", text, at, err)
		}
		if err := f.Parse([]string{"--from", "soon"}); err == nil {
			t.Error("soon is taken as a time")
		}
	}
}

// TestMembers: one thing is a line for each of its members that there is.
func TestMembers(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	thing := row{name: "a", text: "two\nlines"}
	if err := writeMembers(&b, terminal{}, rowColumns, thing); err != nil {
		t.Fatal(err)
	}
	if want := "name  a\ntext  \"two\\nlines\"\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	half, whole := 0.5, 3.0
	if got := Format(&half) + Format(&whole) + Format[int](nil); got != "0.53" {
		t.Errorf("got %q", got)
	}
	if !errors.Is(OperatorError(t.Context(), ErrInterrupted), ErrInterrupted) {
		t.Error("an error loses its exit code")
	}
}
