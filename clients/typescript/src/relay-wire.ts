import { timeText } from "./http.js";
import { encode } from "./json.js";
import { checkName, wholeSeconds } from "./path.js";
import { listOf, objectOf, shape, stringOf } from "./shape.js";

/**
 * Decides what happens to a submitted job whose queue and id exist already.
 *
 * - "unique", the default of the server, stores all jobs of the batch or, when one of them exists,
 *   none, with a ConflictError.
 * - "ignore" leaves existing jobs as they are, also in flight, and stores the others.
 * - "replace" gives an existing job the new definition and makes it due again; a run that was in
 *   flight is lost.
 */
export type RelayMode = "unique" | "ignore" | "replace";

/** A job as it is submitted. */
export interface RelaySpec {
  /** Queue and id identify the job together. Each has 1 to 1024 characters, which may be any. */
  queue: string;
  id: string;
  /**
   * How long a run lasts without a heartbeat, in seconds: 0 to 2147483647. It has no default. A run
   * that has failed ends with it too: the job comes back then, and not before. The wire has whole
   * seconds; fractions are rounded up.
   */
  timeout: number;
  /**
   * How often a run may fail or time out before the job is given up, 0 to 32767: the job runs at
   * most maxRetries + 1 times. Without it, or with null, there is no limit.
   */
  maxRetries?: number | null;
  /** Any JSON value. It never changes. Without it the payload is null. */
  payload?: unknown;
  /** Any JSON value from which the first run starts; null for none. */
  state?: unknown;
  /** When the job may first be claimed; without it now. */
  runAt?: Date | string;
  /**
   * Receives a request when the job is completed, given up or deleted. Requests are signed with the
   * secret that `millrace operator secret relay` prints, see {@link verifyWebhook}.
   */
  callbackUrl?: string | null;
}

/** A job as the server has it. It can be enqueued again, which makes an equal job. */
export interface RelayJob<P = any> {
  queue: string;
  id: string;
  /** In seconds. */
  timeout: number;
  maxRetries: number | null;
  /** The payload. Integers that a number cannot hold exactly are bigints. */
  payload: P;
  /** The payload as it was sent, byte for byte. */
  payloadText: string;
  /** The latest stored state; null for none. */
  state: any;
  /** The state as it was sent. */
  stateText: string;
  /** Is reduced by each timeout; null means without limit. */
  retriesRemaining: number | null;
  /** The run id of a job in flight, else null. */
  runId: string | null;
  /** When the job may first be claimed. Times are RFC 3339 texts with microseconds, in UTC. */
  runAt: string;
  /** When the job was last changed or sent a heartbeat. */
  updatedAt: string;
  /** When the job was enqueued or requeued. */
  createdAt: string;
  /** That of its {@link RelaySpec}; null for none. */
  callbackUrl: string | null;
}

/** Identifies one run of a job. Every claim makes a fresh runId. A claimed job is one. */
export interface RelayRun {
  queue: string;
  id: string;
  runId: string;
}

/** A job as it was claimed. */
export type ClaimedRelayJob<P = any> = RelayJob<P> & RelayRun;

/** One heartbeat of {@link Relay.heartbeatAll}. */
export interface RelayHeartbeat extends RelayRun {
  /**
   * Any JSON value, stored as the job's state. Without it the stored one stays; null removes it.
   */
  state?: unknown;
  /**
   * Reports that the run has failed, and why, for operators and dead letters. Its lease is not
   * extended: the job returns when it ends. Without it, or empty, the run goes on.
   */
  error?: string;
  /** The type of the error in up to 255 bytes, for those who count them. */
  errorType?: string;
}

/** The members of jobs that stay texts, besides their values. */
export const relayTexts: ReadonlySet<string> = new Set(["payload", "state"]);

/** Encodes the body of enqueue and requeue. */
export function encodeSpecs(jobs: readonly RelaySpec[]): string {
  return arrayOf(jobs.map((job, i) => inEntry(`job ${i}`, () => encode(specWire(job)))));
}

function specWire(job: RelaySpec): object {
  checkName("queue", job.queue);
  checkName("id", job.id);
  return {
    queue: job.queue,
    id: job.id,
    timeout: wholeSeconds("timeout", job.timeout),
    max_retries: job.maxRetries ?? undefined,
    run_at: job.runAt === undefined ? undefined : timeText("runAt", job.runAt),
    state: job.state ?? undefined,
    callback_url: job.callbackUrl || undefined,
    payload: job.payload ?? null,
  };
}

/** Encodes the entries of completeAll and heartbeatAll. */
export function encodeRuns(entries: readonly RelayHeartbeat[]): string {
  return arrayOf(entries.map((entry, i) => inEntry(`run ${i}`, () => {
    checkName("queue", entry.queue);
    checkName("id", entry.id);
    checkName("run id", entry.runId);
    const { queue, id, runId, state } = entry;
    const error = entry.error || undefined;
    const errorType = error && (entry.errorType || undefined);
    return encode({ queue, id, run_id: runId, state, error, error_type: errorType });
  })));
}

/** Encodes an array whose items are JSON already. */
export function arrayOf(items: readonly string[]): string {
  return `[${items.join(",")}]`;
}

function inEntry<T>(entry: string, fn: () => T): T {
  try {
    return fn();
  } catch (err) {
    throw new TypeError(`${entry}: ${err instanceof Error ? err.message : String(err)}`);
  }
}

const members = shape<RelayJob>({ absent: { maxRetries: null, retriesRemaining: null, payload: null,
  payloadText: "null", state: null, stateText: "null", runId: null,
  callbackUrl: null } });

/** Reads a job of an answer. A member that is missing counts as null. */
export function relayJob<P>(wire: unknown): RelayJob<P> {
  const job = members(wire) as RelayJob<P>;
  if (!job.queue || !job.id) throw new TypeError("a job without queue or id");
  if (!Number.isSafeInteger(job.timeout) || job.timeout < 0) {
    throw new TypeError(`a timeout of ${job.timeout} seconds`);
  }
  return job;
}

/** Reads claimed jobs, each of which must have a run id. */
export function claimedJobs<P>(wire: unknown): ClaimedRelayJob<P>[] {
  return listOf((one) => {
    const job = relayJob<P>(one);
    if (!job.runId) throw new TypeError(`claimed job ${JSON.stringify(job.id)} has no run id`);
    return job as ClaimedRelayJob<P>;
  })(wire);
}

/** Reads the answer to entries, which must be about these in their order. */
export function knownRuns(wire: unknown, entries: readonly RelayRun[]): boolean[] {
  const results = listOf(objectOf)(wire);
  if (results.length !== entries.length) {
    throw new TypeError(`it has ${results.length} entries, not ${entries.length}`);
  }
  return results.map((result, i) => {
    const isAbout = stringOf(result, "id") === entries[i]?.id &&
      stringOf(result, "run_id") === entries[i]?.runId;
    if (!isAbout || typeof result.known !== "boolean") {
      throw new TypeError(`entry ${i} is about another run`);
    }
    return result.known;
  });
}
