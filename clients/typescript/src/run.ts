import type { CallOptions } from "./abort.js";
import type { Attempt } from "./attempt.js";
import { invalid } from "./error.js";
import type { EnqueueOptions, Relay } from "./relay.js";
import type { ClaimedRelayJob, RelaySpec } from "./relay-wire.js";

/**
 * Executes one run of a job. It is a plain or an async function: a generator is refused. When it
 * returns the job is completed. When it throws, the job returns to its queue after its timeout, and
 * operators and its dead letter have the error.
 *
 * run.signal is aborted when the run is lost, with a RunLostError as its reason, and when the drain
 * timeout of the worker has passed, with a DrainTimeoutError. After a loss another worker may
 * already have the job, and the result of the handler is ignored.
 */
export type Handler<P = any> = (run: Run<P>) => Promise<unknown> | unknown;

/** Wraps a handler, for example to log or trace its runs. */
export type Middleware<P = any> = (handler: Handler<P>) => Handler<P>;

/** Run is one run of a job, as its handler gets it. */
export class Run<P = any> {
  /** The job as it was claimed, with the state that an earlier run has stored. */
  readonly job: ClaimedRelayJob<P>;
  readonly #attempt: Attempt | undefined;
  readonly #relay: Relay | undefined;

  /** A Run that is made by hand, as in the test of a handler, has no lease. */
  constructor(job: ClaimedRelayJob<P>);
  /** @internal */
  constructor(job: ClaimedRelayJob<P>, attempt: Attempt, relay: Relay);
  constructor(job: ClaimedRelayJob<P>, attempt?: Attempt, relay?: Relay) {
    this.job = job;
    this.#attempt = attempt;
    this.#relay = relay;
  }

  /** Is aborted when the handler should end: see {@link Handler}. */
  get signal(): AbortSignal {
    return this.#attempt?.signal ?? new AbortController().signal;
  }

  /**
   * Sets a state, any JSON value, to be stored by the next heartbeat. It replaces a state that was
   * not sent yet. The state is also stored when the handler fails, but not when it succeeds, as the
   * job is removed then. A state that the server refuses is logged and dropped.
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
   * Errors: those of {@link Relay.heartbeat}, and of {@link Run.setState}.
   */
  async saveState(state: unknown, options: CallOptions = {}): Promise<void> {
    await attached(this.#attempt).save(state, options);
  }

  /**
   * Replaces this job by others and ends the run. The worker will not complete it; the handler goes
   * on until it returns. To run the same job again later, pass run.job with another runAt.
   *
   * Errors: those of {@link Relay.requeue}, after which the run continues; RunLostError, also when
   * the answer says that the run is lost, so that nothing was stored; RunFinishedError.
   */
  async requeue(jobs: RelaySpec | readonly RelaySpec[],
    options: EnqueueOptions = {}): Promise<void> {
    const list: readonly RelaySpec[] = "queue" in jobs ? [jobs] : jobs;
    const relay = this.#relay;
    await attached(this.#attempt).finish(async (policy) => {
      const lost = await relay?.requeueOf(this.job, list, { ...options, ...policy });
      if (lost && !lost.uncertain) throw lost; // else an earlier try has requeued it
    }, options);
  }

  /**
   * Ends the run by something else than a request of the worker: by a transaction of the handler's
   * own, which records the end of the run with millrace.complete or millrace.fail. end does that
   * and commits. The worker sends nothing about the run while end runs, so that should be short
   * against the job's timeout, and nothing after end has returned. The handler goes on until it
   * returns.
   *
   * Errors: what end throws, after which the run continues; with a RunLostError it is lost.
   * RunLostError and RunFinishedError of a run that had ended before, for which end is not called.
   */
  async finishWith(end: () => Promise<unknown> | unknown, options: CallOptions = {}):
    Promise<void> {
    await attached(this.#attempt).finishWith(end, options);
  }
}

/** @internal Refuses a call for a run that no worker has claimed. */
export function attached(attempt: Attempt | undefined): Attempt {
  if (!attempt) throw invalid("run", "not claimed by a worker");
  return attempt;
}
