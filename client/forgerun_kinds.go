package client

// ForgeRunKind is a scenario of the work-kind catalogue: how long a simulated
// run takes, how much it puts out and how it ends (FR-083 to FR-115).
type ForgeRunKind string

// The kinds, with the outcome they are made for.
const (
	ForgeSuccessFast       ForgeRunKind = "SUCCESS_FAST"
	ForgeSuccessNormal     ForgeRunKind = "SUCCESS_NORMAL"
	ForgeSuccessSlow       ForgeRunKind = "SUCCESS_SLOW"
	ForgeFailImmediate     ForgeRunKind = "FAIL_IMMEDIATE"
	ForgeFailAfterProgress ForgeRunKind = "FAIL_AFTER_PROGRESS"
	// fails and says that a retry may help
	ForgeFailAfterRetryable ForgeRunKind = "FAIL_AFTER_RETRYABLE"
	ForgeRunsLong           ForgeRunKind = "RUNS_LONG"
	ForgeRunsOverTimeout    ForgeRunKind = "RUNS_OVER_TIMEOUT" // fails with ForgeTimeout
	ForgeCPUBurst           ForgeRunKind = "CPU_BURST"
	ForgeMemorySpike        ForgeRunKind = "MEMORY_SPIKE"
	ForgeIOHeavy            ForgeRunKind = "IO_HEAVY"
	ForgeManySmallOutputs   ForgeRunKind = "MANY_SMALL_OUTPUTS"
	ForgeLargeOutput        ForgeRunKind = "LARGE_OUTPUT"
	ForgeCancelBeforeStart  ForgeRunKind = "CANCEL_BEFORE_START" // succeeds unless it is canceled
	ForgeCancelDuringRun    ForgeRunKind = "CANCEL_DURING_RUN"   // succeeds unless it is canceled
	// fails once, succeeds when retried
	ForgeRetryOnFail ForgeRunKind = "RETRY_ON_FAIL"
	// fails however often it is retried
	ForgeRetryLimitReached   ForgeRunKind = "RETRY_LIMIT_REACHED"
	ForgeDuplicateSameKey    ForgeRunKind = "DUPLICATE_SUBMIT_SAME_KEY"
	ForgeDuplicateOtherKey   ForgeRunKind = "DUPLICATE_SUBMIT_DIFFERENT_KEY"
	ForgeWebhookSuccess      ForgeRunKind = "WEBHOOK_SUCCESS"
	ForgeWebhookTimeout      ForgeRunKind = "WEBHOOK_TIMEOUT"
	ForgeWebhook5XX          ForgeRunKind = "WEBHOOK_5XX"
	ForgeWebhookExhausted    ForgeRunKind = "WEBHOOK_RETRIES_EXHAUSTED"
	ForgeWebhookSlowReceiver ForgeRunKind = "WEBHOOK_SLOW_RECEIVER"
	ForgeScheduledOnTime     ForgeRunKind = "SCHEDULED_ON_TIME"
	ForgeScheduledLate       ForgeRunKind = "SCHEDULED_LATE_RECOVERY"
	ForgeScheduledFarFuture  ForgeRunKind = "SCHEDULED_FAR_FUTURE"
	ForgePayloadSmall        ForgeRunKind = "PAYLOAD_SMALL"
	ForgePayloadMedium       ForgeRunKind = "PAYLOAD_MEDIUM"
	ForgePayloadLarge        ForgeRunKind = "PAYLOAD_LARGE"
	// refused with ForgeValidationFailed (FR-113)
	ForgePayloadInvalid ForgeRunKind = "PAYLOAD_INVALID"
)
