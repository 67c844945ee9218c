import { Scope, after, now, endsBefore, sleep, type CallOptions } from "./abort.js";
import { AbortedError, InvalidError, MillraceError, RunCanceledError, RunFinishedError,
  RunLostError, invalid, textOf } from "./error.js";
import type { CallPolicy } from "./http.js";
import { RawJSON, encode } from "./json.js";
import { statusOf, withFields, type Logger, type ServerOutage } from "./outage.js";
import type { Lease } from "./source.js";

/**
 * The heartbeat interval of a run with timeout 0, in seconds. Its lease cannot be extended, but the
 * answer to a heartbeat shows when the run is lost.
 */
const zeroLeaseHeartbeat = 1;
/**
 * The least time that one heartbeat gets, however short its interval is, so that a slow server can
 * still answer.
 */
const heartbeatTimeout = 1;
/**
 * How long the outcome of a run is still tried after the worker has aborted the signals of its
 * handlers, in seconds.
 */
export const finishGrace = 10;

/**
 * Attempt is one run of a job in this process. It keeps the lease alive while the handler works,
 * and makes sure that nothing is sent about the run after it was lost or finished:
 *
 *                run lost, or definite refusals for a whole lease
 *     running ─────────────────────────────────────────────────────▶ lost
 *        │
 *        └── completed, failed, requeued, released, handler returned ──▶ finished
 *
 * Heartbeats come by themselves, and the handler may save a state or requeue its job at any time.
 * One request at a time is sent: a heartbeat that reached the server after the completion would be
 * answered as if the run were lost.
 */
export class Attempt {
  readonly started = now();
  readonly log: Logger;
  #ended: Error | undefined; // why nothing more can be sent; undefined while it is running
  #staged: { text: string } | undefined; // the state to send with the next heartbeat
  #lastRequest: Promise<void> = Promise.resolve();
  readonly #handlerEnd: Scope;

  /** killed is aborted when the worker aborts the signals of all handlers. */
  constructor(readonly lease: Lease, log: Logger, readonly outage: ServerOutage,
    readonly killed: AbortSignal) {
    this.log = withFields(log, lease.logFields);
    this.#handlerEnd = new Scope(killed);
  }

  /** The signal of the handler. */
  get signal(): AbortSignal {
    return this.#handlerEnd.signal;
  }

  /** Why nothing more can be sent about the run; undefined while it is running. */
  get ended(): Error | undefined {
    return this.#ended;
  }

  /** Whether a state waits for the next heartbeat. */
  get hasStaged(): boolean {
    return this.#staged !== undefined;
  }

  /** Keeps a state for the next heartbeat. It replaces a state that was not sent yet. */
  stage(state: unknown): void {
    let text: string;
    try {
      text = encode(state);
    } catch (err) {
      throw invalid("set state", err);
    }
    if (this.#ended) throw this.#ended;
    this.#staged = { text };
  }

  /** Ends a running attempt and its handler's signal. */
  #markLost(cause: RunLostError): void {
    if (this.#ended) return;
    this.#ended = cause;
    this.#handlerEnd.abort(cause);
  }

  /** Ends a running attempt whose handler has returned and whose outcome was not accepted. */
  close(): void {
    this.#ended ??= finished();
    this.#handlerEnd.close();
  }

  /**
   * Sends a request about the run by fn, after the requests before it. It sends nothing when the
   * attempt has ended. A request that fails with RunLostError ends the attempt.
   */
  async inOrder<T>(signal: AbortSignal | undefined, fn: () => Promise<T>): Promise<T> {
    const before = this.#lastRequest;
    let release = (): void => {};
    this.#lastRequest = new Promise((resolve) => (release = resolve));
    if (signal && !(await endsBefore(before, signal))) {
      void before.then(release);
      throw new AbortedError({ op: "run", cause: signal.reason as unknown });
    }
    await before;
    try {
      if (this.#ended) throw this.#ended;
      return await fn();
    } catch (err) {
      if (err instanceof RunLostError) this.#markLost(err);
      throw err;
    } finally {
      release();
    }
  }

  /** Extends the lease and sends the staged state with it. */
  async heartbeat(signal: AbortSignal): Promise<void> {
    await this.inOrder(signal, () => this.#sendHeartbeat(signal));
  }

  /**
   * Stages a state and sends it before any other request, so that the result is the server's answer
   * to this very state.
   */
  async save(state: unknown, options: CallOptions): Promise<void> {
    await this.inOrder(options.signal, async () => {
      this.stage(state);
      await this.#sendHeartbeat(options.signal);
    });
  }

  /**
   * Sends one heartbeat. A state that the server refuses is dropped, because it would make every
   * further heartbeat fail.
   */
  async #sendHeartbeat(signal: AbortSignal | undefined): Promise<void> {
    const staged = this.#staged;
    const unstage = () => {
      if (this.#staged === staged) this.#staged = undefined;
    };
    try {
      const state = staged && new RawJSON(staged.text);
      if (await this.lease.heartbeat(state, { signal })) {
        this.#handlerEnd.abort(new RunCanceledError("the server asks the run to end"));
      }
      unstage();
    } catch (err) {
      if (err instanceof InvalidError) unstage();
      throw err;
    }
  }

  /**
   * Ends the run by act, unless the attempt has ended already. It tries until the server gives a
   * definite answer, and for finishGrace after a kill of the handlers. Heartbeats wait meanwhile.
   */
  async finish<T>(act: (policy: CallPolicy) => Promise<T>, options: CallOptions = {}): Promise<T> {
    const scope = new Scope(options.signal);
    scope.abortAfter(this.killed, finishGrace);
    try {
      return await this.inOrder(scope.signal, async () => {
        const value = await act({ signal: scope.signal, outage: this.outage });
        this.outage.outcomeAnswered();
        this.#ended ??= finished();
        return value;
      });
    } catch (err) {
      if (isDefinite(err)) this.outage.outcomeAnswered();
      throw err;
    } finally {
      scope.close();
    }
  }

  /**
   * Ends the run by end, which sends no request about it, unless the attempt has ended already.
   * Heartbeats wait meanwhile.
   */
  async finishWith(end: () => unknown, options: CallOptions): Promise<void> {
    await this.inOrder(options.signal, async () => {
      await end();
      this.#ended ??= finished();
    });
  }

  /**
   * Sends heartbeats until the signal is aborted or the attempt ends. When the server has
   * definitely refused all of them for a whole lease, such as for a wrong token, another worker may
   * have the job by now: the run is marked lost. Heartbeats without a definite answer do not count,
   * because a server that is unavailable gives no job to another worker.
   */
  async keepAlive(stop: AbortSignal, maxInterval: number): Promise<void> {
    const { interval, allowedRefusals } = heartbeatSchedule(this.lease.timeout, maxInterval);
    let missed = 0; // in a row
    let refused = 0;
    for (let next = now() + interval; await sleep(next - now(), stop);) {
      next = Math.max(next + interval, now());
      try {
        await this.#heartbeatWithin(stop, Math.max(interval, heartbeatTimeout));
        this.outage.heartbeatAnswered(missed);
        missed = refused = 0;
      } catch (err) {
        if (err instanceof RunLostError) {
          this.outage.heartbeatAnswered(missed);
          missed = 0;
        }
        if (stop.aborted || this.#ended) break;
        this.outage.heartbeatFailed(++missed, err);
        if (isDefinite(err)) refused++;
        if (allowedRefusals > 0 && refused >= allowedRefusals) {
          this.#markLost(new RunLostError({ op: "heartbeat", cause: err,
            detail: "no heartbeat was accepted within the timeout" }));
          break;
        }
      }
    }
    this.outage.runEnded(missed);
  }

  /** Sends a heartbeat, and a second one without the state if the state is refused. */
  async #heartbeatWithin(stop: AbortSignal, seconds: number): Promise<void> {
    await within(stop, seconds, async (signal) => {
      const hadState = this.hasStaged;
      try {
        await this.heartbeat(signal);
      } catch (err) {
        if (!hadState || !(err instanceof InvalidError)) throw err;
        this.log.error("state refused and dropped", { error: textOf(err) });
        await this.heartbeat(signal);
      }
    });
  }
}

function finished(): RunFinishedError {
  return new RunFinishedError({ op: "run", detail: "the run has already finished" });
}

/** Calls fn with a signal that is aborted after so many seconds, or with another one. */
export async function within<T>(parent: AbortSignal | undefined, seconds: number,
  fn: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const scope = new Scope(parent);
  const timer = after(seconds, () => scope.abort(new Error(`no answer within ${seconds} s`)));
  try {
    return await fn(scope.signal);
  } finally {
    timer.stop();
    scope.close();
  }
}

/**
 * Reports whether the error of a request is an answer that another try would get too. No answer and
 * a retryable one are not: they say nothing about the run.
 */
export function isDefinite(err: unknown): boolean {
  return statusOf(err) !== 0 && err instanceof MillraceError && !err.retryable;
}

/**
 * The time between heartbeats, a third of the lease and at most maxInterval if that is above 0, and
 * how many of them may be refused in a row before a whole lease has passed; 0 means any number.
 */
export function heartbeatSchedule(timeout: number, maxInterval: number):
  { interval: number; allowedRefusals: number } {
  if (timeout <= 0) {
    const interval = maxInterval > 0 ? maxInterval : zeroLeaseHeartbeat;
    return { interval: Math.min(zeroLeaseHeartbeat, interval), allowedRefusals: 0 };
  }
  const interval = timeout / 3;
  if (maxInterval <= 0 || maxInterval >= interval) return { interval, allowedRefusals: 3 };
  return { interval: maxInterval, allowedRefusals: Math.ceil(timeout / maxInterval) };
}
