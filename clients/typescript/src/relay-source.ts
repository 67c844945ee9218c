import type { Attempt } from "./attempt.js";
import { Batcher, maxBatchedBytes, type BatchResult } from "./batcher.js";
import { MillraceError, RunLostError, textOf } from "./error.js";
import { checkResult } from "./handler.js";
import type { CallPolicy } from "./http.js";
import { failureType, truncated } from "./job-error.js";
import { notCurrent, opComplete, opHeartbeat, type Relay } from "./relay.js";
import type { ClaimedRelayJob, RelayRun } from "./relay-wire.js";
import { Run, type Handler } from "./run.js";
import type { Lease, Source } from "./source.js";

/** RelayEnd is a run that ends with success. */
interface RelayEnd {
  run: RelayRun;
  /** The answer of a batch with it was lost, which may have ended the run. */
  uncertain: boolean;
}

/** RelaySource claims the jobs of one Relay queue. */
export class RelaySource<P> implements Source {
  readonly completions: Batcher<RelayEnd>;
  readonly heartbeats: Batcher<RelayRun>;

  /** name is of the worker. */
  constructor(readonly relay: Relay, readonly queue: string, readonly name: string,
    readonly handler: Handler<P>,
    readonly afterRun: (job: ClaimedRelayJob<P>, reason: Error | undefined) => void) {
    this.completions = new Batcher<RelayEnd>(opComplete,
      (end, policy) => this.completeOne(end, policy),
      (ends, policy) => this.#completeAll(ends, policy));
    this.heartbeats = new Batcher<RelayRun>(opHeartbeat,
      (run, policy) => relay.heartbeat(run, policy),
      (runs, policy) => this.#heartbeatAll(runs, policy));
  }

  async claim(max: number, wait: number,
    signal: AbortSignal): Promise<{ leases: Lease[]; drained: boolean }> {
    const options = { numJobs: max, wait, signal, once: true };
    const { jobs, drained } = await this.relay.nextFor<P>(this.queue, options, this.name);
    return { leases: jobs.map((job) => new RelayLease(this, job)), drained };
  }

  async idle(): Promise<void> {
    await this.completions.idle();
    await this.heartbeats.idle();
  }

  /** Completes a run in a request of its own. It fails with a RunLostError when the run is lost. */
  async completeOne(end: RelayEnd, policy: CallPolicy): Promise<void> {
    const lost = await this.relay.completeOf(end.run, policy);
    if (lost) throw end.uncertain ? notCurrent(opComplete, lost.status, true) : lost;
  }

  /** Completes runs in one request. */
  async #completeAll(ends: RelayEnd[], policy: CallPolicy): Promise<BatchResult> {
    try {
      const known = await this.relay.completeAll(ends.map(({ run }) => run), onceOf(policy));
      return known.map((isKnown) => isKnown ? undefined : notCurrent(opComplete, 200, false));
    } catch (err) {
      const uncertain = err instanceof MillraceError &&
        (err.uncertain || (err.status !== 0 && err.retryable));
      for (const end of ends) end.uncertain ||= uncertain;
      return batchFailure(err);
    }
  }

  /** Sends heartbeats in one request. */
  async #heartbeatAll(runs: RelayRun[], policy: CallPolicy): Promise<BatchResult> {
    try {
      const known = await this.relay.heartbeatAll(runs, onceOf(policy));
      return known.map((isKnown) => isKnown ? undefined : notCurrent(opHeartbeat, 404, false));
    } catch (err) {
      return batchFailure(err);
    }
  }
}

/** The policy of a batch: it is tried once, as single requests follow in any case. */
function onceOf({ signal }: CallPolicy): CallPolicy {
  return { signal, once: true };
}

/**
 * Decides what becomes of the entries of a batch that has failed. They go on one by one, as if the
 * batch had not been sent: that is right for every server and proxy, whatever its answer means. An
 * answer that another batch would get too, such as 404 from a server that does not have the route,
 * ends batches for a while.
 */
function batchFailure(err: unknown): BatchResult {
  const isDefinite = err instanceof MillraceError && err.status !== 0 && !err.retryable;
  return isDefinite ? "noBatches" : "singly";
}

/** RelayLease is one claimed job. Relay has no release. */
class RelayLease<P> implements Lease {
  readonly timeout: number;
  readonly logFields: object;
  readonly #run: RelayRun;
  readonly #fitsBatch: boolean; // its names are short enough to share a request

  constructor(readonly source: RelaySource<P>, readonly job: ClaimedRelayJob<P>) {
    this.timeout = job.timeout;
    this.logFields = { jobId: job.id, runId: job.runId };
    this.#run = { queue: job.queue, id: job.id, runId: job.runId };
    this.#fitsBatch = job.queue.length + job.id.length <= maxBatchedBytes;
  }

  async handle(attempt: Attempt): Promise<void> {
    checkResult(await this.source.handler(new Run(this.job, attempt, this.source.relay)));
  }

  /**
   * Sends a state in a request of its own: a caller that stops waiting for a batch cannot take its
   * entry back, and a state must not arrive after a newer one.
   */
  async heartbeat(state: unknown, policy: CallPolicy): Promise<boolean> {
    const alone = state !== undefined || !this.#fitsBatch;
    if (alone) await this.source.relay.heartbeat(this.#run, { state, ...policy });
    else await this.source.heartbeats.send(this.#run, policy);
    return false;
  }

  async complete(policy: CallPolicy): Promise<undefined> {
    const end = { run: this.#run, uncertain: false };
    if (this.#fitsBatch) await this.source.completions.send(end, policy);
    else await this.source.completeOne(end, policy);
  }

  /**
   * Sends why the handler has failed. The lease goes on until it ends. A server that does not have
   * the request gets no reason.
   */
  async report(failure: unknown, cause: unknown, policy: CallPolicy): Promise<void> {
    const entry = { ...this.#run, error: truncated(textOf(failure)),
      errorType: failureType(failure, cause) };
    try {
      const [isKnown] = await this.source.relay.heartbeatAll([entry], policy);
      if (!isKnown) throw notCurrent(opHeartbeat, 404, false);
    } catch (err) {
      const isMissing = err instanceof MillraceError && !(err instanceof RunLostError) &&
        [404, 405].includes(err.status);
      if (!isMissing) throw err;
    }
  }

  runEnded(reason: Error | undefined): void {
    this.source.afterRun(this.job, reason);
  }
}
