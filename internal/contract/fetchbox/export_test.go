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
	TaskAlias   = taskAlias
	Succeeded   = succeeded
	FailedWith  = failedWith
	Settled     = settled
)

// MeaningOf is what a kind is in HTTP.
func MeaningOf(k job.Kind) (status int, name string) {
	m, known := meanings[k]
	if !known {
		return 0, "it has no meaning"
	}
	return m.status, string(m.code)
}

// ReadManifest is readManifest, with the text of its error.
func ReadManifest(text []byte, most int) (handler.Manifest, error) { return readManifest(text, most) }

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

// Sweep is sweep, TakeIn runProducers.
func (f *FetchBox) Sweep(ctx context.Context) error { return f.sweep(ctx) }
func (f *FetchBox) TakeIn(ctx context.Context)      { f.runProducers(ctx) }
func (f *FetchBox) Limit(ctx context.Context)       { f.runLimits(ctx) }

// Propose takes a batch of deliveries in as if it came from a stream.
func (f *FetchBox) Propose(ctx context.Context, batch []stream.Delivery) { f.takeIn(ctx, batch) }

// Publishing puts something between FetchBox and the streams.
func (f *FetchBox) Publishing(between func(next func(context.Context, []stream.Message) ([]uint64, error)) func(context.Context, []stream.Message) ([]uint64, error)) {
	f.publish = between(f.publish)
}

// UseType gives a registered job type a handler.
func (f *FetchBox) UseType(name string, h handler.Handler) {
	f.types[name] = &jobType{name: name, handler: h}
}

// StopLive ends what lasts as long as the node.
func (f *FetchBox) StopLive() { f.stopLive() }

// Outcomes of runs, as a fetcher ends them.
func Stored() engine.Outcome { return succeeded([]byte(`{"bytes":1}`)) }

func Broke(code string, retry bool, delay time.Duration) engine.Outcome {
	return failedWith(code, "it broke", retry, delay)
}

// Label is what is known of a task without its message.
func Label(j *job.Job) (jobID, resourceID string) { l := labelOf(j); return l.jobID, l.resourceID }

// Unzip is unzip.
func Unzip(body []byte, limit int64) ([]byte, error) { return unzip(body, limit) }
