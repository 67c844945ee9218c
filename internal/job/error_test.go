package job_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	all := job.Kinds()
	if len(all) != 13 || all[0] != job.Internal || !slices.Contains(all, job.Timeout) {
		t.Errorf("kinds %v", all)
	}
	names := map[string]bool{}
	for _, k := range all {
		if k.String() == "" || names[k.String()] {
			t.Errorf("kind %d is called %q", k, k)
		}
		names[k.String()] = true
	}
}

func TestErrorTextHasItsKind(t *testing.T) {
	t.Parallel()
	inner := &job.Error{Kind: job.Full, Op: "engine.submit", Msg: "too many", Err: io.EOF}
	outer := fmt.Errorf("again: %w", &job.Error{Kind: job.Conflict, Err: inner})
	for _, c := range []struct {
		err  error
		kind job.Kind
		text string
	}{
		{nil, job.Internal, ""},
		{io.EOF, job.Internal, "EOF"},
		{inner, job.Full, "engine.submit: too many: EOF"},
		// the outermost decides
		{outer, job.Conflict, "again: conflict: engine.submit: too many: EOF"},
		{errors.Join(io.EOF, inner), job.Full, "EOF\nengine.submit: too many: EOF"},
		{&job.Error{}, job.Internal, "internal"},
		{&job.Error{Kind: job.RunLost, Op: "x"}, job.RunLost, "x: run lost"},
	} {
		if got := job.KindOf(c.err); got != c.kind {
			t.Errorf("%v is %s, want %s", c.err, got, c.kind)
		}
		if c.err != nil && c.err.Error() != c.text {
			t.Errorf("got %q, want %q", c.err, c.text)
		}
		for _, k := range job.Kinds() {
			var e *job.Error
			if got := job.IsKind(c.err, k); got != (k == c.kind && errors.As(c.err, &e)) {
				t.Errorf("%v is of kind %s: %t", c.err, k, got)
			}
		}
	}
	if !errors.Is(outer, io.EOF) {
		t.Error("the cause is lost")
	}
}
