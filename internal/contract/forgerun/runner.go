package forgerun

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// Failures of simulated runs.
var (
	simulated   = failure{code: "simulated_failure", message: "the work kind fails by design"}
	noWork      = failure{code: "definition_missing", message: errNoDefinition.Error()}
	badOutput   = failure{code: "output_invalid", message: "the output of the run is invalid or incomplete"}
	tooLong     = failure{code: string(codeTimeout), message: "the run took longer than jobs may run"}
	broken      = failure{code: "runner_broken", message: "the runner broke while the job ran", retryable: true}
	failureText = map[string]string{runnerLost: lost.message, simulated.code: simulated.message, noWork.code: noWork.message,
		badOutput.code: badOutput.message, tooLong.code: tooLong.message, broken.code: broken.message}
)

func (f failure) outcome() engine.Outcome {
	return engine.Outcome{On: job.Failed, Failure: f.encode(), Reason: f.code}
}

// handler runs jobs for the pool.
type handler struct{ f *ForgeRun }

// Handle implements worker.Handler.
func (h handler) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	return h.f.simulate(ctx, t.Job, t.Start)
}

// panicked is how a run ends whose handler panicked.
func panicked(*worker.Task, any) engine.Outcome { return broken.outcome() }

// simulate is a run of a job: it waits as long as the work kind takes, leaves an
// output and ends as the kind does (FR-116). It stops as soon as ctx ends; whoever
// ended it knows what that means for the job.
func (f *ForgeRun) simulate(ctx context.Context, j *job.Job, start func(context.Context) error) engine.Outcome {
	d, missing := decodeDefinition(j.Definition)
	if err := start(ctx); err != nil {
		return engine.Outcome{On: job.Released, Reason: released}
	}
	if missing != nil { // FR-181: by way of RUNNING (G-FR-33)
		return noWork.outcome()
	}
	k := kindByName[d.kind]
	limit := f.scaled(f.MaxRunTime)
	length := f.scaled(time.Duration(d.durationMS) * time.Millisecond)
	long := length > limit || k.ms == overtime
	if !f.wait(ctx, min(length, limit)) {
		return engine.Outcome{On: job.Released, Reason: runnerLost}
	}
	if long { // FR-180
		return tooLong.outcome()
	}
	if d.shouldFail && (k.ends != firstBadly || attempt(j) == 0) {
		why := simulated
		why.retryable = k.retryable
		return why.outcome()
	}
	output := f.produce(&d)
	if err := checkOutput(output, d.payloadSize); err != nil { // FR-184
		return badOutput.outcome()
	}
	return engine.Outcome{On: job.Succeeded, Result: receiptOf(output)}
}

// scaled applies duration_scale, which holds for simulated work and its limit alike
// (G-FR-55).
func (f *ForgeRun) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * f.DurationScale)
}

// wait reports whether d passed before ctx ended.
func (f *ForgeRun) wait(ctx context.Context, d time.Duration) bool {
	passed, stop := f.Timer(d)
	defer stop()
	select {
	case <-passed:
		return true
	case <-ctx.Done():
		return false
	}
}

// realTimer is how time passes outside of tests.
func realTimer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// sumSize is what an output ends with: the checksum of the rest.
const sumSize = 4

// produce makes an output of the size that the definition says, the same for the
// same definition.
func produce(d *definition) []byte {
	output := make([]byte, d.payloadSize)
	random := rand.New(rand.NewPCG(uint64(d.seed), uint64(d.payloadSize)))
	body := output[:max(0, len(output)-sumSize)]
	for i := 0; i+8 <= len(body); i += 8 {
		binary.LittleEndian.PutUint64(body[i:], random.Uint64())
	}
	if len(output) >= sumSize {
		binary.LittleEndian.PutUint32(output[len(body):], crc32.ChecksumIEEE(body))
	}
	return output
}

// checkOutput finds out whether an output is whole.
func checkOutput(output []byte, size int64) error {
	if int64(len(output)) != size {
		return fmt.Errorf("the output has %d bytes of %d", len(output), size)
	}
	if len(output) < sumSize {
		return nil
	}
	body := output[:len(output)-sumSize]
	if binary.LittleEndian.Uint32(output[len(body):]) != crc32.ChecksumIEEE(body) {
		return fmt.Errorf("the checksum of the output is wrong")
	}
	return nil
}

// receiptOf is what is kept of an output: nobody can read one, so its bytes would
// be kept for nothing.
func receiptOf(output []byte) []byte {
	o := jsontext.NewObject(nil)
	o.Number("bytes", int64(len(output)))
	o.Number("crc32", int64(crc32.ChecksumIEEE(output)))
	return o.End()
}
