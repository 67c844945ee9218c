package taskflow

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// simulator executes jobs by waiting and then ending as their payload says (G-TF-37). It is for
// demonstrations and tests of a graph, of its retries and of what waits for it.
type simulator struct {
	timer clock.Timer
}

// maxSimulatedRun bounds duration_ms. A simulated attempt sends heartbeats like any other, so it
// may be longer than the lease.
const maxSimulatedRun = 24 * time.Hour

// simulation is the payload of a simulated job.
type simulation struct {
	duration  time.Duration
	fails     bool // every attempt fails
	failTimes int  // the number of attempts that fail before one succeeds
	message   string
}

var errSimulation = errors.New("duration_ms (from 0 to 86400000) and fail_times must be whole " +
	"numbers, fail true or false, error a string")

// readSimulation reads a payload. A job without any of the members succeeds at once. Other members
// are ignored, so the payload may be that of a real job.
func readSimulation(payload []byte) (p simulation, err error) {
	for name, value := range strictjson.Members(payload) {
		var n int64
		switch string(name) {
		case "duration_ms":
			n, err = strictjson.Int(value, 64)
			if n < 0 || n > maxSimulatedRun.Milliseconds() {
				return p, errSimulation
			}
			p.duration = time.Duration(n) * time.Millisecond
		case "fail":
			p.fails, err = strictjson.Bool(value)
		case "fail_times":
			n, err = strictjson.Int(value, 32)
			p.failTimes = int(n)
		case "error":
			if p.message, err = strictjson.String(value); !errors.Is(err, strictjson.ErrKind) {
				err = nil // a text that no store can keep is reported as far as it can be
			}
		}
		if err != nil {
			return p, errSimulation
		}
	}
	return p, nil
}

// Handle implements worker.Handler. A payload that cannot be read fails the job for good: it would
// be the same in the next attempt.
func (s *simulator) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	p, err := readSimulation(t.Job.Payload)
	if err != nil {
		return failureOutcome(t.Job, err.Error(), typePayload, false)
	}
	if !s.timer.Wait(ctx, p.duration) { // the node stops: the zero outcome releases the job
		return engine.Outcome{}
	}
	return p.outcome(t.Job)
}

// outcome fails the first failTimes attempts, or all of them. These failures are retryable, so the
// policy of the job decides when it has failed for good.
func (p *simulation) outcome(j *job.Job) engine.Outcome {
	if p.fails || attempt(j) <= p.failTimes {
		return failureOutcome(j, cmp.Or(strings.ReplaceAll(p.message, "\x00", "\uFFFD"),
			"the payload asks for it"), typeSimulated, true)
	}
	return successOutcome(j, []byte(`{"simulated":true}`))
}
