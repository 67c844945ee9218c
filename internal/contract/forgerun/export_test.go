package forgerun

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Routes lists the table for the comparison with the document.
func Routes() (all []string) {
	for _, r := range new(ForgeRun).routes() {
		all = append(all, r.Method+" "+r.Pattern)
	}
	return all
}

// The tables.
var (
	Machine    = machine
	EventNames = eventNames
	ErrorTable = errorTable
	EventName  = eventName
	EventID    = eventID
)

// CodeOf is the code and status of an error.
func CodeOf(err error) (string, int) {
	a := answerTo(err)
	return a.Code, a.Status
}

// Kind is a row of the catalogue.
type Kind struct {
	Name              string
	Duration          time.Duration
	Size              int64
	Fails, Refused    bool
	Retryable, Chosen bool
	Expected          job.State
}

// Kinds is the catalogue where runs may last limit.
func Kinds(limit time.Duration) (all []Kind) {
	for i := range kinds {
		k := &kinds[i]
		all = append(all, Kind{k.name, k.duration(limit), k.outputKiB << 10, k.fails(),
			k.outcome == rejected, k.retryable, k.choosable, k.expected()})
	}
	return all
}

// Choose is rules.choose.
func Choose(seed int64, failing float64, payloadLimit int64) string {
	return (&definitionRules{failureProbability: failing, payloadLimit: payloadLimit,
		maxRunTime: time.Minute}).choose(seed).name
}

// ParseSubmission reads a submit and holds it against the rules.
func ParseSubmission(body []byte, now time.Time) error {
	s, err := parseSubmission(body)
	if err == nil {
		err = s.check(types, now)
	}
	return err
}

// ParseWebhook is parseWebhook.
func ParseWebhook(body []byte) error { _, err := parseWebhook(body); return err }

// Simulate is ForgeRun.simulate.
func (f *ForgeRun) Simulate(ctx context.Context, j *job.Job,
	start func(context.Context) error) engine.Outcome {
	return f.simulate(ctx, j, start)
}

// CorruptOutputs makes outputs be changed by fn before they are checked.
func (f *ForgeRun) CorruptOutputs(fn func([]byte) []byte) {
	f.produce = func(d *definition) []byte { return fn(produce(d)) }
}

// DecodeFailure reads a failure as it is shown.
func DecodeFailure(raw []byte) (code, message string, retryable bool) {
	f := decodeFailure(raw)
	return f.code, f.message, f.retryable
}

// Definition is decodeDefinition, and what encode makes of it again.
func Definition(raw []byte) (again []byte, err error) {
	d, err := decodeDefinition(raw)
	if err != nil {
		return nil, err
	}
	return d.encode(), nil
}

// NewDefinition is a definition as submit makes it.
func NewDefinition(kind string, at time.Time, callback string, seed int64) []byte {
	d := (&definitionRules{maxRunTime: time.Minute}).define(kindByName[kind], at, callback, seed)
	return d.encode()
}
