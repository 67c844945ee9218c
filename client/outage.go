package client

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// serverOutage logs one line when the server begins to fail the requests of a worker, and one when
// it answers again, whatever the number of runs whose heartbeats fail meanwhile.
//
//	polls       ok FAIL FAIL ·    ·    ok ·     until one succeeds
//	heartbeats  ok ·    ·    FAIL FAIL ·  ok    of each run, until one is answered or it ends
//	outcomes    ok ·    FAIL ·    ·    ok ·     a definite answer ends what they have begun
//	log            WARN                   INFO  while one of them fails it is one outage
type serverOutage struct {
	log *slog.Logger

	mu         sync.Mutex
	active     bool
	since      time.Time
	pollsFail  bool
	pollStatus int // of the answers to polls in this outage; 0 is no answer
	missing    int // runs whose last heartbeat failed
}

// pollFailed also logs when the status of the answers changes, which may mean another cause.
func (o *serverOutage) pollFailed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	status := statusOf(err)
	isNew := !o.active || (o.pollsFail && o.pollStatus != status)
	o.pollsFail, o.pollStatus = true, status
	if isNew {
		o.begin("polls", err)
	}
}

func (o *serverOutage) pollSucceeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pollsFail = false
	o.endIfOver()
}

// heartbeatFailed records that a run has missed so many heartbeats in a row.
func (o *serverOutage) heartbeatFailed(missed int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if missed == 1 {
		o.missing++
	}
	if !o.active {
		o.begin("heartbeats", err)
	}
}

// heartbeatAnswered records that a heartbeat was accepted, or that its answer was that the run is
// lost, after so many misses.
func (o *serverOutage) heartbeatAnswered(missed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if missed > 0 {
		o.missing--
	}
	o.endIfOver()
}

// outcomeFailed records that a request with the outcome of a run will be repeated.
func (o *serverOutage) outcomeFailed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.active {
		o.begin("outcomes", err)
	}
}

// outcomeAnswered records a definite answer to a request with the outcome of a run.
func (o *serverOutage) outcomeAnswered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endIfOver()
}

// runFinished records that a run sends no more heartbeats. That says nothing about the server, so
// the next answer ends the outage.
func (o *serverOutage) runFinished(missed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if missed > 0 {
		o.missing--
	}
}

// begin logs what fails. A refusal names the requests, as others may be accepted.
func (o *serverOutage) begin(requests string, err error) {
	if !o.active {
		o.active, o.since = true, time.Now()
	}
	msg := "the server refuses " + requests + "; they are repeated until it accepts one"
	if statusOf(err) == 0 {
		msg = "the server does not answer; requests are repeated until it does"
	}
	o.log.Warn(msg, "error_message", err)
}

func (o *serverOutage) endIfOver() {
	if !o.active || o.pollsFail || o.missing > 0 {
		return
	}
	o.active = false
	o.log.Info("the server answers again", "duration", time.Since(o.since))
}

// statusOf is the status of the answer that an error is about; 0 is no answer.
func statusOf(err error) int {
	var fail *Error
	if errors.As(err, &fail) {
		return fail.Status
	}
	return 0
}
