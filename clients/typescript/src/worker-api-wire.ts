import { ConflictError, InvalidError, RunLostError, codeInvalid, codeRunLost,
  type MillraceError } from "./error.js";
import { encode } from "./json.js";
import { checkName } from "./path.js";
import { listOf, objectOf, shape, stringOf } from "./shape.js";

/**
 * The contracts whose jobs workers outside the server can execute. Of "fetchbox" the queues are the
 * job types and the payloads are a {@link FetchBoxTask} each.
 */
export type WorkerContract = "taskflow" | "forgerun" | "images" | "fetchbox";

/** A job as it was claimed: one run of it, under a lease. */
export interface ClaimedJob<P = any> {
  /** The job's id in its contract. */
  id: string;
  contract: string;
  queue: string;
  /** Identifies this run in every later call about it. */
  runId: string;
  /** The number of this attempt of the job, from 1 on. */
  attempt: number;
  /** The job's input, and payloadText is that byte for byte. */
  payload: P;
  payloadText: string;
  /** What an earlier run stored with its heartbeats; null for none. */
  state: any;
  stateText: string;
  /** How long the lease lasts after the claim and after each heartbeat, in seconds. */
  lease: number;
}

/** Selects the jobs of a claim. */
export interface ClaimQuery {
  contract: WorkerContract;
  /** The queues to claim from; without them all that no handler in the server serves. */
  queues?: readonly string[];
  /** The most jobs to claim, up to 1000; 1 without it. */
  max?: number;
  /** Identifies the caller in the server; without it the caller's address does. */
  worker?: string;
}

/** The answer to a heartbeat. */
export interface HeartbeatReply {
  /** When the lease ends now, by the server's clock. */
  leaseUntil: string;
  /** Whether the server asks the run to end. */
  cancel: boolean;
}

/** The report of a run that failed. */
export interface JobFailure {
  /** The explanation. */
  error: string;
  /** Names the kind of failure in up to 255 characters. */
  type?: string;
  /** Another run may succeed. Otherwise the job fails without another attempt. */
  retryable: boolean;
}

/**
 * The outcome of a run for {@link WorkerAPI.finish}: with failure the run failed, with released its
 * job is given back, and with neither it is completed.
 */
export interface RunOutcome {
  runId: string;
  /** The result of a completed run, any JSON value. */
  result?: unknown;
  /** The report of a failed run, as in {@link WorkerAPI.fail}. */
  failure?: JobFailure;
  /** Gives the job back, as {@link WorkerAPI.release} does. */
  released?: boolean;
}

/** The server's answer to one {@link RunOutcome}. */
export interface FinishResult {
  runId: string;
  /** The job's id in its contract; empty with an error. */
  jobId: string;
  /** The job's state now, in the contract's word; empty with an error. */
  status: string;
  /**
   * Why the outcome was not accepted; null if it was. It is the error that a call for this run
   * alone would have had: RunLostError; ConflictError when the job's state forbids the outcome;
   * InvalidError for a result that the contract refuses. After the last two the run continues.
   */
  error: MillraceError | null;
}

/** The members of claimed jobs that stay texts, besides their values. */
export const claimTexts: ReadonlySet<string> = new Set(["payload", "state"]);

const members = shape<ClaimedJob>({ rename: { job_id: "id", lease_seconds: "lease" },
  absent: { payload: null, payloadText: "null", state: null, stateText: "null" } });

/** Reads a claimed job. */
export function claimedJob<P>(wire: unknown): ClaimedJob<P> {
  stringOf(wire, "job_id");
  stringOf(wire, "run_id");
  return members(wire) as ClaimedJob<P>;
}

/** Encodes the failure of a run. */
export function encodeFailure({ error, type, retryable }: JobFailure): string {
  return encode({ error, error_type: type || undefined, retryable });
}

/** Encodes the outcomes of runs. */
export function encodeOutcomes(outcomes: readonly RunOutcome[]): string {
  const items = outcomes.map((outcome, i) => {
    try {
      return encodeOutcome(outcome);
    } catch (err) {
      throw new TypeError(`outcomes[${i}]: ${err instanceof Error ? err.message : String(err)}`);
    }
  });
  return `{"outcomes":[${items.join(",")}]}`;
}

function encodeOutcome({ runId, result, failure, released }: RunOutcome): string {
  checkName("run id", runId);
  if ([result !== undefined, failure !== undefined, released].filter(Boolean).length > 1) {
    throw new TypeError("there is more than one of result, failure and released");
  }
  const id = encode(runId);
  if (failure) return `{"run_id":${id},"fail":${encodeFailure(failure)}}`;
  if (released) return `{"run_id":${id},"release":{}}`;
  return `{"run_id":${id},"complete":${encode({ result })}}`;
}

/** Reads the answer to outcomes, which must be about these in their order. */
export function finishResults(wire: unknown, op: string, outcomes: readonly RunOutcome[],
  uncertain: boolean): FinishResult[] {
  const results = listOf(objectOf)(objectOf(wire).outcomes);
  const isAbout = results.length === outcomes.length &&
    results.every((result, i) => result.run_id === outcomes[i]?.runId);
  if (!isAbout) throw new TypeError("it is about other runs");
  return results.map((result) => ({
    runId: String(result.run_id),
    jobId: String(result.job_id ?? ""),
    status: String(result.status ?? ""),
    error: outcomeError(op, result.code, result.detail, uncertain),
  }));
}

function outcomeError(op: string, code: unknown, detail: unknown,
  uncertain: boolean): MillraceError | null {
  if (typeof code !== "string" || code === "") return null;
  const fields = { op, status: 409, code, detail: String(detail ?? "") };
  if (code === codeRunLost) return new RunLostError({ ...fields, uncertain });
  if (code === codeInvalid) return new InvalidError({ ...fields, status: 400 });
  return new ConflictError(fields);
}
