package fetchbox

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
)

// What tests see beside what others do.
var (
	JobMachine  = jobMachine
	TaskMachine = taskMachine
	Statuses    = statuses
	StatusOf    = statusOf
	ErrorTable  = errorTable
	TaskAlias   = taskAlias
	Succeeded   = successOutcome
	FinalCause  = finalCause

	DecodeTask     = decodeTask
	InvalidTask    = invalidTask
	DeadLetterTask = deadLetterTask
	FailedAt       = failedAt
)

// MeaningOf is what a kind is in HTTP.
func MeaningOf(k job.Kind) (status int, name string) {
	a := errorTable.Answer(&job.Error{Kind: k})
	return a.Status, a.Code
}

// ReadManifest is readManifest, with the text of its error.
func ReadManifest(text []byte, limit int) (handler.Manifest, error) {
	return readManifest(text, limit)
}

// Routes are all routes, METHOD PATTERN each.
func Routes() (all []string) {
	f := &FetchBox{}
	for _, table := range [][]httpapi.Route{f.submitRoutes(), f.operatorRoutes()} {
		for _, r := range table {
			all = append(all, r.Method+" "+r.Pattern)
		}
	}
	return all
}

// Sweep is sweep, RunProducers runProducers.
func (f *FetchBox) Sweep(ctx context.Context) error  { return f.sweep(ctx) }
func (f *FetchBox) RunProducers(ctx context.Context) { f.runProducers(ctx) }
func (f *FetchBox) Limit(ctx context.Context)        { f.storeQueueLimits(ctx) }

// Propose takes a batch of deliveries in as if it came from a stream.
func (f *FetchBox) Propose(ctx context.Context, batch []stream.Delivery) {
	f.ingestBatch(ctx, batch)
}

// Publishing puts something between FetchBox and the streams.
func (f *FetchBox) Publishing(between func(next func(context.Context, []stream.Message) ([]uint64,
	error)) func(context.Context, []stream.Message) ([]uint64, error)) {
	f.publish = between(f.publish)
}

// UseType gives a registered job type a handler.
func (f *FetchBox) UseType(name string, h handler.Handler) {
	f.types[name] = &jobType{Type: &Type{}, name: name, handler: h}
}

// StopFollowing ends what lasts as long as the node.
func (f *FetchBox) StopFollowing() { f.stopFollowing() }

// Stored is the outcome of a download that was stored.
func Stored() engine.Outcome { return successOutcome(nil, []byte(`{"bytes":1}`)) }

func BrokenOutcome(code string, retry bool, delay time.Duration) engine.Outcome {
	e := taskError{code: code, message: "it broke", retryable: retry, delay: delay}
	return e.outcome()
}

// Label is what is known of a task without its message.
func Label(j *job.Job) (jobID, resourceID string) {
	l := decodeTaskLabel(j)
	return l.jobID, l.resourceID
}

// Gunzip is gunzip.
func Gunzip(body []byte, limit int64) ([]byte, error) { return gunzip(body, limit) }
