package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// batcher sends entries about runs, such as their outcomes, several in one request where that costs
// no time. An entry is sent at once while fewer than maxSenders requests are under way. Those that
// come while all senders are busy wait and go together with the next request:
//
//	send ──▶ pending ──▶ sender 1 … maxSenders ──▶ one entry: sendOne
//	                                           └─▶ several:   sendAll
//
// So a worker with many short jobs makes few requests, and a single entry waits for no other.
type batcher[T any] struct {
	op string // of the error of a caller that stops waiting
	// sendOne sends an entry in a request of its own.
	sendOne func(ctx context.Context, entry T) error
	// sendAll sends entries in one request. It returns the error of each or, as its second
	// result, the error of all of them. With errSendSingly each is sent again by sendOne.
	sendAll func(ctx context.Context, entries []T) ([]error, error)

	mu      sync.Mutex
	senders int // goroutines in work
	pending []*pendingEntry[T]

	singles unsupported    // while it is on nothing is batched, after errNoBatches
	working sync.WaitGroup // of the senders
}

// pendingEntry is an entry that waits for its request.
type pendingEntry[T any] struct {
	ctx   context.Context // of its caller
	entry T
	done  chan error // buffered for the one answer
}

const (
	// maxSenders limits the requests under way. It is more than one, so that a request that
	// hangs does not delay every other entry.
	maxSenders = 4
	// maxBatchEntries is the most entries in a request.
	maxBatchEntries = 1000
	// maxBatchedBytes is the size up to which an entry should share a request: a thousand of them
	// stay below the limit of the request, and none delays the others.
	maxBatchedBytes = 2 << 10
	// unsupportedPause is how long a server is not asked again for what it does not have. It limits
	// what it is asked in vain, and ends so that one that is upgraded is asked.
	unsupportedPause = 10 * time.Minute
)

// unsupported remembers that a server does not have something. It is on for a while after it has
// begun.
type unsupported struct {
	mu    sync.Mutex
	until time.Time
}

func (u *unsupported) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = time.Now().Add(unsupportedPause)
}

func (u *unsupported) isOn() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.until)
}

var (
	// errSendSingly means that each entry must go in a request of its own.
	errSendSingly = errors.New("each entry needs a request of its own")
	// errNoBatches is an errSendSingly that holds for later entries too.
	errNoBatches = fmt.Errorf("the server takes no batches: %w", errSendSingly)
)

// send sends an entry, together with others that come at the same time. It fails as sendOne
// does.
func (b *batcher[T]) send(ctx context.Context, entry T) error {
	err := b.await(&pendingEntry[T]{ctx: ctx, entry: entry, done: make(chan error, 1)})
	if errors.Is(err, errSendSingly) {
		return b.sendOne(ctx, entry)
	}
	return err
}

// await queues an entry for a request and waits for the answer.
func (b *batcher[T]) await(pending *pendingEntry[T]) error {
	if b.singles.isOn() {
		return errSendSingly
	}
	b.mu.Lock()
	b.pending = append(b.pending, pending)
	free := b.senders < maxSenders
	if free {
		b.senders++
	}
	b.mu.Unlock()
	if free {
		b.working.Go(b.work)
	}
	select {
	case err := <-pending.done:
		return err
	case <-pending.ctx.Done():
		return &Error{Op: b.op, Uncertain: true, Err: contextError(pending.ctx)}
	}
}

// wait waits until the senders have ended, after the last caller of send.
func (b *batcher[T]) wait() { b.working.Wait() }

// work makes requests until no entry is pending.
func (b *batcher[T]) work() {
	for {
		batch, err := b.next()
		switch {
		case len(batch) == 0:
			return
		case err != nil:
			reply(batch, nil, err)
		case len(batch) == 1:
			batch[0].done <- b.sendOne(batch[0].ctx, batch[0].entry)
		default:
			b.sendBatch(batch)
		}
	}
}

// next takes the entries of the next request. Those whose callers wait no longer are dropped. It
// returns errSendSingly for entries that came before the server was found to take no batches.
func (b *batcher[T]) next() (batch []*pendingEntry[T], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = slices.DeleteFunc(b.pending, func(pending *pendingEntry[T]) bool {
		return pending.ctx.Err() != nil
	})
	n := min(len(b.pending), maxBatchEntries)
	batch, b.pending = b.pending[:n:n], b.pending[n:]
	if n == 0 {
		b.senders--
	}
	if b.singles.isOn() {
		err = errSendSingly
	}
	return batch, err
}

// sendBatch sends entries in one request. It is tried until the contexts of all their callers have
// ended: a late answer does no harm to the callers that no longer wait.
func (b *batcher[T]) sendBatch(batch []*pendingEntry[T]) {
	ctx, stop := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	defer stop()
	entries := make([]T, len(batch))
	var waiting atomic.Int64
	waiting.Store(int64(len(batch)))
	for i, pending := range batch {
		entries[i] = pending.entry
		defer context.AfterFunc(pending.ctx, func() {
			if waiting.Add(-1) == 0 {
				stop()
			}
		})()
	}
	errs, err := b.sendAll(ctx, entries)
	if errors.Is(err, errNoBatches) {
		b.singles.begin()
	}
	reply(batch, errs, err)
}

// reply gives each caller of a batch the error of its entry, or the one of all.
func reply[T any](batch []*pendingEntry[T], errs []error, err error) {
	for i, pending := range batch {
		if err != nil {
			pending.done <- err
			continue
		}
		pending.done <- errs[i]
	}
}
