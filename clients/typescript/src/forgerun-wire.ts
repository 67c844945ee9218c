import { listOf, shape } from "./shape.js";

/**
 * The type that a job is submitted as: EXECUTE runs at once, or at its time if it has one; DEFERRED
 * must have a time; EMIT_EVENT is for its sequence of events.
 */
export type ForgeRunType = "EXECUTE" | "DEFERRED" | "EMIT_EVENT";

/** The state of a job. Of the final ones, a job can leave only FAILED, by a retry. */
export type ForgeRunState =
  "CREATED" | "QUEUED" | "ASSIGNED" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELED";

/** How a job ended. */
export type ForgeRunOutcome = "SUCCESS" | "FAILED" | "CANCELED";

/** All names of events, of changes of a job's state, in the order of a job's life. */
export const forgeRunEvents = ["job_created", "job_queued", "job_assigned", "job_requeued",
  "job_started", "job_succeeded", "job_failed", "job_canceled"] as const;

/** The name of an event. */
export type ForgeRunEventName = (typeof forgeRunEvents)[number];

/**
 * A scenario of the work-kind catalogue: how long a simulated run takes, how much output it makes
 * and how it ends. Any other text is refused by the server.
 */
export type ForgeRunWorkKind =
  | "SUCCESS_FAST" | "SUCCESS_NORMAL" | "SUCCESS_SLOW" | "FAIL_IMMEDIATE" | "FAIL_AFTER_PROGRESS"
  | "FAIL_AFTER_RETRYABLE" | "RUNS_LONG" | "RUNS_OVER_TIMEOUT" | "CPU_BURST" | "MEMORY_SPIKE"
  | "IO_HEAVY" | "MANY_SMALL_OUTPUTS" | "LARGE_OUTPUT" | "CANCEL_BEFORE_START"
  | "CANCEL_DURING_RUN" | "RETRY_ON_FAIL" | "RETRY_LIMIT_REACHED" | "DUPLICATE_SUBMIT_SAME_KEY"
  | "DUPLICATE_SUBMIT_DIFFERENT_KEY" | "WEBHOOK_SUCCESS" | "WEBHOOK_TIMEOUT" | "WEBHOOK_5XX"
  | "WEBHOOK_RETRIES_EXHAUSTED" | "WEBHOOK_SLOW_RECEIVER" | "SCHEDULED_ON_TIME"
  | "SCHEDULED_LATE_RECOVERY" | "SCHEDULED_FAR_FUTURE" | "PAYLOAD_SMALL" | "PAYLOAD_MEDIUM"
  | "PAYLOAD_LARGE" | "PAYLOAD_INVALID";

/** A job as it is submitted. */
export interface ForgeRunSpec {
  type: ForgeRunType;
  /** The scenario to simulate; without it the server chooses. */
  kind?: ForgeRunWorkKind;
  /**
   * When the job may start, to the microsecond; without it now. A time more than a second in the
   * past is refused.
   */
  executionAt?: Date | string;
  /** An http or https URL that gets every state change of this job. */
  callback?: string;
  /**
   * Makes a submit repeatable as long as its job exists: the same key with the same content returns
   * the same job, with other content it is refused. Without it a random one is used.
   */
  idempotencyKey?: string;
}

/** The answer to a submitted job, which the server has stored durably. */
export interface ForgeRunReceipt {
  /** A UUID. */
  jobId: string;
  /**
   * CREATED for a new job, and the present state of a job that was submitted before under the same
   * key.
   */
  state: ForgeRunState;
  createdAt: string;
  /** The key that was sent. */
  idempotencyKey: string;
}

/** The run that the server simulates. */
export interface ForgeRunDefinition {
  kind: ForgeRunWorkKind;
  /** How long a run takes, in milliseconds. */
  durationMs: number;
  /** Whether the first run fails. */
  shouldFail: boolean;
  /** In bytes. */
  payloadSize: number;
  /** Set for scheduled jobs. */
  executionAt: string | null;
  /**
   * The time of the request in milliseconds since 1970. Values that the request left open were
   * drawn from it.
   */
  seed: number | bigint;
}

/** Why a job failed. */
export interface ForgeRunFailure {
  /** RFA_EXEC_TIMEOUT for a run that took too long, or another code such as "runner_lost". */
  code: string;
  message: string;
  /** Whether a retry may help. */
  retryable: boolean;
}

/** A job as the server has it. */
export interface ForgeRunJob {
  id: string;
  type: ForgeRunType;
  kind: ForgeRunWorkKind;
  state: ForgeRunState;
  /** Null until the state is final, and again while a retry runs. */
  outcome: ForgeRunOutcome | null;
  createdAt: string;
  updatedAt: string;
  /** 0 for the first run. */
  attempt: number;
  definition: ForgeRunDefinition | null;
  /** Null for a job without a time. */
  executionAt: string | null;
  /** Null for a job without one. */
  callback: string | null;
  /** Null unless the last run failed. */
  failure: ForgeRunFailure | null;
}

/** One state change of a job, in its report. */
export interface ForgeRunEvent {
  /** A UUID: the webhook-id of the deliveries of the event. */
  id: string;
  jobId: string;
  name: ForgeRunEventName;
  /** Null for the first event. */
  prev: ForgeRunState | null;
  next: ForgeRunState;
  /** Strictly increases within a job. */
  at: string;
  scenario: ForgeRunWorkKind;
  /**
   * Set where the name does not say why: "lease_expired" or "released" of a requeued job,
   * "runner_lost", a timeout.
   */
  reason: string | null;
  /** Whether this failure used up the retries. */
  final: boolean;
}

/** The history of a job that has finished. */
export interface ForgeRunReport {
  jobId: string;
  outcome: ForgeRunOutcome;
  /** Those of all attempts, in order. */
  events: ForgeRunEvent[];
  /** When the last run started; null for a job canceled before it started. */
  startedAt: string | null;
  finishedAt: string;
  /** From startedAt to finishedAt in milliseconds. */
  durationMs: number;
  attempt: number;
  kind: ForgeRunWorkKind;
  failure: ForgeRunFailure | null;
}

/** The answer to a cancel or a retry. */
export interface ForgeRunActionResult {
  jobId: string;
  state: ForgeRunState;
  updatedAt: string;
  /** Of a retry only. */
  attempt?: number;
}

/** An API key as the server lists it, without its secret. */
export interface ForgeRunAPIKey {
  /** Identifies the key, for {@link ForgeRun.revokeApiKey}; it is no secret. */
  id: string;
  createdAt: string;
  /** Null for a key that does not expire. */
  expiresAt: string | null;
  /** When the key was revoked, renewed or rotated. Only {@link ForgeRun.apiKeys} sets it. */
  revokedAt: string | null;
}

/** The answer to creating or renewing a key. */
export interface ForgeRunIssuedAPIKey extends ForgeRunAPIKey {
  /**
   * The secret, for {@link ForgeRun.withApiKey} or the client's token. The server shows it once; it
   * is null when the key existed already.
   */
  apiKey: string | null;
  /**
   * Signs the requests to the callbacks of the client's jobs, see {@link verifyWebhook}. Only the
   * answer with the first key has it.
   */
  callbackSecret: string | null;
}

/** A subscription: a URL that gets the events of all jobs of a client. */
export interface ForgeRunWebhook {
  /** A UUID. */
  id: string;
  url: string;
  events: ForgeRunEventName[];
  /** Events before it are not delivered. */
  createdAt: string;
  /**
   * Whether the server has stopped deliveries to the URL, for the disabledReason.
   * {@link ForgeRun.enableWebhook} resumes them.
   */
  disabled: boolean;
  disabledReason: string | null;
}

/** The answer to a new webhook. */
export interface ForgeRunCreatedWebhook {
  id: string;
  createdAt: string;
  url: string;
  events: ForgeRunEventName[];
  /**
   * Signs the requests to the webhook ("whsec_…"), see {@link verifyWebhook}. The server shows it
   * once; it is null when the same idempotency key had registered the webhook before.
   * {@link ForgeRun.rotateWebhookSecret} makes another.
   */
  secret: string | null;
}

/** The status of a delivery; exhausted is given up. */
export type ForgeRunDeliveryStatus = "pending" | "delivered" | "exhausted";

/** The delivery of one event to one webhook. */
export interface ForgeRunDelivery {
  id: string;
  eventId: string;
  eventName: ForgeRunEventName;
  url: string;
  status: ForgeRunDeliveryStatus;
  attempts: ForgeRunDeliveryAttempt[];
  /** When the next request is due; null when none is. */
  nextAttemptAt: string | null;
}

/** One request of a delivery. */
export interface ForgeRunDeliveryAttempt {
  at: string;
  /** The status of the answer; null when none came, see error. */
  statusCode: number | null;
  error: string | null;
  durationMs: number;
  /** The beginning of the answer's body, at most 4 KiB; null where there was none. */
  response: string | null;
}

/** What came back from a test of a webhook. Without an error the receiver has accepted it. */
export interface ForgeRunWebhookTest extends ForgeRunDeliveryAttempt {
  /** The event, as the header webhook-id had it. */
  eventId: string;
}

/** Selects deliveries to make once more. */
export interface ForgeRunDeliveryReplayFilter {
  /** Bound when the deliveries were made, inclusive and exclusive. */
  from?: Date | string;
  to?: Date | string;
  /** "exhausted", which is the default, or "delivered". */
  status?: ForgeRunDeliveryStatus;
}

/** What a replay has done. */
export interface ForgeRunDeliveryReplayResult {
  /** Deliveries that were stored, and are made in the background. */
  replayed: number;
  /** Deliveries that had been replayed before. */
  skipped: number;
}

const definition = shape<ForgeRunDefinition>({ rename: { work_kind: "kind" },
  absent: { executionAt: null } });

/** Reads a receipt, without its idempotency key. */
export const forgeRunReceipt = shape<Omit<ForgeRunReceipt, "idempotencyKey">>();

/** Reads a job. */
export const forgeRunJob = shape<ForgeRunJob>({ rename: { job_id: "id", work_kind: "kind" },
  read: { definition } });

/** Reads a report. */
export const forgeRunReport = shape<ForgeRunReport>({ rename: { work_kind: "kind" }, read: {
  events: listOf(shape<ForgeRunEvent>({
    rename: { event_id: "id", event_name: "name", prev_state: "prev", next_state: "next",
      timestamp: "at" },
    absent: { reason: null, final: false },
  })),
} });

/** Reads the answer to a cancel or a retry. */
export const forgeRunActionResult = shape<ForgeRunActionResult>();

/** Reads a key. */
export const forgeRunAPIKey = shape<ForgeRunAPIKey>({ rename: { key_id: "id" } });

/** Reads a key that was issued. */
export const forgeRunIssuedAPIKey = shape<ForgeRunIssuedAPIKey>({ rename: { key_id: "id" },
  absent: { revokedAt: null, callbackSecret: null } });

/** Reads a webhook. */
export const forgeRunWebhook = shape<ForgeRunWebhook>({ rename: { webhook_id: "id" } });

/** Reads the answer to a new webhook. */
export const forgeRunCreatedWebhook = shape<ForgeRunCreatedWebhook>({
  rename: { webhook_id: "id" },
});

/** Reads a delivery. */
export const forgeRunDelivery = shape<ForgeRunDelivery>({
  rename: { delivery_id: "id", tries: "attempts", next_try_at: "nextAttemptAt" },
  read: { tries: listOf(shape<ForgeRunDeliveryAttempt>()) } });

/** Reads what came back from a test. */
export const forgeRunWebhookTest = shape<ForgeRunWebhookTest>();
