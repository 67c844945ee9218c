package client

// ForgeRunKind is a scenario of the work-kind catalogue: how long a simulated run takes, how much
// output it makes and how it ends (FR-083 to FR-115).
type ForgeRunKind string

// The kinds of the catalogue.
const (
	// ForgeSuccessFast and the kinds after it differ in duration and outcome.
	ForgeSuccessFast        ForgeRunKind = "SUCCESS_FAST"
	ForgeSuccessNormal      ForgeRunKind = "SUCCESS_NORMAL"
	ForgeSuccessSlow        ForgeRunKind = "SUCCESS_SLOW"
	ForgeFailImmediate      ForgeRunKind = "FAIL_IMMEDIATE"
	ForgeFailAfterProgress  ForgeRunKind = "FAIL_AFTER_PROGRESS"
	ForgeFailAfterRetryable ForgeRunKind = "FAIL_AFTER_RETRYABLE" // a retry may help
	ForgeRunsLong           ForgeRunKind = "RUNS_LONG"
	ForgeRunsOverTimeout    ForgeRunKind = "RUNS_OVER_TIMEOUT" // fails with ForgeTimeout

	// ForgeCPUBurst and the kinds after it use resources.
	ForgeCPUBurst         ForgeRunKind = "CPU_BURST"
	ForgeMemorySpike      ForgeRunKind = "MEMORY_SPIKE"
	ForgeIOHeavy          ForgeRunKind = "IO_HEAVY"
	ForgeManySmallOutputs ForgeRunKind = "MANY_SMALL_OUTPUTS"
	ForgeLargeOutput      ForgeRunKind = "LARGE_OUTPUT"

	// ForgeCancelBeforeStart and ForgeCancelDuringRun succeed unless they are canceled.
	ForgeCancelBeforeStart ForgeRunKind = "CANCEL_BEFORE_START"
	ForgeCancelDuringRun   ForgeRunKind = "CANCEL_DURING_RUN"

	// ForgeRetryOnFail fails once and succeeds when it is retried.
	ForgeRetryOnFail ForgeRunKind = "RETRY_ON_FAIL"
	// ForgeRetryLimitReached fails however often it is retried.
	ForgeRetryLimitReached ForgeRunKind = "RETRY_LIMIT_REACHED"

	// ForgeDuplicateSameKey and ForgeDuplicateOtherKey are for submitting twice.
	ForgeDuplicateSameKey  ForgeRunKind = "DUPLICATE_SUBMIT_SAME_KEY"
	ForgeDuplicateOtherKey ForgeRunKind = "DUPLICATE_SUBMIT_DIFFERENT_KEY"

	// ForgeWebhookSuccess and the kinds after it are for receivers of webhooks.
	ForgeWebhookSuccess      ForgeRunKind = "WEBHOOK_SUCCESS"
	ForgeWebhookTimeout      ForgeRunKind = "WEBHOOK_TIMEOUT"
	ForgeWebhook5XX          ForgeRunKind = "WEBHOOK_5XX"
	ForgeWebhookExhausted    ForgeRunKind = "WEBHOOK_RETRIES_EXHAUSTED"
	ForgeWebhookSlowReceiver ForgeRunKind = "WEBHOOK_SLOW_RECEIVER"

	// ForgeScheduledOnTime and the kinds after it are for jobs with a time.
	ForgeScheduledOnTime    ForgeRunKind = "SCHEDULED_ON_TIME"
	ForgeScheduledLate      ForgeRunKind = "SCHEDULED_LATE_RECOVERY"
	ForgeScheduledFarFuture ForgeRunKind = "SCHEDULED_FAR_FUTURE"

	// ForgePayloadSmall and the kinds after it differ in the size of their payload.
	ForgePayloadSmall   ForgeRunKind = "PAYLOAD_SMALL"
	ForgePayloadMedium  ForgeRunKind = "PAYLOAD_MEDIUM"
	ForgePayloadLarge   ForgeRunKind = "PAYLOAD_LARGE"
	ForgePayloadInvalid ForgeRunKind = "PAYLOAD_INVALID" // refused with 400 (FR-113)
)
