package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ending says how runs end. One is said at once and by itself; what ends while
// requests are under way goes together in the next one. So a worker of many short
// jobs makes few requests, and who ends alone waits for nobody.
type outcomeSender struct {
	api *WorkerAPI

	mu      sync.Mutex
	senders int // requests that are under way
	pending []*pendingOutcome
}

// pendingOutcome is an outcome that waits for its request.
type pendingOutcome struct {
	ctx     context.Context // of its caller, with a deadline
	outcome RunOutcome
	done    chan error // of one place
}

const (
	// maxSenders is how many requests may be under way: more than one, as one
	// that hangs must not hold up all that ends meanwhile.
	maxSenders = 4
	// maxBatchOutcomes is how many outcomes a request may have.
	maxBatchOutcomes = 1000
	// maxBatchedBytes is how many bytes an outcome may have to go with others: a
	// thousand of them stay below what a request may have, and none holds up
	// the others.
	maxBatchedBytes = 2 << 10
)

// errSendSingly: the outcome cannot go with others.
var errSendSingly = errors.New("the outcome goes by itself")

// end ends a run, with others if some end at the same time. Its errors are those
// of [WorkerAPI.Complete]. The context must have a deadline.
func (e *outcomeSender) finish(ctx context.Context, outcome RunOutcome) error {
	err := errSendSingly
	if outcome.size() <= maxBatchedBytes {
		err = e.awaitBatch(&pendingOutcome{ctx: ctx, outcome: outcome, done: make(chan error, 1)})
	}
	if errors.Is(err, errSendSingly) {
		return e.sendSingle(ctx, outcome)
	}
	return err
}

// awaitBatch waits for the answer to the request that an outcome goes with.
func (e *outcomeSender) awaitBatch(pending *pendingOutcome) error {
	e.mu.Lock()
	e.pending = append(e.pending, pending)
	free := e.senders < maxSenders
	if free {
		e.senders++
	}
	e.mu.Unlock()
	if free {
		go e.send()
	}
	return <-pending.done
}

// sendHeartbeat sends what waits, one request after another, until nothing does.
func (e *outcomeSender) send() {
	for {
		e.mu.Lock()
		n := min(len(e.pending), maxBatchOutcomes)
		batch := e.pending[:n:n]
		e.pending = e.pending[n:]
		if n == 0 {
			e.senders--
		}
		e.mu.Unlock()
		switch n {
		case 0:
			return
		case 1:
			batch[0].done <- e.sendSingle(batch[0].ctx, batch[0].outcome)
		default:
			e.sendBatch(batch)
		}
	}
}

// sendBatch ends runs in one request. It is tried until the last of their callers
// would give up: an answer that comes later for one of them does no harm. Where
// the whole is refused, each learns by itself what is wrong with it.
func (e *outcomeSender) sendBatch(batch []*pendingOutcome) {
	outcomes := make([]RunOutcome, len(batch))
	var until time.Time
	for i, one := range batch {
		outcomes[i] = one.outcome
		if its, _ := one.ctx.Deadline(); its.After(until) {
			until = its
		}
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(batch[0].ctx), until)
	defer stop()
	ends, err := e.api.Finish(ctx, outcomes)
	if errors.Is(err, ErrInvalid) {
		err = errSendSingly
	}
	for i, one := range batch {
		if err == nil {
			one.done <- ends[i].Err
		} else {
			one.done <- err
		}
	}
}

func (e *outcomeSender) sendSingle(ctx context.Context, outcome RunOutcome) error {
	switch {
	case outcome.Failure != nil:
		return e.api.Fail(ctx, outcome.RunID, *outcome.Failure)
	case outcome.Released:
		return e.api.Release(ctx, outcome.RunID)
	}
	return e.api.Complete(ctx, outcome.RunID, outcome.Result)
}

// size is about how many bytes the outcome has on the wire.
func (o RunOutcome) size() int {
	if o.Failure != nil {
		return len(o.Failure.Error) + len(o.Failure.Type)
	}
	return len(o.Result)
}
