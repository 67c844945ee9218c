package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// beginning is a store that calls a function when an update has begun.
type beginning struct {
	store.Store
	started func()
}

func (b *beginning) Update(ctx context.Context, fn func(store.Tx) error) error {
	return b.Store.Update(ctx, func(tx store.Tx) error {
		b.started()
		return fn(tx)
	})
}

// TX-002: where a slow node and the one that has taken its transaction over submit the requests by
// turns, the jobs are claimed in the order of the transaction: a node stores none in a transaction
// that has begun before the job of the request before it was stored.
func TestTwoNodesOfATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size, takeovers = 6, 3
	var allowed, submitted, updates atomic.Int64
	other := w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			var spec struct {
				ID int64 `json:"id,string"`
			}
			if err := json.Unmarshal(r.Body, &spec); err != nil || spec.ID > allowed.Load() {
				return nil, errors.Join(err, errUnavailable)
			}
			made, err := submit(ctx, r)
			if err != nil {
				return nil, err
			}
			submitted.Add(1)
			return made, nil
		}
	}})
	var stepping sync.Mutex // as the lease may be extended while a request is stored
	takesOver := func() {
		stepping.Lock()
		defer stepping.Unlock()
		if n := updates.Add(1); n == 1 || n > 1+takeovers { // the first one takes the transaction
			return
		}
		w.clock.Advance(time.Minute)
		allowed.Add(1)
		for more := true; more; {
			var err error
			if more, err = other.Step(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	slow := w.newNode(nodeConfig{store: &beginning{w.open(), takesOver}})
	tx := w.begin()
	var want []string
	for i := range size {
		want = append(want, fmt.Sprint(i+1))
		w.submit(tx, "relay", fmt.Sprintf(relayJob, want[i]))
	}
	w.must(tx.Commit())
	slow.run(w)
	if submitted.Load() == 0 {
		t.Fatal("TX-002 the other node has submitted nothing")
	}
	var got []string
	for range size {
		jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{JobType: "relay",
			Max: 1, Worker: "w"})
		w.must(err)
		for _, j := range jobs {
			got = append(got, j.ID.Key)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("TX-002 the jobs were claimed in the order %v, want %v", got, want)
	}
}

// TX-002: a request whose time has passed while it waits for its turn lets none behind it pass,
// also before its contract has learnt of it.
func TestRequestThatIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stalled, goOn := make(chan struct{}), make(chan struct{})
	var stalls atomic.Bool
	e := w.newNode(nodeConfig{store: &beginning{w.open(), func() {
		if stalls.CompareAndSwap(true, false) {
			close(stalled)
			<-goOn
		}
	}}}).engine
	w.chain("0")
	w.chain("1", "2")
	ctx := context.Background()
	taken, err := e.ClaimInbox(ctx, 10, inbox.Lease, nil, 0)
	w.must(err)
	var numbers []int64
	for _, one := range taken {
		numbers = append(numbers, one.Number)
	}
	slices.Sort(numbers)
	requests, err := e.ReadInbox(ctx, numbers, 10, 1<<20)
	w.must(err)
	submit := func(ctx context.Context, s *engine.InboxSubmission, key string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := e.Submit(engine.WithInbox(ctx, s), engine.Unique, []engine.Submission{{
				Job: job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: key}, Queue: "q",
					Lease: time.Minute, Payload: []byte("{}")}}})
			s.Return()
			done <- err
		}()
		<-s.Queued()
		return done
	}
	stalls.Store(true)
	before := submit(ctx, (&engine.InboxChain{}).Next(&requests[0]), "0")
	testkit.Receive(t, "the store to stall", stalled)
	chain := &engine.InboxChain{}
	givenUp, giveUp := context.WithCancel(ctx)
	first := submit(givenUp, chain.Next(&requests[1]), "1")
	second := submit(ctx, chain.Next(&requests[2]), "2")
	giveUp()
	if err := <-first; !job.IsKind(err, job.Aborted) {
		t.Errorf("the first request of the transaction: %v", err)
	}
	close(goOn)
	w.must(<-before)
	if err := <-second; !errors.Is(err, engine.ErrBehind) {
		t.Errorf("TX-002 the second request of the transaction: %v, want %v", err, engine.ErrBehind)
	}
	if got := w.jobs("relay"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("TX-002 the jobs are %v", got)
	}
}

// viewed is a store that calls a function before each view.
type viewed struct {
	store.Store
	before func()
}

func (v *viewed) View(ctx context.Context, fn func(store.Reader) error) error {
	v.before()
	return v.Store.View(ctx, fn)
}

// TX-002: a request with a key of its contract that a job had whose time has passed lets none
// behind it pass while the job is looked up.
func TestKeyThatIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var first, others atomic.Bool
	var n *node
	n = w.newNode(nodeConfig{
		store: &viewed{w.open(), func() {
			if first.CompareAndSwap(true, false) {
				testkit.WaitUntil(t, "those behind the first request", others.Load)
			}
		}},
		relay: func(submitFunc) submitFunc {
			return func(ctx context.Context, r contract.Request) (*job.Job, error) {
				var spec struct{ ID string }
				if err := json.Unmarshal(r.Body, &spec); err != nil {
					return nil, err
				}
				once := engine.Idempotency{Window: time.Minute}
				switch spec.ID {
				case "1":
					once.Alias = job.AliasOf("relay", "", "key")
					first.Store(!others.Load())
				case "3":
					defer others.Store(true)
				}
				made, err := n.engine.SubmitOnce(ctx, once, []engine.Submission{{
					Job: job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: spec.ID},
						Queue: "q",
						Lease: time.Minute, Payload: []byte("{}")}}})
				return made.Job, err
			}
		}})
	_, err := w.engine.SubmitOnce(context.Background(),
		engine.Idempotency{Alias: job.AliasOf("relay", "", "key")}, []engine.Submission{{
			Job: job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: "0"}, Queue: "q",
				Lease: time.Minute, Payload: []byte("{}")}}})
	w.must(err)
	w.clock.Advance(time.Minute)
	w.chain("1", "2", "3")
	n.run(w)
	if got := w.endJobs(); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("TX-002 the jobs were claimed in the order %v", got)
	}
}
