import { Scope, now, onAbort, endsBefore, sleep } from "./abort.js";
import { Attempt, finishGrace, within } from "./attempt.js";
import { DrainTimeoutError, MillraceError, RunFinishedError, RunLostError, asError, textOf }
  from "./error.js";
import { ServerOutage, type Logger } from "./outage.js";
import { maxRetryAfter, type Backoff } from "./retry.js";
import type { Lease, Source } from "./source.js";

/** What a runner is made of; all durations are in seconds. */
export interface RunnerConfig {
  source: Source;
  concurrency: number;
  /** How long a claim may wait in the server; 0 for not at all. */
  pollWait: number;
  /** The least time from one claim without jobs to the next. */
  pollPause: number;
  drainTimeout: number;
  /** Ends the drain early. */
  kill: AbortSignal | undefined;
  maxHeartbeatInterval: number;
  backoff: Backoff;
  log: Logger;
}

/**
 * How long the poll that is under way when the worker stops may still take, in seconds: jobs in an
 * answer that is cut off have no worker until their leases expire.
 */
const pollGrace = 0.5;

/**
 * Runner claims jobs from a source and runs a handler for each. It knows nothing of the contract
 * behind the source:
 *
 *     poll ──▶ source.claim ──▶ process ──▶ handler
 *      ▲                           │  └───── heartbeats, until the handler has returned
 *      └── a slot is free ◀────────┴──────── complete, report or release the run
 *
 * A slot is reserved before a job is claimed for it, so no claimed job waits for a handler.
 */
export class Runner {
  readonly #config: RunnerConfig;
  readonly #log: Logger;
  readonly #outage: ServerOutage;
  readonly #running = new Set<Promise<void>>();
  readonly #killed = new AbortController();
  #onSlotFree = (): void => {};

  constructor(config: RunnerConfig) {
    this.#config = config;
    this.#log = config.log;
    this.#outage = new ServerOutage(config.log);
  }

  /** Claims and executes jobs until the signal is aborted, and drains then. */
  async run(signal: AbortSignal | undefined): Promise<void> {
    const polling = new Scope(signal);
    const { kill } = this.#config;
    const stopKill = onAbort(kill, () => {
      polling.abort(kill?.reason);
      this.#killed.abort(new DrainTimeoutError("the worker was killed", { cause: kill?.reason }));
    });
    try {
      if (await this.#poll(polling.signal)) {
        this.#log.info("drained by an operator: no new jobs; running handlers may finish");
        await endsBefore(this.#handlers(), polling.signal);
      }
      await this.#drain();
    } finally {
      await this.#config.source.idle();
      stopKill();
      polling.close();
    }
  }

  /** Ends when all handlers that run now have returned. */
  async #handlers(): Promise<void> {
    await Promise.all(this.#running);
  }

  /** Waits for a free slot. The result is how many there are; 0 once the signal is aborted. */
  async #freeSlots(signal: AbortSignal): Promise<number> {
    const { concurrency } = this.#config;
    while (!signal.aborted && this.#running.size >= concurrency) {
      await endsBefore(new Promise<void>((resolve) => (this.#onSlotFree = resolve)), signal);
    }
    return signal.aborted ? 0 : concurrency - this.#running.size;
  }

  /**
   * Claims a job for every free slot, again and again, until the signal is aborted or the worker is
   * drained, which is the result.
   */
  async #poll(signal: AbortSignal): Promise<boolean> {
    for (let failures = 0; ;) {
      const free = await this.#freeSlots(signal);
      if (free === 0) return false;
      // A claim that waited in the server has paused long enough, one answered at once has not.
      const nextPoll = now() + this.#config.pollPause;
      const wait = failures > 0 ? 0 : this.#config.pollWait; // shows that an outage has ended
      try {
        const { leases, drained } = await this.#claim(free, wait, signal);
        for (const lease of leases) this.#start(lease, signal.aborted);
        failures = 0;
        this.#outage.pollSucceeded();
        if (drained) return true;
        if (leases.length === 0) await sleep(nextPoll - now(), signal);
      } catch (err) {
        if (signal.aborted) continue;
        this.#outage.pollFailed(err);
        const asked = err instanceof MillraceError ? Math.min(err.retryAfter, maxRetryAfter) : 0;
        await sleep(this.#config.backoff.delay(++failures, asked), signal);
      }
    }
  }

  async #claim(free: number, wait: number,
    signal: AbortSignal): Promise<{ leases: Lease[]; drained: boolean }> {
    const scope = new Scope();
    scope.abortAfter(signal, pollGrace);
    try {
      const { leases, drained } = await this.#config.source.claim(free, wait, scope.signal);
      if (leases.length > free) {
        this.#log.error("server sent more jobs than were asked for; the rest will time out",
          { surplus: leases.length - free });
      }
      return { leases: leases.slice(0, free), drained };
    } finally {
      scope.close();
    }
  }

  #start(lease: Lease, afterStop: boolean): void {
    const run: Promise<void> = this.#process(lease, afterStop).finally(() => {
      this.#running.delete(run);
      this.#onSlotFree();
    });
    this.#running.add(run);
  }

  /**
   * Waits for the handlers, and aborts their signals when the drain timeout has passed, unless they
   * were killed before. It waits for a handler that ignores its signal too: that handler still has
   * a lease, which its heartbeats extend.
   */
  async #drain(): Promise<void> {
    const { drainTimeout } = this.#config;
    const handlers = this.#handlers();
    const end = new Scope(this.#killed.signal);
    let finished = false;
    void handlers.then(() => {
      finished = true;
      end.abort(undefined);
    });
    await sleep(drainTimeout, end.signal);
    end.close();
    if (finished) return;
    if (!this.#killed.signal.aborted) {
      this.#log.warn("handlers did not finish in time; aborting their signals", { drainTimeout });
      this.#killed.abort(new DrainTimeoutError(`handlers did not finish within ${drainTimeout} s`));
    }
    await handlers;
    throw this.#killed.signal.reason;
  }

  /**
   * Runs the handler of one job, from the claim to the outcome. A job that arrived after the stop
   * is released where the contract allows that, else it is executed in the time left.
   */
  async #process(lease: Lease, afterStop: boolean): Promise<void> {
    const attempt = new Attempt(lease, this.#log, this.#outage, this.#killed.signal);
    let reason: Error | undefined;
    try {
      reason = await (afterStop && lease.release
        ? this.#giveBack(attempt, lease.release.bind(lease)) : this.#execute(attempt));
    } finally {
      attempt.close();
      try {
        lease.runEnded(reason); // before the slot is free
      } catch (err) {
        attempt.log.error("afterRun failed", { error: textOf(err) });
      }
    }
  }

  async #giveBack(attempt: Attempt,
    release: NonNullable<Lease["release"]>): Promise<Error | undefined> {
    try {
      await attempt.finish(release);
    } catch (err) {
      logUnfinished(attempt,
        "job that arrived after the stop not released; it returns when its lease expires", err);
    }
    return new Error("the job arrived after the stop");
  }

  /** Runs the handler under heartbeats, and returns why the job was not completed. */
  async #execute(attempt: Attempt): Promise<Error | undefined> {
    attempt.log.debug("job started");
    const stop = new AbortController();
    const heartbeats = attempt.keepAlive(stop.signal, this.#config.maxHeartbeatInterval);
    let failure: { error: unknown } | undefined;
    try {
      await attempt.lease.handle(attempt);
    } catch (error) {
      failure = { error };
    }
    const cause: unknown = attempt.signal.aborted ? attempt.signal.reason : undefined;
    stop.abort();
    await heartbeats;
    return await this.#finishRun(attempt, failure, cause);
  }

  /**
   * Sends the outcome of a run, and returns why the job was not completed; undefined if it was, or
   * was requeued or released by the handler. Nothing is sent about a run that was lost or has
   * finished.
   */
  async #finishRun(attempt: Attempt, failure: { error: unknown } | undefined,
    cause: unknown): Promise<Error | undefined> {
    const { ended, log } = attempt;
    if (ended instanceof RunLostError) {
      log.warn("run lost; its outcome is dropped",
        { error: textOf(ended), ...(failure && { outcome: textOf(failure.error) }) });
      return ended;
    }
    if (ended && failure) {
      log.error("handler failed after it had requeued its job", { error: textOf(failure.error) });
      return asError(failure.error);
    }
    if (ended) {
      log.debug("job requeued or released", { seconds: now() - attempt.started });
      return undefined;
    }
    if (!failure) return await this.#complete(attempt);
    await this.#fail(attempt, failure.error, cause);
    return asError(failure.error);
  }

  /** Sends the success of a run, and returns why the job was not completed. */
  async #complete(attempt: Attempt): Promise<Error | undefined> {
    try {
      const refused = await attempt.finish((policy) => attempt.lease.complete(policy));
      if (refused) {
        attempt.log.warn("the server refused the result; the run has failed",
          { error: textOf(refused) });
        return refused;
      }
      attempt.log.debug("job completed", { seconds: now() - attempt.started });
      return undefined;
    } catch (err) {
      logUnfinished(attempt, "job done but not completed; the run ends with its lease", err);
      return asError(err);
    }
  }

  /**
   * Reports the failure of a handler. A staged state is sent first, for the next run to continue
   * from.
   */
  async #fail(attempt: Attempt, failure: unknown, cause: unknown): Promise<void> {
    const { lease, log } = attempt;
    const message = lease.release ? "handler failed"
      : "handler failed; the run ends with its lease";
    log.error(message, { error: failure });
    await this.#sendStagedState(attempt);
    try {
      await attempt.finish((policy) => lease.report(failure, cause, policy));
    } catch (err) {
      logUnfinished(attempt, "failure not reported; the run ends with its lease", err);
    }
  }

  /** Sends the state that waits for a heartbeat. */
  async #sendStagedState(attempt: Attempt): Promise<void> {
    if (!attempt.hasStaged) return;
    try {
      await within(undefined, finishGrace, (signal) => attempt.heartbeat(signal));
    } catch (err) {
      attempt.log.warn("last state not stored", { error: textOf(err) });
    }
  }
}

/** Logs that an outcome was not accepted, or may have been with a lost answer. */
function logUnfinished(attempt: Attempt, message: string, err: unknown): void {
  if (err instanceof RunFinishedError) return;
  if (!(err instanceof RunLostError)) {
    attempt.log.error(message, { error: textOf(err) });
    return;
  }
  attempt.log.warn(err.uncertain
    ? "an answer was lost and the run has ended; its outcome was probably accepted"
    : "run lost; its outcome is dropped", { error: textOf(err) });
}
