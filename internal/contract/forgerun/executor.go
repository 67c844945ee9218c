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

// An attempt does no work: it waits for the duration of its definition and ends as the kind says
// (FR-116). The pool of package worker claims the job, sends the heartbeats and writes the outcome:
//
//	ASSIGNED ─ Start ─► RUNNING ─ wait ─┬─ longer than the limit   RFA_EXEC_TIMEOUT     FAILED
//	                                    ├─ the kind fails          simulated_failure    FAILED
//	                                    ├─ the output is wrong     output_invalid       FAILED
//	                                    └─ otherwise                                    SUCCEEDED
//
// If the node stops, an attempt that has not finished within the grace is released: before Start
// the job is QUEUED again, after it FAILED with runner_lost (G-X-13). If the node dies, the lease
// expires with the same result (FR-173, FR-175). A cancel ends the attempt, on another node with
// its next heartbeat, and the engine refuses the outcome (FR-135).

// Failures of simulated attempts.
var (
	simulatedFailure = failure{
		code:    codeSimulated,
		message: "the work kind fails by design",
	}
	missingDefinition = failure{
		code:    codeNoDefinition,
		message: errNoDefinition.Error(),
	}
	invalidOutput = failure{
		code:    codeOutput,
		message: "the output of the run is invalid or incomplete",
	}
	runTimeout = failure{
		code:    codeRunTimeout,
		message: "the run took longer than jobs may run",
	}
	runnerPanicked = failure{
		code:      codeRunnerBroken,
		message:   "the runner panicked while the job ran",
		retryable: true,
	}
)

// failureText holds the messages of failures by their codes, for the log.
var failureText = map[string]string{
	simulatedFailure.code:  simulatedFailure.message,
	missingDefinition.code: missingDefinition.message,
	invalidOutput.code:     invalidOutput.message,
	runTimeout.code:        runTimeout.message,
	runnerPanicked.code:    runnerPanicked.message,
	runnerLostFailure.code: runnerLostFailure.message,
}

// outcome returns the outcome of an attempt that failed. The engine counts the failure, and makes
// it a final one when no retry is left (G-FR-08).
func (f failure) outcome() engine.Outcome {
	return engine.Outcome{On: job.Failed, Failure: f.encode(), Reason: f.code}
}

// handler executes jobs for the pool. It is called by many goroutines and has no state of an
// attempt.
type handler struct{ f *ForgeRun }

// Handle implements worker.Handler.
func (h handler) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	return h.f.simulate(ctx, t.Job, func(context.Context) error { return t.Start() })
}

// panicOutcome returns the outcome of an attempt whose handler panicked. The pool has logged the
// panic.
func panicOutcome(*worker.ClaimedJob, any) engine.Outcome { return runnerPanicked.outcome() }

// simulate executes an attempt: it waits as long as the work kind takes, makes an output and ends
// as the kind does (FR-116). If ctx ends, because the node stops or the job was canceled, it
// releases the job at once. start makes the job RUNNING; after its error the run is lost and no
// outcome counts. The limit bounds the wait itself, so a run that is too long ends when the limit
// has passed, not later (FR-180).
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
	if !f.Timer.Wait(ctx, min(length, limit)) {
		return engine.Outcome{On: job.Released, Reason: codeRunnerLost}
	}
	if timesOut { // FR-180
		return runTimeout.outcome()
	}
	if d.shouldFail && (k.outcome != failsFirst || attempt(j) == 0) {
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

// scaleDuration applies duration_scale, which scales simulated work and its limit (G-FR-55). It
// applies to the workers of the process alone.
func (f *ForgeRun) scaleDuration(d time.Duration) time.Duration {
	return time.Duration(float64(d) * f.DurationScale)
}

// checksumSize is the length of the CRC-32 at the end of an output.
const checksumSize = 4

// produce returns an output of the definition's size. The same definition gives the same output.
// The last four bytes of an output are the CRC-32 of the others; the bytes of one without room for
// that are 0.
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

// checkOutput checks the size and the checksum of an output. An output without room for a checksum
// has only its size checked.
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

// outputReceipt returns the size and the checksum of an output, which are stored in its place. The
// API has no route to read an output, so its bytes are not stored.
func outputReceipt(output []byte) []byte {
	o := strictjson.NewObject(nil)
	o.Int("bytes", int64(len(output)))
	o.Int("crc32", int64(crc32.ChecksumIEEE(output)))
	return o.End()
}
