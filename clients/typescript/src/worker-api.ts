import type { CallOptions } from "./abort.js";
import { checked, policyOf, type Call, type CallPolicy, type Http } from "./http.js";
import { encode } from "./json.js";
import { checkSegment, pathOf, wholeSeconds } from "./path.js";
import { listOf, objectOf, shape } from "./shape.js";
import { claimTexts, claimedJob, encodeFailure, encodeOutcomes, finishResults, type ClaimQuery,
  type ClaimedJob, type FinishResult, type HeartbeatReply, type JobFailure, type RunOutcome,
  type WorkerContract } from "./worker-api-wire.js";

const heartbeatReply = shape<HeartbeatReply>();

/**
 * WorkerAPI is the worker API, by which programs outside the server execute the jobs of any
 * contract but Relay. A run goes through these calls:
 *
 *     claim, claimJob ──▶ start (ForgeRun only) ──▶ heartbeat … ──▶ complete, fail or release
 *
 * {@link JobWorker} makes all of them for a handler. Every error is a {@link MillraceError}. The
 * client's token is its token, the setting worker.token of the server.
 */
export class WorkerAPI {
  /** @internal */
  readonly http: Http;

  /** @internal */
  constructor(http: Http) {
    this.http = http;
  }

  /**
   * Claims jobs and waits up to wait seconds, at most 30, for the first one. The wire has whole
   * seconds; fractions are rounded up. When there are none the result is empty.
   *
   * Errors: InvalidError for an unknown contract and for queues that handlers in the server serve;
   * UnauthorizedError; RetryableError.
   *
   * Repeating: jobs in a lost answer return when their leases expire; a repeat claims others.
   */
  async claim<P = any>(query: ClaimQuery,
    options: { wait?: number } & CallOptions = {}): Promise<ClaimedJob<P>[]> {
    const { jobs } = await this.claimFor<P>(query, options);
    return jobs;
  }

  /** @internal Is claim, and says whether an operator has drained the worker. */
  async claimFor<P>(query: ClaimQuery, options: { wait?: number } & CallPolicy):
    Promise<{ jobs: ClaimedJob<P>[]; drained: boolean }> {
    const op = "worker claim";
    const call = checked(op, (): Call => {
      const wait = wholeSeconds("wait", Math.max(options.wait ?? 0, 0));
      const { contract, queues, max = 1, worker } = query;
      return {
        op,
        method: "POST",
        path: "/worker/v1/claims",
        body: encode({ contract, queues: queues?.length ? queues : undefined, max,
          wait_seconds: wait, worker: worker || undefined }),
        wait,
        accept: [200],
        raw: claimTexts,
        ...policyOf(options),
      };
    });
    const answer = await this.http.send(call);
    return {
      jobs: this.http.read(call, answer, (wire) => listOf(claimedJob<P>)(objectOf(wire).jobs)),
      drained: answer.headers.get("Millrace-Drain") === "true",
    };
  }

  /**
   * Claims one job by its id. worker identifies the caller, as in {@link ClaimQuery}.
   *
   * Errors: NotFoundError; ConflictError when the job cannot run now, because it is not ready or a
   * limit leaves no slot; InvalidError; UnauthorizedError.
   *
   * Repeating: a job in a lost answer returns when its lease expires. Until then a repeat is a
   * ConflictError that is uncertain.
   */
  async claimJob<P = any>(contract: WorkerContract, jobId: string,
    options: { worker?: string } & CallOptions = {}): Promise<ClaimedJob<P>> {
    const op = "worker claim";
    return await this.http.json({
      op,
      method: "POST",
      path: checked(op, () => {
        checkSegment("job id", jobId);
        return pathOf("/worker/v1/jobs", jobId, "claim");
      }),
      body: encode({ contract, worker: options.worker || undefined }),
      accept: [200],
      raw: claimTexts,
      signal: options.signal,
    }, (wire) => claimedJob<P>(wire));
  }

  /**
   * Extends the lease of a run to its whole length and stores the run's state, any JSON value.
   * Without one the stored state stays.
   *
   * Errors: RunLostError; InvalidError; UnauthorizedError; RetryableError. Repeating is safe.
   */
  async heartbeat(runId: string,
    options: { state?: unknown } & CallOptions = {}): Promise<HeartbeatReply> {
    const op = "worker heartbeat";
    const body = checked(op, () => encode({ state: options.state }));
    return await this.#onRun(op, runId, "heartbeat", body, options, heartbeatReply);
  }

  /**
   * Marks a claimed run as started. ForgeRun requires it before an outcome.
   *
   * Errors: RunLostError; ConflictError in a contract whose jobs have no such state.
   */
  async start(runId: string, options: CallOptions = {}): Promise<void> {
    await this.#onRun("worker start", runId, "start", "{}", options, () => {});
  }

  /**
   * Ends a run with success. The job keeps the result, any JSON value.
   *
   * Errors: RunLostError, which is uncertain after a try whose answer was lost, because that try
   * may have completed the run; InvalidError; RetryableError.
   */
  async complete(runId: string,
    options: { result?: unknown } & CallOptions = {}): Promise<void> {
    const op = "worker complete";
    const body = checked(op, () => encode({ result: options.result }));
    await this.#onRun(op, runId, "complete", body, options, () => {});
  }

  /**
   * Ends a run without success. The contract decides by its policy whether the job is retried.
   *
   * Errors: those of {@link WorkerAPI.complete}.
   */
  async fail(runId: string, failure: JobFailure, options: CallOptions = {}): Promise<void> {
    const op = "worker fail";
    const body = checked(op, () => encodeFailure(failure));
    await this.#onRun(op, runId, "fail", body, options, () => {});
  }

  /**
   * Ends a run and gives its job back to the queue, without counting an attempt where the contract
   * allows that.
   *
   * Errors: those of {@link WorkerAPI.complete}.
   */
  async release(runId: string, options: CallOptions = {}): Promise<void> {
    await this.#onRun("worker release", runId, "release", "{}", options, () => {});
  }

  /**
   * Ends up to 1000 runs, of one contract or several, in one request and one transaction, for
   * programs that claim many jobs at a time. The results are in the order of outcomes. An outcome
   * that is not accepted does not affect the others; when two outcomes have the same run id, the
   * first counts. Without outcomes nothing is sent.
   *
   * Errors: InvalidError when an outcome breaks a rule, which the message names by its index, and
   * for more than 1000 outcomes or 4 MiB; UnauthorizedError; RetryableError. No run has ended then,
   * unless the error is uncertain.
   *
   * Repeating: after a try whose answer was lost, a RunLostError of a result is uncertain, because
   * that try may have ended the run.
   */
  async finish(outcomes: readonly RunOutcome[],
    options: CallOptions = {}): Promise<FinishResult[]> {
    const op = "worker finish";
    if (outcomes.length === 0) return [];
    const body = checked(op, () => encodeOutcomes(outcomes));
    const call: Call = { op, method: "POST", path: "/worker/v1/outcomes", body, accept: [200],
      ...policyOf(options) };
    const answer = await this.http.send(call);
    return this.http.read(call, answer,
      (wire) => finishResults(wire, op, outcomes, answer.uncertain));
  }

  async #onRun<T>(op: string, runId: string, verb: string, body: string, options: CallOptions,
    read: (wire: unknown) => T): Promise<T> {
    const path = checked(op, () => {
      checkSegment("run id", runId);
      return pathOf("/worker/v1/runs", runId, verb);
    });
    return await this.http.json({ op, method: "POST", path, body, accept: [200],
      ...policyOf(options) }, read);
  }
}
