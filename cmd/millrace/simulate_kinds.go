package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/client"
)

// simAction is what the simulator does with a job of a kind besides submitting it.
type simAction int

const (
	simPlain              simAction = iota
	simCancelAtOnce                 // cancel it at once
	simCancelRunning                // cancel it while it runs
	simRetryOnce                    // retry it when it has failed
	simRetryUntilRefused            // retry it until that is refused
	simSameKey                      // submit it three times at once under one key
	simTwoKeys                      // submit it twice under two keys
	simRefused                      // see that it is refused
	simScheduledSoon                // with a time a few seconds ahead
	simScheduledAfterLoad           // with a time after the end of the load
)

// simKind is one row of the catalogue of work kinds, as the requirements have it (FR-083 to
// FR-114): the simulator knows it by itself, so that a server with another catalogue shows.
type simKind struct {
	name      client.ForgeRunKind
	payloadKB int64
	fails     bool // should_fail
	outcome   client.ForgeRunOutcome
	action    simAction
	behavior  simBehavior // of the receiver that its lane has
}

const (
	outcomeSuccess = client.ForgeOutcomeSuccess
	outcomeFailed  = client.ForgeOutcomeFailed
)

var simKinds = []simKind{
	{name: client.ForgeSuccessFast, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeSuccessNormal, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgeSuccessSlow, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeFailImmediate, payloadKB: 1, fails: true, outcome: outcomeFailed},
	{name: client.ForgeFailAfterProgress, payloadKB: 8, fails: true, outcome: outcomeFailed},
	{name: client.ForgeFailAfterRetryable, payloadKB: 8, fails: true, outcome: outcomeFailed},
	{name: client.ForgeRunsLong, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeRunsOverTimeout, payloadKB: 8, fails: true, outcome: outcomeFailed},
	{name: client.ForgeCPUBurst, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeMemorySpike, payloadKB: 64, outcome: outcomeSuccess},
	{name: client.ForgeIOHeavy, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeManySmallOutputs, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgeLargeOutput, payloadKB: 256, outcome: outcomeSuccess},
	{name: client.ForgeCancelBeforeStart, payloadKB: 4, outcome: outcomeSuccess,
		action: simCancelAtOnce},
	{name: client.ForgeCancelDuringRun, payloadKB: 4, outcome: outcomeSuccess,
		action: simCancelRunning},
	{name: client.ForgeRetryOnFail, payloadKB: 4, fails: true, outcome: outcomeSuccess,
		action: simRetryOnce},
	{name: client.ForgeRetryLimitReached, payloadKB: 4, fails: true, outcome: outcomeFailed,
		action: simRetryUntilRefused},
	{name: client.ForgeDuplicateSameKey, payloadKB: 4, outcome: outcomeSuccess, action: simSameKey},
	{name: client.ForgeDuplicateOtherKey, payloadKB: 4, outcome: outcomeSuccess,
		action: simTwoKeys},
	{name: client.ForgeWebhookSuccess, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeWebhookTimeout, payloadKB: 4, outcome: outcomeSuccess, behavior: simStalls},
	{name: client.ForgeWebhook5XX, payloadKB: 4, outcome: outcomeSuccess, behavior: simFails},
	{name: client.ForgeWebhookExhausted, payloadKB: 4, outcome: outcomeSuccess,
		behavior: simNeverAccepts},
	{name: client.ForgeWebhookSlowReceiver, payloadKB: 4, outcome: outcomeSuccess,
		behavior: simSlow},
	{name: client.ForgeScheduledOnTime, payloadKB: 4, outcome: outcomeSuccess,
		action: simScheduledSoon},
	{name: client.ForgeScheduledLate, payloadKB: 4, outcome: outcomeSuccess,
		action: simScheduledSoon},
	{name: client.ForgeScheduledFarFuture, payloadKB: 4, outcome: outcomeSuccess,
		action: simScheduledAfterLoad},
	{name: client.ForgePayloadSmall, payloadKB: 1, outcome: outcomeSuccess},
	{name: client.ForgePayloadMedium, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgePayloadLarge, payloadKB: 256, outcome: outcomeSuccess},
	{name: client.ForgePayloadInvalid, action: simRefused},
}

// simMix draws kinds: each once in some order, so that a short simulation has them all, and then by
// weight.
type simMix struct {
	kinds      []*simKind
	cumulative []int // sums of the weights
}

// parseMix reads KIND=WEIGHT,…; a kind may end in * for all that begin so, and without a weight has
// 1. A later entry counts for the kinds it names. "all" is every kind once.
func parseMix(text string) (*simMix, error) {
	weights := make([]int, len(simKinds))
	for entry := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(entry), "=")
		weight := 1
		if weighted {
			var err error
			if weight, err = strconv.Atoi(number); err != nil || weight < 0 || weight > 1_000_000 {
				return nil, usageError("--mix: %q has no weight from 0 to 1000000", entry)
			}
		}
		found := false
		prefix, many := strings.CutSuffix(name, "*")
		for i := range simKinds {
			kind := string(simKinds[i].name)
			if name == "all" || kind == name || (many && strings.HasPrefix(kind, prefix)) {
				weights[i], found = weight, true
			}
		}
		if !found {
			return nil, usageError("--mix: there is no work kind %q", name)
		}
	}
	m := &simMix{}
	sum := 0
	for i, weight := range weights {
		if weight > 0 {
			sum += weight
			m.kinds, m.cumulative = append(m.kinds, &simKinds[i]), append(m.cumulative, sum)
		}
	}
	if sum == 0 {
		return nil, usageError("--mix leaves no work kind")
	}
	return m, nil
}

// newDraw gives a function that draws the next kind.
func (m *simMix) newDraw(r *rand.Rand) func() *simKind {
	first := r.Perm(len(m.kinds))
	return func() *simKind {
		if len(first) > 0 {
			kind := m.kinds[first[0]]
			first = first[1:]
			return kind
		}
		n := r.IntN(m.cumulative[len(m.cumulative)-1])
		return m.kinds[slices.IndexFunc(m.cumulative, func(upTo int) bool { return n < upTo })]
	}
}
