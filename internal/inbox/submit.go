package inbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// submitTimeout bounds what a contract does for one request: it is below the lease.
const submitTimeout = 8 * time.Second

// maxError bounds the error of a request, in bytes.
const maxError = 500

// batchResult is the result of a batch of chains.
type batchResult struct {
	updated  []job.InboxRequest // what was refused, repeated, or waits with an error
	delayed  []job.InboxTransaction
	empty    []int64 // transactions without a request that waits
	finished map[int64]bool
	// unserved are the requests of updated that have begun to wait for a node that serves them.
	unserved []job.InboxRequest
}

// chainResult is what has become of a chain.
type chainResult struct {
	chain      *chain
	results    []result
	wasStopped bool
}

// start starts to submit chains beside each other, each in its order, and returns how many they
// are. Those of which nothing is left to submit are done.
func (in *Inbox) start(ctx context.Context, chains []*chain, done *batchResult) (started int) {
	for _, c := range chains {
		switch number := c.transaction.Number; {
		case len(c.requests) > 0:
			started++
			in.running[number], c.skipped, c.step = c, in.skipped, in.steps
			go func() {
				results, wasStopped := in.submitChain(ctx, c)
				in.ended <- chainResult{c, results, wasStopped}
			}()
		case c.isWhole: // the chains before it are submitted already
			done.empty, done.finished[number] = append(done.empty, number), true
		}
	}
	return started
}

// collect adds the chains that end while this step waits for those that it has started. A step that
// has started none waits for one that ends, or for something to claim.
func (in *Inbox) collect(done *batchResult, started int) {
	wait, ready := maxStepTime, (<-chan struct{})(nil)
	if started == 0 {
		wait, ready = maxIdleTime, in.Engine.InboxReady()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	mayWait := started > 0 || (len(in.running) > 0 && len(done.empty) == 0)
	for mayWait {
		select {
		case end := <-in.ended:
			if end.chain.step == in.steps {
				started--
			}
			in.addResult(done, end)
		case <-ready:
			in.isMore = true
		case <-timer.C:
			started = 0
		}
		mayWait = started > 0
	}
	in.addResults(done)
}

// addResults adds the chains that have ended.
func (in *Inbox) addResults(done *batchResult) {
	for {
		select {
		case end := <-in.ended:
			in.addResult(done, end)
		default:
			return
		}
	}
}

func (in *Inbox) addResult(done *batchResult, end chainResult) {
	delete(in.running, end.chain.transaction.Number)
	done.add(end.chain, end.results, end.wasStopped)
}

// add adds the results of a chain. If it was stopped and none of its requests waits for a later
// time, another node works on it: it is read again at once.
func (o *batchResult) add(c *chain, results []result, wasStopped bool) {
	t, waits := c.transaction, false
	for i := range results {
		r := &results[i]
		if r.updated.State != "" {
			o.updated = append(o.updated, r.updated)
		}
		switch {
		case waits: // the first that waits decides
		case r.skipped:
			t.FailedAttempts, waits = 0, true
		case r.waits:
			if i > 0 {
				t.FailedAttempts = 0 // those before it had been tried
			}
			if r.isUnserved && t.FailedAttempts == 0 {
				o.unserved = append(o.unserved, r.updated)
			}
			t.FailedAttempts, waits = t.FailedAttempts+1, true
		}
	}
	if waits {
		o.delayed = append(o.delayed, t)
	}
	o.finished[t.Number] = waits || (c.isWhole && !wasStopped)
}

// result is the result of one request.
type result struct {
	updated job.InboxRequest // without a state: there is nothing to store
	waits   bool             // it cannot be submitted yet
	skipped bool             // it is left to other nodes
	// isUnserved says that it waits as no node has served its contract.
	isUnserved bool
}

// submitChain submits the requests of a chain: each as soon as the one before has its place, up to
// the first that waits, and for maxChainTime. wasStopped says that it has not come to the end.
func (in *Inbox) submitChain(ctx context.Context, c *chain) (results []result, wasStopped bool) {
	var running sync.WaitGroup
	order := &engine.InboxChain{}
	results = make([]result, len(c.requests))
	started, isLate := in.Elapsed(), false
	for i := range c.requests {
		isLate = i > 0 && in.Elapsed()-started >= maxChainTime
		if isLate || order.IsStopped() {
			break
		}
		t, r := order.Next(&c.requests[i]), &c.requests[i]
		retried := i == 0 && !c.transaction.IsNew
		running.Go(func() {
			defer t.Return()
			results[i] = in.submitOne(ctx, c, t, r, retried)
			if results[i].waits || results[i].skipped {
				t.Stop()
			}
		})
		<-t.Queued()
	}
	running.Wait()
	return results, isLate || order.IsStopped()
}

// updatedRequest returns a request with its state and an error.
func updatedRequest(r *job.InboxRequest, state job.InboxState, why string) job.InboxRequest {
	return job.InboxRequest{Number: r.Number, Transaction: r.Transaction, ID: r.ID,
		Contract: r.Contract, State: state, Error: shorten(why)}
}

// route returns the result of a request to a contract that this node does not serve or that refuses
// requests now, and reports whether there is one. retried says that the request was left to other
// nodes before and none has claimed it: then a contract of this node that refuses requests gets it
// nevertheless, for its error.
func (in *Inbox) route(c *chain, r *job.InboxRequest, retried bool) (result, bool) {
	switch {
	case !slices.Contains(in.Known, r.Contract):
		return result{updated: updatedRequest(r, job.InboxRefused,
			"contract must be one of "+strings.Join(in.Known, ", "))}, true
	case !retried && slices.Contains(c.skipped, r.Contract):
		return result{skipped: true}, true
	case slices.Contains(in.notServed, r.Contract):
		return result{waits: true, isUnserved: true, updated: updatedRequest(r, job.InboxWaiting,
			"no node serves the contract "+r.Contract)}, true
	}
	return result{}, false
}

// submitOne has the contract of a request check and submit it.
func (in *Inbox) submitOne(ctx context.Context, c *chain, t *engine.InboxSubmission,
	r *job.InboxRequest, retried bool) (done result) {
	defer func() {
		if p := recover(); p != nil {
			in.Log.Error("a contract has panicked for a request in the inbox", "request", r.ID,
				telemetry.ErrorMessage, fmt.Sprintf("%v\n%s", p, debug.Stack()))
			done = result{updated: updatedRequest(r, job.InboxRefused, "the server has failed")}
		}
	}()
	if elsewhere, is := in.route(c, r, retried); is {
		return elsewhere
	}
	request := contract.Request{Body: r.Body, Owner: r.Owner, Type: r.Type}
	o, err := contract.SubmitterOf(in.Contracts, r.Contract, &request)
	if err != nil {
		return result{updated: updatedRequest(r, job.InboxRefused, messageOf(err))}
	}
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	made, err := o.Submit(engine.WithInbox(ctx, t), request)
	switch {
	case t.IsSubmitted(): // whatever went wrong afterwards
		in.metrics.countSubmitted(r.Contract)
		return result{}
	case err == nil: // the contract has had the same request before
		repeated := updatedRequest(r, job.InboxSubmitted, "")
		repeated.Job, repeated.JobID = made.Seq, made.ID.Key
		return result{updated: repeated}
	case job.IsKind(err, job.RunLost), errors.Is(err, engine.ErrBehind):
		return result{}
	case isLater(o, err):
		return result{waits: true, updated: updatedRequest(r, job.InboxWaiting, detail(o, err))}
	}
	return result{updated: updatedRequest(r, job.InboxRefused, detail(o, err))}
}

// isLater reports whether a request may be submitted later: something does not answer, or is at
// its limit.
func isLater(o *contract.Operator, err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Full, job.Aborted, job.Timeout:
		return true
	}
	switch o.Answer(err).Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// detail returns how a contract explains an error.
func detail(o *contract.Operator, err error) string {
	if words := o.Answer(err).Detail; words != "" {
		return words
	}
	return messageOf(err)
}

// messageOf returns the message of an error for a caller.
func messageOf(err error) string {
	if e, ok := errors.AsType[*job.Error](err); ok {
		return e.Msg
	}
	return err.Error()
}

// shorten returns the beginning of a text, as the database takes it.
func shorten(text string) string {
	text = strings.ReplaceAll(text[:min(len(text), maxError)], "\x00", "")
	return strings.ToValidUTF8(text, "")
}
