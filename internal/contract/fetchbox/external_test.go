package fetchbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/job"
)

// failingHandler fails where it is asked for tasks, and adjusts none.
type failingHandler struct {
	handler.Default
	err error
}

func (h *failingHandler) Tasks(context.Context, handler.Job, handler.Manifest) ([]handler.Task,
	error) {
	return nil, h.err
}

func (h *failingHandler) Adjust(context.Context, []handler.Task) error { return h.err }

// G-FB-46 A handler that refuses is the client's matter. One that cannot be asked is an outage,
// which costs the job nothing at a submit, an attempt at a download, and none where its program is
// missing on this machine.
func TestHandlerCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := newFetchWorld(t, assertNear())
	const reason = "no more than two at a time"
	for name, tt := range map[string]struct {
		err     error
		status  int
		cause   job.Cause
		failure string
	}{
		"a refusal":   {errors.New(reason), 400, job.FailedForGood, "HANDLER_TASK"},
		"an outage":   {&handler.UnavailableError{Reason: reason}, 500, job.Failed, "HANDLER_TASK"},
		"not on here": {&handler.UnavailableError{Reason: reason, Missing: true}, 500, job.Released, ""},
	} {
		w.fetchbox.WithHandler("default", &failingHandler{err: tt.err})
		r := w.post(t, manifest(1), "X-Fetchbox-Job-Type", "default").WantStatus(t, tt.status)
		if got := strings.Contains(string(r.Body), reason); got != (tt.status == 400) {
			t.Errorf("%s: the answer is %s", name, r.Body)
		}
		w.wantNothingStored(t)
		o := w.fetch(t.Context(), taskOf("http://127.0.0.1:1/", nil), 0)
		if o.On != tt.cause || !strings.Contains(string(o.Failure), tt.failure) ||
			(len(o.Failure) > 0) != (tt.failure != "") {
			t.Errorf("%s: the attempt ends with %+v", name, o)
		}
	}
}

// FB-069 G-FB-46 What a handler outside of the program lacks is an error of the start.
func TestExternalHandlersAreMade(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := config()
	c.External = external.Factory{Child: []string{"x"}, Dir: t.TempDir()}
	c.Types = map[string]*fetchbox.Type{"x": {Handler: "exec", Settings: external.Defaults()}}
	c.Types["x"].Command = []string{"no-such-program"}
	if err := w.wantRefused(c); err == nil ||
		!strings.Contains(err.Error(), `job_types.x.handler: exec: "no-such-program"`) {
		t.Errorf("got %v", err)
	}
}
