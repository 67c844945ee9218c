import type { Attempt } from "./attempt.js";
import { Batcher, maxBatchedBytes, type BatchResult } from "./batcher.js";
import { DrainTimeoutError, InvalidError, MillraceError, RunCanceledError, RunLostError, textOf }
  from "./error.js";
import { checkResult } from "./handler.js";
import type { CallPolicy } from "./http.js";
import { JobError, Release, causeOf, failureType, truncated } from "./job-error.js";
import { JobRun, type JobHandler } from "./job-run.js";
import { RawJSON, encode } from "./json.js";
import type { Lease, Source } from "./source.js";
import type { WorkerAPI } from "./worker-api.js";
import type { ClaimQuery, ClaimedJob, JobFailure, RunOutcome } from "./worker-api-wire.js";

/** JobSource claims jobs over the worker API and finishes them. */
export class JobSource implements Source {
  readonly #outcomes: Batcher<RunOutcome>;

  /** The handlers are by queue; "" is for all others. */
  constructor(readonly api: WorkerAPI, readonly query: ClaimQuery,
    readonly handlers: ReadonlyMap<string, JobHandler<any>>,
    readonly afterRun: (job: ClaimedJob, reason: Error | undefined) => void) {
    this.#outcomes = new Batcher<RunOutcome>("worker finish",
      (outcome, policy) => this.#finishOne(outcome, policy),
      (outcomes, policy) => this.#finishAll(outcomes, policy));
  }

  async claim(max: number, wait: number,
    signal: AbortSignal): Promise<{ leases: Lease[]; drained: boolean }> {
    const options = { wait, signal, once: true };
    const { jobs, drained } = await this.api.claimFor({ ...this.query, max }, options);
    return { leases: jobs.map((job) => new JobLease(this, job)), drained };
  }

  async idle(): Promise<void> {
    await this.#outcomes.idle();
  }

  /**
   * Sends the outcome of a run, together with others that are ready at the same time. A large
   * outcome goes in a request of its own, and so does one of Images: the server checks the objects
   * that a result names before it accepts it, which takes time that the outcomes of other runs
   * should not wait.
   */
  async finish(outcome: RunOutcome, policy: CallPolicy): Promise<void> {
    const alone = this.query.contract === "images" || sizeOf(outcome) > maxBatchedBytes;
    if (alone) await this.#finishOne(outcome, policy);
    else await this.#outcomes.send(outcome, policy);
  }

  /** Ends a run in a request of its own. */
  async #finishOne({ runId, result, failure, released }: RunOutcome,
    policy: CallPolicy): Promise<void> {
    if (failure) await this.api.fail(runId, failure, policy);
    else if (released) await this.api.release(runId, policy);
    else await this.api.complete(runId, { result, ...policy });
  }

  /**
   * Ends runs in one request. Where the server has refused all of it, each is sent again alone:
   * after an InvalidError to learn which one is wrong, and after another refusal, such as 404 from
   * a server that does not have the route, because later batches would get it too.
   */
  async #finishAll(outcomes: RunOutcome[], policy: CallPolicy): Promise<BatchResult> {
    try {
      const results = await this.api.finish(outcomes, policy);
      return results.map(({ error }) => error ?? undefined);
    } catch (err) {
      if (err instanceof InvalidError) return "singly";
      const refused = err instanceof MillraceError && err.status > 0 && err.status < 500;
      if (refused && !err.retryable) return "noBatches";
      throw err;
    }
  }
}

/** About how many bytes an outcome has on the wire. */
function sizeOf({ result, failure }: RunOutcome): number {
  if (failure) return failure.error.length + (failure.type ?? "").length;
  return result instanceof RawJSON ? result.text.length : 0;
}

/** JobLease is one claimed job. */
class JobLease implements Lease {
  readonly timeout: number;
  readonly logFields: object;
  #result: RawJSON | undefined; // once the handler has succeeded

  constructor(readonly source: JobSource, readonly job: ClaimedJob) {
    const { lease, queue, id, runId, attempt } = job;
    this.timeout = lease;
    this.logFields = { queue, jobId: id, runId, attempt };
  }

  /**
   * Calls the handler of the job's queue. ForgeRun has a state for a claimed job that was not
   * started yet, so its runs are started first.
   */
  async handle(attempt: Attempt): Promise<void> {
    const { handlers, api } = this.source;
    const handler = handlers.get(this.job.queue) ?? handlers.get("");
    if (!handler) throw new Release(`not started: no handler for queue "${this.job.queue}"`);
    if (this.job.contract === "forgerun") await this.#start(attempt);
    const run = new JobRun(this.job, attempt, api);
    const result = await handler(run);
    checkResult(result);
    if (result === undefined) return;
    try {
      this.#result = new RawJSON(encode(result));
    } catch (cause) {
      throw new JobError(`result: ${textOf(cause)}`, { cause, type: "result", final: true });
    }
  }

  async #start(attempt: Attempt): Promise<void> {
    const { signal } = attempt;
    try {
      await attempt.inOrder(signal, () => this.source.api.start(this.job.runId, { signal }));
    } catch (cause) {
      throw new Release(`not started: ${textOf(cause)}`, { cause });
    }
  }

  async heartbeat(state: unknown, policy: CallPolicy): Promise<boolean> {
    const { cancel } = await this.source.api.heartbeat(this.job.runId, { state, ...policy });
    return cancel;
  }

  /**
   * Sends the result. A result that the server refuses becomes a failure. It is final, because the
   * result of another run would have the same form, except in Images: that also refuses a result
   * whose objects it does not find, and another run may store them.
   */
  async complete(policy: CallPolicy): Promise<Error | undefined> {
    const { runId, contract } = this.job;
    try {
      await this.source.finish({ runId, result: this.#result }, policy);
      return undefined;
    } catch (err) {
      if (!(err instanceof InvalidError)) throw err;
      const failure = { error: truncated(`result refused: ${err.message}`), type: "result",
        retryable: contract === "images" };
      await this.source.finish({ runId, failure }, policy);
      return err;
    }
  }

  async release(policy: CallPolicy): Promise<void> {
    await this.source.finish({ runId: this.job.runId, released: true }, policy);
  }

  /**
   * Releases a job whose handler was stopped by the drain of the worker or threw a Release, and
   * reports every other failure.
   */
  async report(failure: unknown, cause: unknown, policy: CallPolicy): Promise<void> {
    const jobError = causeOf(failure, JobError);
    const isFinal = jobError?.final ?? false;
    const isRelease = cause instanceof DrainTimeoutError || causeOf(failure, Release);
    if (isRelease && !isFinal) return await this.release(policy);
    const canceled = cause instanceof RunCanceledError;
    const report: JobFailure = {
      error: truncated(textOf(failure)),
      type: failureType(failure, cause),
      retryable: !isFinal,
    };
    try {
      await this.#fail(report, policy);
    } catch (err) {
      // The server had ended the run when it asked for that.
      if (!(canceled && err instanceof RunLostError)) throw err;
    }
  }

  /** Sends a failure. The type is the handler's own text: if it is refused, it is left out. */
  async #fail(failure: JobFailure, policy: CallPolicy): Promise<void> {
    const { runId } = this.job;
    try {
      await this.source.finish({ runId, failure }, policy);
    } catch (err) {
      if (!(err instanceof InvalidError) || !failure.type) throw err;
      await this.source.finish({ runId, failure: { ...failure, type: "" } }, policy);
    }
  }

  runEnded(reason: Error | undefined): void {
    this.source.afterRun(this.job, reason);
  }
}
