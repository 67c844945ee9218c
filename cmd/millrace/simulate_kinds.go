package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/client"
)

// simPlay is what the simulator does with a job of a kind besides submitting it.
type simPlay int

const (
	simPlain      simPlay = iota
	simCancelSoon         // cancel it at once
	simCancelLate         // cancel it while it runs
	simRetryOnce          // retry it when it has failed
	simRetryOn            // retry it until that is refused
	simSameKey            // submit it three times at once under one key
	simOtherKey           // submit it twice under two keys
	simRefused            // see that it is refused
	simDueSoon            // with a time a few seconds ahead
	simDueLate            // with a time after the end of the load
)

// simKind is one row of the catalogue of work kinds, as the requirements have it (FR-083 to FR-114): the simulator
// knows it by itself, so that a server with another catalogue shows.
type simKind struct {
	name   client.ForgeRunKind
	kb     int64
	fails  bool // should_fail
	ends   client.ForgeRunOutcome
	play   simPlay
	manner simManner // of the receiver that its lane has
}

const (
	well  = client.ForgeOutcomeSuccess
	badly = client.ForgeOutcomeFailed
)

var simKinds = []simKind{
	{name: client.ForgeSuccessFast, kb: 4, ends: well},
	{name: client.ForgeSuccessNormal, kb: 16, ends: well},
	{name: client.ForgeSuccessSlow, kb: 32, ends: well},
	{name: client.ForgeFailImmediate, kb: 1, fails: true, ends: badly},
	{name: client.ForgeFailAfterProgress, kb: 8, fails: true, ends: badly},
	{name: client.ForgeFailAfterRetryable, kb: 8, fails: true, ends: badly},
	{name: client.ForgeRunsLong, kb: 32, ends: well},
	{name: client.ForgeRunsOverTimeout, kb: 8, fails: true, ends: badly},
	{name: client.ForgeCPUBurst, kb: 4, ends: well},
	{name: client.ForgeMemorySpike, kb: 64, ends: well},
	{name: client.ForgeIOHeavy, kb: 32, ends: well},
	{name: client.ForgeManySmallOutputs, kb: 16, ends: well},
	{name: client.ForgeLargeOutput, kb: 256, ends: well},
	{name: client.ForgeCancelBeforeStart, kb: 4, ends: well, play: simCancelSoon},
	{name: client.ForgeCancelDuringRun, kb: 4, ends: well, play: simCancelLate},
	{name: client.ForgeRetryOnFail, kb: 4, fails: true, ends: well, play: simRetryOnce},
	{name: client.ForgeRetryLimitReached, kb: 4, fails: true, ends: badly, play: simRetryOn},
	{name: client.ForgeDuplicateSameKey, kb: 4, ends: well, play: simSameKey},
	{name: client.ForgeDuplicateOtherKey, kb: 4, ends: well, play: simOtherKey},
	{name: client.ForgeWebhookSuccess, kb: 4, ends: well},
	{name: client.ForgeWebhookTimeout, kb: 4, ends: well, manner: simStalls},
	{name: client.ForgeWebhook5XX, kb: 4, ends: well, manner: simFails},
	{name: client.ForgeWebhookExhausted, kb: 4, ends: well, manner: simNever},
	{name: client.ForgeWebhookSlowReceiver, kb: 4, ends: well, manner: simSlow},
	{name: client.ForgeScheduledOnTime, kb: 4, ends: well, play: simDueSoon},
	{name: client.ForgeScheduledLate, kb: 4, ends: well, play: simDueSoon},
	{name: client.ForgeScheduledFarFuture, kb: 4, ends: well, play: simDueLate},
	{name: client.ForgePayloadSmall, kb: 1, ends: well},
	{name: client.ForgePayloadMedium, kb: 16, ends: well},
	{name: client.ForgePayloadLarge, kb: 256, ends: well},
	{name: client.ForgePayloadInvalid, play: simRefused},
}

// simMix draws kinds: each once in some order, so that a short simulation has them all, and then by weight.
type simMix struct {
	kinds []*simKind
	upTo  []int // sums of the weights
}

// parseMix reads KIND=WEIGHT,…; a kind may end in * for all that begin so, and without a weight has 1. A later entry
// counts for the kinds it names. "all" is every kind once.
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
			if name == "all" || kind == name || many && strings.HasPrefix(kind, prefix) {
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
			m.kinds, m.upTo = append(m.kinds, &simKinds[i]), append(m.upTo, sum)
		}
	}
	if sum == 0 {
		return nil, usageError("--mix leaves no work kind")
	}
	return m, nil
}

// draws gives a function that draws the next kind.
func (m *simMix) draws(r *rand.Rand) func() *simKind {
	first := r.Perm(len(m.kinds))
	return func() *simKind {
		if len(first) > 0 {
			kind := m.kinds[first[0]]
			first = first[1:]
			return kind
		}
		n := r.IntN(m.upTo[len(m.upTo)-1])
		return m.kinds[slices.IndexFunc(m.upTo, func(upTo int) bool { return n < upTo })]
	}
}
