package httpapi

import (
	"errors"

	"github.com/millrace/millrace/internal/job"
)

// MapError says what an error means to a contract, and what may be shown of it. What
// HTTP alone turned down means what refusals say of its status, or other; all else
// what kinds say of its kind.
func MapError[M any](err error, kinds map[job.Kind]M, statuses map[int]M, other M) (M, string) {
	var statusErr *StatusError
	if errors.As(err, &statusErr) {
		if m, ok := statuses[statusErr.Status]; ok {
			return m, statusErr.Msg
		}
		return other, statusErr.Msg
	}
	var e *job.Error
	if errors.As(err, &e) && e.Msg != "" {
		return kinds[e.Kind], e.Msg
	}
	return kinds[job.KindOf(err)], job.KindOf(err).String()
}
