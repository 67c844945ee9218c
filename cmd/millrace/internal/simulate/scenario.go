package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
)

// A scenario has a plan, which is drawn from the seed by one goroutine, and an execution, which
// runs concurrently with others. It sends the requests of its kind, then acts on each acknowledged
// job:
//
//	cancel at once     cancel, then wait for the end
//	cancel running     wait until it runs, cancel, wait for the end
//	retry              wait for the failure, retry, wait again
//	others             wait for the end
//
// Answers are recorded in the submission; the audit compares them with the server's state later.

// forgeClient is a client of ForgeRun with a key of its own.
type forgeClient struct {
	// number is its index in simulator.clients.
	number int
	// id is its id at the server.
	id    string
	forge *client.ForgeRun
	// callback is the receiver of its jobs that name a callback.
	callback *receiver
	// callSlots holds a value for each call under way.
	callSlots chan struct{}
}

// maxCalls is how many calls of one client may be under way. Those beyond it wait here and hold no
// connection.
const maxCalls = 32

// call calls do as soon as fewer than maxCalls calls of the client are under way. It returns the
// error of do, or the cause of the end of ctx while it waits.
func (c *forgeClient) call(ctx context.Context, do func() error) error {
	select {
	case c.callSlots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.callSlots }()
	return do()
}

// planSubmission plans the nth scenario: its client, its requests and its time. All random draws
// are made here, by one goroutine, so that a seed gives the same scenarios every time. The same
// numbers are drawn for every kind, whether it needs them or not, so that no kind shifts the draws
// of the scenarios after it.
func (s *simulator) planSubmission(kind *workKind, r *rand.Rand, n int) (*submission,
	client.ForgeRunSpec) {
	c := s.clients[n%s.flags.clients]
	if own := s.kindClients[kind.name]; own != nil {
		c = own
	}
	o := &submission{kind: kind, client: c.number}
	spec := client.ForgeRunSpec{Type: client.ForgeRunTypeExecute, Kind: kind.name}
	now := s.p.Now().UTC()
	delay, withCallback, emit := 1+3*r.Float64(), r.IntN(4) == 0, r.IntN(10) == 0
	switch kind.action {
	case actionScheduleNear:
		o.due = now.Add(time.Duration(delay * float64(time.Second)))
	case actionScheduleAfterLoad:
		o.due = s.loadEnds.Add(time.Duration(delay * float64(time.Second)))
	}
	o.due = o.due.Truncate(time.Microsecond)
	switch {
	case emit:
		spec.Type = client.ForgeRunTypeEmitEvent
	case !o.due.IsZero():
		spec.Type = client.ForgeRunTypeDeferred
	}
	spec.ExecutionAt = o.due
	if withCallback || kind.name == client.ForgeRunWorkWebhookSuccess {
		spec.Callback = c.callback.url
	}
	keys := map[action][]int{actionSameKey: {0, 0, 0}, actionTwoKeys: {0, 1}}[kind.action]
	if keys == nil {
		keys = []int{0}
	}
	for _, key := range keys {
		o.requests = append(o.requests, submitRequest{key: fmt.Sprintf("%s-%d-%d", s.name, n, key)})
	}
	return o, spec
}

// runScenario submits a job and follows it to its end. It calls release as soon as the scenario no
// longer counts as under way, and again when it ends.
func (s *simulator) runScenario(ctx context.Context, o *submission, spec client.ForgeRunSpec,
	release func()) {
	defer release()
	c := s.client(o.client)
	s.submit(ctx, c, o, spec)
	if !o.due.IsZero() {
		release() // a job that waits for its time does not delay other scenarios
	}
	if err := s.follow(ctx, c, o); err != nil {
		o.abortReason = err.Error()
	}
}

// submit sends all requests of a submission concurrently and records their answers. A refusal is
// recorded with its code, and is no error here: the audit decides whether it is right. A request
// without an answer is repeated under its key until there is one or ctx ends.
func (s *simulator) submit(ctx context.Context, c *forgeClient, o *submission,
	spec client.ForgeRunSpec) {
	var all sync.WaitGroup
	for i := range o.requests {
		one := &o.requests[i]
		all.Go(func() {
			spec := spec
			spec.IdempotencyKey = one.key
			err := c.call(ctx, func() error {
				started := s.p.Elapsed()
				receipt, err := c.forge.Submit(ctx, spec)
				s.times.add(s.p.Elapsed() - started)
				one.jobID = receipt.JobID
				return err
			})
			var fail *client.Error
			switch refused := errors.As(err, &fail) && fail.Status != 0 && !fail.Retryable(); {
			case err == nil:
			case refused && fail.Code == client.ForgeRunCodeValidationFailed && !o.due.IsZero() &&
				s.p.Now().After(o.due):
				one.code, one.late = fail.Code, true
			case refused:
				one.code = fmt.Sprintf("%d %s", fail.Status, fail.Code)
				if fail.Status == 400 {
					one.code = fail.Code
				}
			default:
				one.failure = err.Error()
			}
		})
	}
	all.Wait()
}

// follow does what the kind asks for until every job of the submission has ended. Its error says
// why the scenario ended early: ctx has ended, or the server refused a request.
func (s *simulator) follow(ctx context.Context, c *forgeClient, o *submission) error {
	for _, jobID := range o.jobs() {
		var err error
		switch o.kind.action {
		case actionCancelAtOnce:
			err = s.cancel(ctx, c, o, jobID)
		case actionCancelRunning:
			err = s.cancelRunning(ctx, c, o, jobID)
		case actionRetryOnce, actionRetryUntilRefused:
			err = s.retry(ctx, c, o, jobID)
		}
		if err != nil {
			return err
		}
		_, _, err = s.await(ctx, c, jobID, time.Time{}, client.ForgeRunState.Final)
		if err != nil {
			return err
		}
	}
	return nil
}

// jobs are the distinct jobs that were acknowledged, in the order of the requests.
func (o *submission) jobs() []string {
	var ids []string
	visited := map[string]bool{"": true}
	for _, one := range o.requests {
		if !visited[one.jobID] {
			visited[one.jobID] = true
			ids = append(ids, one.jobID)
		}
	}
	return ids
}

// cancelRunning cancels a job once it runs, or once it has ended before that was seen. The cancel
// may race with the end of the job; its answer states which of them won (FR-138).
func (s *simulator) cancelRunning(ctx context.Context, c *forgeClient, o *submission,
	jobID string) error {
	_, _, err := s.await(ctx, c, jobID, time.Time{}, func(state client.ForgeRunState) bool {
		return state == client.ForgeRunStateRunning || state.Final()
	})
	if err != nil {
		return err
	}
	return s.cancel(ctx, c, o, jobID)
}

// cancel cancels a job and records the state that the server answered with.
func (s *simulator) cancel(ctx context.Context, c *forgeClient, o *submission,
	jobID string) error {
	return c.call(ctx, func() error {
		change, err := c.forge.Cancel(ctx, jobID)
		if err != nil {
			return err
		}
		o.canceled = change.State
		s.watches.record(jobID, change.State, change.UpdatedAt)
		return nil
	})
}

// retry retries a job each time it has failed, once or until the server refuses, as its kind says.
// A final state counts only if the job has entered it after the failure that was retried last, so
// that no failure is retried twice.
func (s *simulator) retry(ctx context.Context, c *forgeClient, o *submission, jobID string) error {
	since := time.Time{}
	for {
		state, at, err := s.await(ctx, c, jobID, since, client.ForgeRunState.Final)
		if err != nil || state != client.ForgeRunStateFailed ||
			(o.kind.action == actionRetryOnce && o.attempt > 0) {
			return err
		}
		var change client.ForgeRunActionResult
		err = c.call(ctx, func() (err error) {
			change, err = c.forge.Retry(ctx, jobID)
			return err
		})
		if errors.Is(err, client.ErrConflict) {
			o.refused = true
			return nil
		}
		if err != nil {
			return err
		}
		o.attempt, since = change.Attempt, at
		s.watches.record(jobID, change.State, change.UpdatedAt)
	}
}
