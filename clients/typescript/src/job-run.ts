import type { CallOptions } from "./abort.js";
import type { Attempt } from "./attempt.js";
import { attached } from "./run.js";
import type { WorkerAPI } from "./worker-api.js";
import type { ClaimedJob } from "./worker-api-wire.js";

/**
 * Executes one run of a job. When it returns, the job is completed and keeps the result, which is
 * any JSON value or undefined. When it throws, the run fails: the contract retries the job by its
 * policy, or not at all if the error is a {@link JobError} that is final. With a {@link Release}
 * the job is released.
 *
 * run.signal is aborted when the run is lost, with a RunLostError as its reason; when the server
 * asks the run to end, with a RunCanceledError; and when the drain timeout of the worker has
 * passed, with a DrainTimeoutError. An error thrown after that releases the job without counting a
 * failure, unless it is final.
 */
export type JobHandler<P = any> = (run: JobRun<P>) => Promise<unknown> | unknown;

/** Wraps a handler, for example to log or trace its runs. */
export type JobMiddleware = (handler: JobHandler<any>) => JobHandler<any>;

/** JobRun is one run of a job, as its handler gets it. */
export class JobRun<P = any> {
  /** The job as it was claimed, with the state that an earlier run has stored. */
  readonly job: ClaimedJob<P>;
  readonly #attempt: Attempt | undefined;
  readonly #api: WorkerAPI | undefined;

  /** A JobRun that is made by hand, as in the test of a handler, has no lease. */
  constructor(job: ClaimedJob<P>);
  /** @internal */
  constructor(job: ClaimedJob<P>, attempt: Attempt, api: WorkerAPI);
  constructor(job: ClaimedJob<P>, attempt?: Attempt, api?: WorkerAPI) {
    this.job = job;
    this.#attempt = attempt;
    this.#api = api;
  }

  /** Is aborted when the handler should end: see {@link JobHandler}. */
  get signal(): AbortSignal {
    return this.#attempt?.signal ?? new AbortController().signal;
  }

  /**
   * Sets a state, any JSON value, to be stored by the next heartbeat. It replaces a state that was
   * not sent yet. The state is also stored when the handler fails. A state that the server refuses
   * is logged and dropped.
   *
   * Errors: InvalidError if the state is not JSON; RunLostError and RunFinishedError once the run
   * has ended.
   */
  setState(state: unknown): void {
    attached(this.#attempt).stage(state);
  }

  /**
   * Stores a state at once, with a heartbeat of its own, and returns when the server has it. After
   * a retryable error the state is sent with the next heartbeat.
   *
   * Errors: those of {@link WorkerAPI.heartbeat}, and of {@link JobRun.setState}.
   */
  async saveState(state: unknown, options: CallOptions = {}): Promise<void> {
    await attached(this.#attempt).save(state, options);
  }

  /**
   * Releases the job and ends the run, without counting an attempt where the contract allows that.
   * What the handler returns is then ignored; it goes on until it returns.
   *
   * Errors: those of {@link WorkerAPI.release}, after which the run continues; RunLostError and
   * RunFinishedError.
   */
  async release(options: CallOptions = {}): Promise<void> {
    await attached(this.#attempt).finish(async (policy) => {
      await this.#api?.release(this.job.runId, policy);
    }, options);
  }

  /**
   * Ends the run by something else than a request of the worker: by a transaction of the handler's
   * own, which records the end of the run with millrace.complete or millrace.fail. end does that
   * and commits. The worker sends nothing about the run while end runs, so that should be short
   * against the lease, and nothing after end has returned. The handler goes on until it returns.
   *
   * Errors: what end throws, after which the run continues; with a RunLostError it is lost.
   * RunLostError and RunFinishedError of a run that had ended before, for which end is not called.
   */
  async finishWith(end: () => Promise<unknown> | unknown, options: CallOptions = {}):
    Promise<void> {
    await attached(this.#attempt).finishWith(end, options);
  }
}
