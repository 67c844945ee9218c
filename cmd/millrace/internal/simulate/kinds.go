package simulate

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// action is what a scenario does besides submitting a job and waiting for its end.
type action int

const (
	actionNone              action = iota
	actionCancelAtOnce             // cancel the job at once
	actionCancelRunning            // cancel the job while it runs
	actionRetryOnce                // retry the job when it has failed
	actionRetryUntilRefused        // retry the job until the server refuses
	actionSameKey                  // submit three times concurrently under one key
	actionTwoKeys                  // submit twice under two keys
	actionExpectRefusal            // expect that the server refuses the job
	actionScheduleNear             // submit with a time a few seconds ahead
	actionScheduleAfterLoad        // submit with a time after the end of the load
)

// workKind is one row of the catalogue of work kinds, with the action of its scenario.
type workKind struct {
	name      client.ForgeRunWorkKind
	payloadKB int64
	// fails is the member should_fail of the definition.
	fails bool
	// outcome is how its jobs end. It is empty if the server refuses them.
	outcome client.ForgeRunOutcome
	action  action
	// behavior is that of a second receiver, which the client of such jobs registers besides the
	// one that accepts every event. With behaviorAccepts there is no second one.
	behavior receiverBehavior
}

const (
	outcomeSuccess = client.ForgeRunOutcomeSuccess
	outcomeFailed  = client.ForgeRunOutcomeFailed
)

// catalogue holds the work kinds as the requirements define them (FR-083 to FR-114). It does not
// use the catalogue of the server, so the audit finds a server whose catalogue is wrong.
var catalogue = []workKind{
	{name: client.ForgeRunWorkSuccessFast, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkSuccessNormal, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkSuccessSlow, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkFailImmediate, payloadKB: 1, fails: true, outcome: outcomeFailed},
	{name: client.ForgeRunWorkFailAfterProgress, payloadKB: 8, fails: true, outcome: outcomeFailed},
	{name: client.ForgeRunWorkFailAfterRetryable, payloadKB: 8, fails: true,
		outcome: outcomeFailed},
	{name: client.ForgeRunWorkRunsLong, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkRunsOverTimeout, payloadKB: 8, fails: true, outcome: outcomeFailed},
	{name: client.ForgeRunWorkCPUBurst, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkMemorySpike, payloadKB: 64, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkIOHeavy, payloadKB: 32, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkManySmallOutputs, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkLargeOutput, payloadKB: 256, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkCancelBeforeStart, payloadKB: 4, outcome: outcomeSuccess,
		action: actionCancelAtOnce},
	{name: client.ForgeRunWorkCancelDuringRun, payloadKB: 4, outcome: outcomeSuccess,
		action: actionCancelRunning},
	{name: client.ForgeRunWorkRetryOnFail, payloadKB: 4, fails: true, outcome: outcomeSuccess,
		action: actionRetryOnce},
	{name: client.ForgeRunWorkRetryLimitReached, payloadKB: 4, fails: true, outcome: outcomeFailed,
		action: actionRetryUntilRefused},
	{name: client.ForgeRunWorkDuplicateSameKey, payloadKB: 4, outcome: outcomeSuccess,
		action: actionSameKey},
	{name: client.ForgeRunWorkDuplicateOtherKey, payloadKB: 4, outcome: outcomeSuccess,
		action: actionTwoKeys},
	{name: client.ForgeRunWorkWebhookSuccess, payloadKB: 4, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkWebhookTimeout, payloadKB: 4, outcome: outcomeSuccess,
		behavior: behaviorStalls},
	{name: client.ForgeRunWorkWebhook5XX, payloadKB: 4, outcome: outcomeSuccess,
		behavior: behaviorFails},
	{name: client.ForgeRunWorkWebhookExhausted, payloadKB: 4, outcome: outcomeSuccess,
		behavior: behaviorNeverAccepts},
	{name: client.ForgeRunWorkWebhookSlowReceiver, payloadKB: 4, outcome: outcomeSuccess,
		behavior: behaviorSlow},
	{name: client.ForgeRunWorkScheduledOnTime, payloadKB: 4, outcome: outcomeSuccess,
		action: actionScheduleNear},
	{name: client.ForgeRunWorkScheduledLate, payloadKB: 4, outcome: outcomeSuccess,
		action: actionScheduleNear},
	{name: client.ForgeRunWorkScheduledFarFuture, payloadKB: 4, outcome: outcomeSuccess,
		action: actionScheduleAfterLoad},
	{name: client.ForgeRunWorkPayloadSmall, payloadKB: 1, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkPayloadMedium, payloadKB: 16, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkPayloadLarge, payloadKB: 256, outcome: outcomeSuccess},
	{name: client.ForgeRunWorkPayloadInvalid, action: actionExpectRefusal},
}

// kindMix draws work kinds. It draws each kind once in a random order first, so that even a short
// simulation has all of them, and then by weight.
type kindMix struct {
	kinds      []*workKind
	cumulative []int // by kind: the sum of the weights up to it
}

// parseMix reads KIND=WEIGHT,… . A kind that ends in * stands for all kinds with that prefix, and
// "all" for every kind. The default of a weight is 1. If several entries match a kind, the last one
// has its weight: "all,WEBHOOK_*=0" is every kind except those of webhooks. A mix without any kind
// is a usage error.
func parseMix(text string) (*kindMix, error) {
	weights := make([]int, len(catalogue))
	for entry := range strings.SplitSeq(text, ",") {
		name, number, weighted := strings.Cut(strings.TrimSpace(entry), "=")
		weight := 1
		if weighted {
			var err error
			if weight, err = strconv.Atoi(number); err != nil || weight < 0 || weight > 1_000_000 {
				return nil, cli.UsageError("--mix: %q has no weight from 0 to 1000000", entry)
			}
		}
		found := false
		prefix, many := strings.CutSuffix(name, "*")
		for i := range catalogue {
			kind := string(catalogue[i].name)
			if name == "all" || kind == name || (many && strings.HasPrefix(kind, prefix)) {
				weights[i], found = weight, true
			}
		}
		if !found {
			return nil, cli.UsageError("--mix: there is no work kind %q", name)
		}
	}
	m := &kindMix{}
	sum := 0
	for i, weight := range weights {
		if weight > 0 {
			sum += weight
			m.kinds, m.cumulative = append(m.kinds, &catalogue[i]), append(m.cumulative, sum)
		}
	}
	if sum == 0 {
		return nil, cli.UsageError("--mix leaves no work kind")
	}
	return m, nil
}

// newDraw returns a function that draws the next kind. The draws depend on r alone.
func (m *kindMix) newDraw(r *rand.Rand) func() *workKind {
	first := r.Perm(len(m.kinds))
	return func() *workKind {
		if len(first) > 0 {
			kind := m.kinds[first[0]]
			first = first[1:]
			return kind
		}
		n := r.IntN(m.cumulative[len(m.cumulative)-1])
		return m.kinds[slices.IndexFunc(m.cumulative, func(upTo int) bool { return n < upTo })]
	}
}
