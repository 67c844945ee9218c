package httpapi

import (
	"errors"

	"github.com/millrace/millrace/internal/job"
)

// Judge says what an error means to a contract, and what may be shown of it. What
// HTTP alone turned down means what refusals say of its status, or other; all else
// what kinds say of its kind.
func Judge[M any](err error, kinds map[job.Kind]M, refusals map[int]M, other M) (M, string) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if m, known := refusals[refusal.Status]; known {
			return m, refusal.Msg
		}
		return other, refusal.Msg
	}
	var e *job.Error
	if errors.As(err, &e) && e.Msg != "" {
		return kinds[e.Kind], e.Msg
	}
	return kinds[job.KindOf(err)], job.KindOf(err).String()
}
