package forgerun

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// kind is one row of the catalogue of work kinds.
type kind struct {
	name       string
	durationMS int64 // of an attempt; overtime: longer than MaxRunTime
	outputKiB  int64 // size of its output (G-FR-60)
	outcome    outcomeKind
	retryable  bool // whether its failure says that it is retryable (FR-088)
	// choosable kinds may be chosen for a client that names none: they need no second request and
	// no receiver to show what they stand for (G-FR-02).
	choosable bool
}

// outcomeKind is how the attempts of a kind end.
type outcomeKind uint8

const (
	endsSuccessfully outcomeKind = iota
	alwaysFails
	failsFirst // the first attempt fails, those after a retry succeed
	rejected   // there are no attempts: submit refuses the kind
)

// overtime stands for the maximum run time and a second (FR-090).
const overtime = -1

// kinds is the catalogue (FR-083 to FR-113), in the document's order.
var kinds = []kind{
	{name: "SUCCESS_FAST", durationMS: 1_000, outputKiB: 4, choosable: true},
	{name: "SUCCESS_NORMAL", durationMS: 10_000, outputKiB: 16, choosable: true},
	{name: "SUCCESS_SLOW", durationMS: 90_000, outputKiB: 32, choosable: true},
	{name: "FAIL_IMMEDIATE", durationMS: 500, outputKiB: 1, outcome: alwaysFails, choosable: true},
	{name: "FAIL_AFTER_PROGRESS", durationMS: 20_000, outputKiB: 8, outcome: alwaysFails,
		choosable: true},
	{name: "FAIL_AFTER_RETRYABLE", durationMS: 5_000, outputKiB: 8, outcome: alwaysFails,
		retryable: true, choosable: true},
	{name: "RUNS_LONG", durationMS: 110_000, outputKiB: 32, choosable: true},
	{name: "RUNS_OVER_TIMEOUT", durationMS: overtime, outputKiB: 8, outcome: alwaysFails},
	{name: "CPU_BURST", durationMS: 8_000, outputKiB: 4, choosable: true},
	{name: "MEMORY_SPIKE", durationMS: 12_000, outputKiB: 64, choosable: true},
	{name: "IO_HEAVY", durationMS: 15_000, outputKiB: 32, choosable: true},
	{name: "MANY_SMALL_OUTPUTS", durationMS: 9_000, outputKiB: 16, choosable: true},
	{name: "LARGE_OUTPUT", durationMS: 9_000, outputKiB: 256, choosable: true},
	{name: "CANCEL_BEFORE_START", durationMS: 5_000, outputKiB: 4},
	{name: "CANCEL_DURING_RUN", durationMS: 10_000, outputKiB: 4},
	{name: "RETRY_ON_FAIL", durationMS: 3_000, outputKiB: 4, outcome: failsFirst, retryable: true},
	{name: "RETRY_LIMIT_REACHED", durationMS: 3_000, outputKiB: 4, outcome: alwaysFails,
		retryable: true},
	{name: "DUPLICATE_SUBMIT_SAME_KEY", durationMS: 2_000, outputKiB: 4},
	{name: "DUPLICATE_SUBMIT_DIFFERENT_KEY", durationMS: 2_000, outputKiB: 4},
	{name: "WEBHOOK_SUCCESS", durationMS: 2_000, outputKiB: 4},
	{name: "WEBHOOK_TIMEOUT", durationMS: 2_000, outputKiB: 4},
	{name: "WEBHOOK_5XX", durationMS: 2_000, outputKiB: 4},
	{name: "WEBHOOK_RETRIES_EXHAUSTED", durationMS: 2_000, outputKiB: 4},
	{name: "WEBHOOK_SLOW_RECEIVER", durationMS: 2_000, outputKiB: 4},
	{name: "SCHEDULED_ON_TIME", durationMS: 2_000, outputKiB: 4},
	{name: "SCHEDULED_LATE_RECOVERY", durationMS: 2_000, outputKiB: 4},
	{name: "SCHEDULED_FAR_FUTURE", durationMS: 2_000, outputKiB: 4},
	{name: "PAYLOAD_SMALL", durationMS: 2_000, outputKiB: 1, choosable: true},
	{name: "PAYLOAD_MEDIUM", durationMS: 2_000, outputKiB: 16, choosable: true},
	{name: "PAYLOAD_LARGE", durationMS: 2_000, outputKiB: 256, choosable: true},
	{name: "PAYLOAD_INVALID", outcome: rejected},
}

// cancelBeforeStart is the kind that CancelWindow is for (G-FR-32).
const cancelBeforeStart = "CANCEL_BEFORE_START"

// kindByName finds a kind of the catalogue; nil for a name that it does not have.
var kindByName = func() map[string]*kind {
	m := make(map[string]*kind, len(kinds))
	for i := range kinds {
		m[kinds[i].name] = &kinds[i]
	}
	return m
}()

// kindNames lists the kinds for error messages.
var kindNames = func() string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return strings.Join(names, ", ")
}()

// fails reports whether the kind is meant to fail (FR-114).
func (k *kind) fails() bool { return k.outcome == alwaysFails || k.outcome == failsFirst }

// duration returns how long an attempt takes if MaxRunTime is limit.
func (k *kind) duration(limit time.Duration) time.Duration {
	if k.durationMS == overtime {
		return limit + time.Second
	}
	return time.Duration(k.durationMS) * time.Millisecond
}

// expected returns the final state that the kind stands for (FR-117).
func (k *kind) expected() job.State {
	switch k.name {
	case cancelBeforeStart, "CANCEL_DURING_RUN":
		return canceled
	case "RETRY_ON_FAIL":
		return succeeded
	}
	if k.outcome == alwaysFails {
		return failed
	}
	return succeeded
}

// definitionRules are the settings that a definition depends on. They do not change while the
// process runs.
type definitionRules struct {
	maxRunTime         time.Duration
	payloadLimit       int64
	failureProbability float64 // share of failing jobs among chosen kinds (FR-078)
}

// choose picks a kind by a seed, the time of the request in milliseconds: the same seed gives the
// same kind (G-FR-36). It picks only kinds whose output the payload limit allows, so that a request
// without a kind is not refused because of one.
func (r *definitionRules) choose(seed int64) *kind {
	random := rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15))
	wantsFailure := random.Float64() < r.failureProbability
	var candidates []*kind
	for i := range kinds {
		k := &kinds[i]
		if k.choosable && k.fails() == wantsFailure && k.outputKiB<<10 <= r.payloadLimit {
			candidates = append(candidates, k)
		}
	}
	if len(candidates) == 0 {
		return &kinds[0] // no kind fits the limit: submit refuses the job
	}
	return candidates[random.IntN(len(candidates))]
}
