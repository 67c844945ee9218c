package forgerun

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// Failures of simulated runs.
var (
	simulatedFailure  = failure{code: "simulated_failure", message: "the work kind fails by design"}
	missingDefinition = failure{code: "definition_missing", message: errNoDefinition.Error()}
	invalidOutput     = failure{code: "output_invalid",
		message: "the output of the run is invalid or incomplete"}
	runTimeout = failure{code: string(codeTimeout),
		message: "the run took longer than jobs may run"}
	runnerPanicked = failure{code: "runner_broken",
		message: "the runner broke while the job ran", retryable: true}
	failureText = map[string]string{runnerLost: runnerLostFailure.message,
		simulatedFailure.code:  simulatedFailure.message,
		missingDefinition.code: missingDefinition.message,
		invalidOutput.code:     invalidOutput.message, runTimeout.code: runTimeout.message,
		runnerPanicked.code: runnerPanicked.message}
)

func (f failure) outcome() engine.Outcome {
	return engine.Outcome{On: job.Failed, Failure: f.encode(), Reason: f.code}
}

// handler runs jobs for the pool.
type handler struct{ f *ForgeRun }

// Handle implements worker.Handler.
func (h handler) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	return h.f.simulate(ctx, t.Job, func(context.Context) error { return t.Start() })
}

// panicOutcome is how a run ends whose handler panicked.
func panicOutcome(*worker.Task, any) engine.Outcome { return runnerPanicked.outcome() }

// simulate is a run of a job: it waits as long as the work kind takes, leaves an
// output and ends as the kind does (FR-116). It stops as soon as ctx ends; whoever
// ended it knows what that means for the job.
func (f *ForgeRun) simulate(ctx context.Context, j *job.Job,
	start func(context.Context) error) engine.Outcome {
	d, definitionErr := decodeDefinition(j.Definition)
	if err := start(ctx); err != nil {
		return engine.Outcome{On: job.Released, Reason: released}
	}
	if definitionErr != nil { // FR-181: by way of RUNNING (G-FR-33)
		return missingDefinition.outcome()
	}
	k := kindByName[d.kind]
	limit := f.scaleDuration(f.MaxRunTime)
	length := f.scaleDuration(time.Duration(d.durationMS) * time.Millisecond)
	timesOut := length > limit || k.durationMS == overtime
	if !f.sleep(ctx, min(length, limit)) {
		return engine.Outcome{On: job.Released, Reason: runnerLost}
	}
	if timesOut { // FR-180
		return runTimeout.outcome()
	}
	if d.shouldFail && (k.ending != failsFirst || attempt(j) == 0) {
		failed := simulatedFailure
		failed.retryable = k.retryable
		return failed.outcome()
	}
	output := f.produce(&d)
	if err := checkOutput(output, d.payloadSize); err != nil { // FR-184
		return invalidOutput.outcome()
	}
	return engine.Outcome{On: job.Succeeded, Result: outputReceipt(output)}
}

// scaleDuration applies duration_scale, which holds for simulated work and its limit alike
// (G-FR-55).
func (f *ForgeRun) scaleDuration(d time.Duration) time.Duration {
	return time.Duration(float64(d) * f.DurationScale)
}

// wait reports whether d passed before ctx ended.
func (f *ForgeRun) sleep(ctx context.Context, d time.Duration) bool {
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

// checksumSize is what an output ends with: the checksum of the rest.
const checksumSize = 4

// produce makes an output of the size that the definition says, the same for the
// same definition.
func produce(d *definition) []byte {
	output := make([]byte, d.payloadSize)
	random := rand.New(rand.NewPCG(uint64(d.seed), uint64(d.payloadSize)))
	body := output[:max(0, len(output)-checksumSize)]
	for i := 0; i+8 <= len(body); i += 8 {
		binary.LittleEndian.PutUint64(body[i:], random.Uint64())
	}
	if len(output) >= checksumSize {
		binary.LittleEndian.PutUint32(output[len(body):], crc32.ChecksumIEEE(body))
	}
	return output
}

// checkOutput finds out whether an output is whole.
func checkOutput(output []byte, size int64) error {
	if int64(len(output)) != size {
		return fmt.Errorf("the output has %d bytes of %d", len(output), size)
	}
	if len(output) < checksumSize {
		return nil
	}
	body := output[:len(output)-checksumSize]
	if binary.LittleEndian.Uint32(output[len(body):]) != crc32.ChecksumIEEE(body) {
		return fmt.Errorf("the checksum of the output is wrong")
	}
	return nil
}

// outputReceipt is what is kept of an output: nobody can read one, so its bytes would
// be kept for nothing.
func outputReceipt(output []byte) []byte {
	o := strictjson.NewObject(nil)
	o.Int("bytes", int64(len(output)))
	o.Int("crc32", int64(crc32.ChecksumIEEE(output)))
	return o.End()
}
