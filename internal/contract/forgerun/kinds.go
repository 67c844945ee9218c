package forgerun

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// kind is one row of the catalogue of work kinds: how long a job of it runs,
// what it leaves, how it ends.
type kind struct {
	name string
	ms   int64 // how long it runs; overtime stands for longer than is allowed
	kib  int64 // size of its output (G-FR-60)
	ends ending
	// retryable is what its failure says of itself (FR-088).
	retryable bool
	// alone says that the kind shows what it is for without anybody doing
	// anything, so that it may be chosen for a client that names none (G-FR-02).
	alone bool
}

// ending is how a kind's runs end.
type ending uint8

const (
	well       ending = iota
	badly             // each of them
	firstBadly        // the first; those after a retry end well
	refused           // there is none: it is turned down at submit
)

// overtime stands for the maximum run time and a second (FR-090).
const overtime = -1

// kinds is the catalogue (FR-083 to FR-113), in the document's order.
var kinds = []kind{
	{name: "SUCCESS_FAST", ms: 1_000, kib: 4, alone: true},
	{name: "SUCCESS_NORMAL", ms: 10_000, kib: 16, alone: true},
	{name: "SUCCESS_SLOW", ms: 90_000, kib: 32, alone: true},
	{name: "FAIL_IMMEDIATE", ms: 500, kib: 1, ends: badly, alone: true},
	{name: "FAIL_AFTER_PROGRESS", ms: 20_000, kib: 8, ends: badly, alone: true},
	{name: "FAIL_AFTER_RETRYABLE", ms: 5_000, kib: 8, ends: badly, retryable: true, alone: true},
	{name: "RUNS_LONG", ms: 110_000, kib: 32, alone: true},
	{name: "RUNS_OVER_TIMEOUT", ms: overtime, kib: 8, ends: badly},
	{name: "CPU_BURST", ms: 8_000, kib: 4, alone: true},
	{name: "MEMORY_SPIKE", ms: 12_000, kib: 64, alone: true},
	{name: "IO_HEAVY", ms: 15_000, kib: 32, alone: true},
	{name: "MANY_SMALL_OUTPUTS", ms: 9_000, kib: 16, alone: true},
	{name: "LARGE_OUTPUT", ms: 9_000, kib: 256, alone: true},
	{name: "CANCEL_BEFORE_START", ms: 5_000, kib: 4},
	{name: "CANCEL_DURING_RUN", ms: 10_000, kib: 4},
	{name: "RETRY_ON_FAIL", ms: 3_000, kib: 4, ends: firstBadly, retryable: true},
	{name: "RETRY_LIMIT_REACHED", ms: 3_000, kib: 4, ends: badly, retryable: true},
	{name: "DUPLICATE_SUBMIT_SAME_KEY", ms: 2_000, kib: 4},
	{name: "DUPLICATE_SUBMIT_DIFFERENT_KEY", ms: 2_000, kib: 4},
	{name: "WEBHOOK_SUCCESS", ms: 2_000, kib: 4},
	{name: "WEBHOOK_TIMEOUT", ms: 2_000, kib: 4},
	{name: "WEBHOOK_5XX", ms: 2_000, kib: 4},
	{name: "WEBHOOK_RETRIES_EXHAUSTED", ms: 2_000, kib: 4},
	{name: "WEBHOOK_SLOW_RECEIVER", ms: 2_000, kib: 4},
	{name: "SCHEDULED_ON_TIME", ms: 2_000, kib: 4},
	{name: "SCHEDULED_LATE_RECOVERY", ms: 2_000, kib: 4},
	{name: "SCHEDULED_FAR_FUTURE", ms: 2_000, kib: 4},
	{name: "PAYLOAD_SMALL", ms: 2_000, kib: 1, alone: true},
	{name: "PAYLOAD_MEDIUM", ms: 2_000, kib: 16, alone: true},
	{name: "PAYLOAD_LARGE", ms: 2_000, kib: 256, alone: true},
	{name: "PAYLOAD_INVALID", ends: refused},
}

const cancelBeforeStart = "CANCEL_BEFORE_START"

var kindByName = func() map[string]*kind {
	m := make(map[string]*kind, len(kinds))
	for i := range kinds {
		m[kinds[i].name] = &kinds[i]
	}
	return m
}()

// kindNames are those that may be asked for, for whoever asked for another.
var kindNames = func() string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return strings.Join(names, ", ")
}()

// fails reports whether the kind is meant to fail (FR-114).
func (k *kind) fails() bool { return k.ends == badly || k.ends == firstBadly }

// duration is how long a run lasts where runs may last limit.
func (k *kind) duration(limit time.Duration) time.Duration {
	if k.ms == overtime {
		return limit + time.Second
	}
	return time.Duration(k.ms) * time.Millisecond
}

// expected is the state that the kind leads to when nobody interferes (FR-117).
func (k *kind) expected() job.State {
	switch k.name {
	case cancelBeforeStart, "CANCEL_DURING_RUN":
		return canceled
	case "RETRY_ON_FAIL":
		return succeeded
	}
	if k.ends == badly {
		return failed
	}
	return succeeded
}

// rules are the settings that a definition depends on.
type rules struct {
	maxRunTime   time.Duration
	payloadLimit int64
	failing      float64 // share of failing jobs among chosen kinds (FR-078)
}

// choose picks a kind by the time of the request in milliseconds, its seed: the
// same time gives the same kind (G-FR-36). Only kinds whose output the payload
// limit allows are chosen, so that a request without a kind is never refused for
// one.
func (r *rules) choose(seed int64) *kind {
	random := rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15))
	wantsFailure := random.Float64() < r.failing
	var fitting []*kind
	for i := range kinds {
		k := &kinds[i]
		if k.alone && k.fails() == wantsFailure && k.kib<<10 <= r.payloadLimit {
			fitting = append(fitting, k)
		}
	}
	if len(fitting) == 0 {
		return &kinds[0] // a limit that no kind fits: submit says so
	}
	return fitting[random.IntN(len(fitting))]
}
