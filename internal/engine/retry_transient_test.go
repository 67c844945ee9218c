package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

func TestRetryTransient(t *testing.T) {
	t.Parallel()
	of := func(kind job.Kind) error { return &job.Error{Kind: kind, Op: "test"} }
	for name, tc := range map[string]struct {
		errs  []error
		calls int
		want  job.Kind
		fails bool
	}{
		"well": {errs: []error{nil}, calls: 1},
		"the store was unavailable": {errs: []error{of(job.Unavailable), of(job.ReadOnly),
			of(job.Timeout), of(job.Aborted), of(job.Internal), nil}, calls: 6},
		"no error of ours": {errs: []error{errors.New("eof"), nil}, calls: 2},
		"the run is lost": {errs: []error{of(job.Unavailable), of(job.RunLost)}, calls: 2,
			want: job.RunLost, fails: true},
		"refused": {errs: []error{of(job.Conflict)}, calls: 1, want: job.Conflict,
			fails: true},
		"away until the time is up": {errs: []error{of(job.Unavailable)}, calls: 14,
			want: job.Unavailable, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithTimeout(context.Background(), 7*time.Second)
				defer end()
				calls := 0
				err := engine.RetryTransient(ctx, func() error {
					calls++
					return tc.errs[min(calls, len(tc.errs))-1]
				})
				if (err != nil) != tc.fails || (tc.fails && job.KindOf(err) != tc.want) {
					t.Errorf("got %v", err)
				}
				if calls != tc.calls {
					t.Errorf("called %d times, want %d", calls, tc.calls)
				}
			})
		})
	}
}
