package inbox

import "context"

// Step claims and submits one batch of requests, and reports whether there may be more.
func (in *Inbox) Step(ctx context.Context) (bool, error) { return in.step(ctx) }

// Lease is how long others leave to a node what it has claimed.
const Lease = lease

// SkipTimeout is how long transactions are left to other nodes that this one cannot submit.
const SkipTimeout = skipTimeout

// MaxRequests bounds what one step reads, and MaxRunningRequests what is submitted at a time.
const (
	MaxRequests        = maxRequests
	MaxRunningRequests = maxRunningRequests
)
