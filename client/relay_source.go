package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// relaySource claims the jobs of one Relay queue.
type relaySource struct {
	relay   *Relay
	queue   string
	handler Handler
}

func (s *relaySource) claim(ctx context.Context, max int, wait time.Duration) ([]lease, error) {
	jobs, err := s.relay.next(ctx, s.queue, max, wait, true)
	if err != nil {
		return nil, err
	}
	leases := make([]lease, len(jobs))
	for i, job := range jobs {
		leases[i] = &relayLease{relay: s.relay, job: job, handler: s.handler}
	}
	return leases, nil
}

// relayLease is one claimed job. Relay has no failure report and no release, so it is neither a
// failureReporter nor a releaser.
type relayLease struct {
	relay   *Relay
	job     RelayJob
	handler Handler
}

func (l *relayLease) timeout() time.Duration { return l.job.Timeout }

func (l *relayLease) logAttrs() []any { return []any{"job_id", l.job.ID, "run_id", l.job.RunID} }

func (l *relayLease) handle(ctx context.Context, a *attempt) error {
	return l.handler(ctx, &Run{Job: l.job, attempt: a, relay: l.relay})
}

func (l *relayLease) heartbeat(ctx context.Context,
	state json.RawMessage) (cancel bool, err error) {
	return false, l.relay.Heartbeat(ctx, l.job.Run(), state)
}

func (l *relayLease) complete(ctx context.Context) error {
	return l.relay.Complete(ctx, l.job.Run())
}

// decodeExact decodes JSON. Numbers become json.Number in members of type any, so that none is
// rounded.
func decodeExact(raw json.RawMessage, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(target)
}
