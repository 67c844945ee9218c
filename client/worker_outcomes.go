package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// outcomeSender sends the outcomes of runs, several in one request where that costs no time. An
// outcome is sent at once while fewer than maxSenders requests are under way. Outcomes that come
// while all senders are busy wait and go together with the next request:
//
//	finish ──▶ pending ──▶ sender 1 … maxSenders ──▶ one outcome: Complete, Fail or Release
//	                                             └─▶ several:     Finish
//
// So a worker with many short jobs makes few requests, and a single outcome waits for no other.
type outcomeSender struct {
	api *WorkerAPI

	mu      sync.Mutex
	senders int // goroutines in send
	pending []*pendingOutcome
}

// pendingOutcome is an outcome that waits for its request.
type pendingOutcome struct {
	ctx     context.Context // of its caller, with a deadline
	outcome RunOutcome
	done    chan error // buffered for the one answer
}

const (
	// maxSenders bounds the requests under way. It is more than one, so that a request that
	// hangs does not delay every other outcome.
	maxSenders = 4
	// maxBatchOutcomes is the most outcomes in a request.
	maxBatchOutcomes = 1000
	// maxBatchedBytes is the size up to which an outcome shares a request: a thousand of them stay
	// below the limit of the request, and none delays the others.
	maxBatchedBytes = 2 << 10
)

// errSendSingly means that an outcome must go in a request of its own.
var errSendSingly = errors.New("the outcome needs a request of its own")

// finish ends a run. The outcome may share its request with others. Errors are those of
// [WorkerAPI.Complete]. The context must have a deadline.

// finish ends a run, together with others that end at the same time. Its errors are those
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

// awaitBatch queues an outcome for a request and waits for the answer.
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

// send makes requests until no outcome is pending.
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

// sendBatch ends runs in one request. It is tried until the latest deadline of their callers: a
// late answer does no harm to the callers that no longer wait. When the server refuses the whole
// request, every outcome is sent again alone, to learn which one is wrong.
func (e *outcomeSender) sendBatch(batch []*pendingOutcome) {
	outcomes := make([]RunOutcome, len(batch))
	var latest time.Time
	for i, pending := range batch {
		outcomes[i] = pending.outcome
		if deadline, _ := pending.ctx.Deadline(); deadline.After(latest) {
			latest = deadline
		}
	}
	ctx, stop := context.WithDeadline(context.WithoutCancel(batch[0].ctx), latest)
	defer stop()
	results, err := e.api.Finish(ctx, outcomes)
	if errors.Is(err, ErrInvalid) {
		err = errSendSingly
	}
	for i, pending := range batch {
		if err != nil {
			pending.done <- err
			continue
		}
		pending.done <- results[i].Err
	}
}

// sendSingle ends a run in a request of its own.

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
