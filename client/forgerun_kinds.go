package client

// ForgeRunWorkKind is a scenario of the work-kind catalogue: how long a simulated run takes, how
// much output it makes and how it ends (FR-083 to FR-115).
type ForgeRunWorkKind string

// The kinds of the catalogue.
const (
	// ForgeRunWorkSuccessFast and the kinds after it differ in duration and outcome.
	ForgeRunWorkSuccessFast        ForgeRunWorkKind = "SUCCESS_FAST"
	ForgeRunWorkSuccessNormal      ForgeRunWorkKind = "SUCCESS_NORMAL"
	ForgeRunWorkSuccessSlow        ForgeRunWorkKind = "SUCCESS_SLOW"
	ForgeRunWorkFailImmediate      ForgeRunWorkKind = "FAIL_IMMEDIATE"
	ForgeRunWorkFailAfterProgress  ForgeRunWorkKind = "FAIL_AFTER_PROGRESS"
	ForgeRunWorkFailAfterRetryable ForgeRunWorkKind = "FAIL_AFTER_RETRYABLE" // a retry may help
	ForgeRunWorkRunsLong           ForgeRunWorkKind = "RUNS_LONG"
	// ForgeRunWorkRunsOverTimeout fails with ForgeRunCodeTimeout.
	ForgeRunWorkRunsOverTimeout ForgeRunWorkKind = "RUNS_OVER_TIMEOUT"

	// ForgeRunWorkCPUBurst and the kinds after it use resources.
	ForgeRunWorkCPUBurst         ForgeRunWorkKind = "CPU_BURST"
	ForgeRunWorkMemorySpike      ForgeRunWorkKind = "MEMORY_SPIKE"
	ForgeRunWorkIOHeavy          ForgeRunWorkKind = "IO_HEAVY"
	ForgeRunWorkManySmallOutputs ForgeRunWorkKind = "MANY_SMALL_OUTPUTS"
	ForgeRunWorkLargeOutput      ForgeRunWorkKind = "LARGE_OUTPUT"

	// ForgeRunWorkCancelBeforeStart and ForgeRunWorkCancelDuringRun succeed unless they are
	// canceled.
	ForgeRunWorkCancelBeforeStart ForgeRunWorkKind = "CANCEL_BEFORE_START"
	ForgeRunWorkCancelDuringRun   ForgeRunWorkKind = "CANCEL_DURING_RUN"

	// ForgeRunWorkRetryOnFail fails once and succeeds when it is retried.
	ForgeRunWorkRetryOnFail ForgeRunWorkKind = "RETRY_ON_FAIL"
	// ForgeRunWorkRetryLimitReached fails however often it is retried.
	ForgeRunWorkRetryLimitReached ForgeRunWorkKind = "RETRY_LIMIT_REACHED"

	// ForgeRunWorkDuplicateSameKey and ForgeRunWorkDuplicateOtherKey are for submitting twice.
	ForgeRunWorkDuplicateSameKey  ForgeRunWorkKind = "DUPLICATE_SUBMIT_SAME_KEY"
	ForgeRunWorkDuplicateOtherKey ForgeRunWorkKind = "DUPLICATE_SUBMIT_DIFFERENT_KEY"

	// ForgeRunWorkWebhookSuccess and the kinds after it are for receivers of webhooks.
	ForgeRunWorkWebhookSuccess      ForgeRunWorkKind = "WEBHOOK_SUCCESS"
	ForgeRunWorkWebhookTimeout      ForgeRunWorkKind = "WEBHOOK_TIMEOUT"
	ForgeRunWorkWebhook5XX          ForgeRunWorkKind = "WEBHOOK_5XX"
	ForgeRunWorkWebhookExhausted    ForgeRunWorkKind = "WEBHOOK_RETRIES_EXHAUSTED"
	ForgeRunWorkWebhookSlowReceiver ForgeRunWorkKind = "WEBHOOK_SLOW_RECEIVER"

	// ForgeRunWorkScheduledOnTime and the kinds after it are for jobs with a time.
	ForgeRunWorkScheduledOnTime    ForgeRunWorkKind = "SCHEDULED_ON_TIME"
	ForgeRunWorkScheduledLate      ForgeRunWorkKind = "SCHEDULED_LATE_RECOVERY"
	ForgeRunWorkScheduledFarFuture ForgeRunWorkKind = "SCHEDULED_FAR_FUTURE"

	// ForgeRunWorkPayloadSmall and the kinds after it differ in the size of their payload.
	ForgeRunWorkPayloadSmall   ForgeRunWorkKind = "PAYLOAD_SMALL"
	ForgeRunWorkPayloadMedium  ForgeRunWorkKind = "PAYLOAD_MEDIUM"
	ForgeRunWorkPayloadLarge   ForgeRunWorkKind = "PAYLOAD_LARGE"
	ForgeRunWorkPayloadInvalid ForgeRunWorkKind = "PAYLOAD_INVALID" // refused with 400 (FR-113)
)
