import { now } from "./abort.js";
import { MillraceError, textOf } from "./error.js";

/** What a worker logs to: console is one. fields are members to log with the message. */
export interface Logger {
  debug(message: string, fields?: object): void;
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

/** A logger that adds fields to those of each message; without one the messages are discarded. */
export function withFields(logger: Logger | undefined, fields: object): Logger {
  const log = (level: keyof Logger) => (message: string, more: object = {}) =>
    logger?.[level](message, { ...fields, ...more });
  return { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
}

/**
 * ServerOutage logs one line when the server begins to fail the requests of a worker, and one when
 * it answers again, whatever the number of runs whose heartbeats fail meanwhile.
 *
 *     polls       ok FAIL FAIL ·    ·    ok ·     until one succeeds
 *     heartbeats  ok ·    ·    FAIL FAIL ·  ok    of each run, until one is answered or it ends
 *     outcomes    ok ·    FAIL ·    ·    ok ·     a definite answer ends what they have begun
 *     log            WARN                   INFO  while one of them fails it is one outage
 */
export class ServerOutage {
  #active = false;
  #since = 0;
  #pollsFail = false;
  #pollStatus = 0; // of the answers to polls in this outage; 0 is no answer
  #missing = 0; // runs whose last heartbeat failed

  constructor(readonly log: Logger) {}

  /** Also logs when the status of the answers changes, which may mean another cause. */
  pollFailed(err: unknown): void {
    const status = statusOf(err);
    const isNew = !this.#active || (this.#pollsFail && this.#pollStatus !== status);
    this.#pollsFail = true;
    this.#pollStatus = status;
    if (isNew) this.#begin("polls", err);
  }

  pollSucceeded(): void {
    this.#pollsFail = false;
    this.#endIfOver();
  }

  /** Records that a run has missed so many heartbeats in a row. */
  heartbeatFailed(missed: number, err: unknown): void {
    if (missed === 1) this.#missing++;
    if (!this.#active) this.#begin("heartbeats", err);
  }

  /**
   * Records that a heartbeat was accepted, or that its answer was that the run is lost, after so
   * many misses.
   */
  heartbeatAnswered(missed: number): void {
    if (missed > 0) this.#missing--;
    this.#endIfOver();
  }

  /** Records that a request with the outcome of a run will be repeated. */
  outcomeFailed(err: unknown): void {
    if (!this.#active) this.#begin("outcomes", err);
  }

  /** Records a definite answer to a request with the outcome of a run. */
  outcomeAnswered(): void {
    this.#endIfOver();
  }

  /**
   * Records that a run sends no more heartbeats. That says nothing about the server, so the next
   * answer ends the outage.
   */
  runEnded(missed: number): void {
    if (missed > 0) this.#missing--;
  }

  /** Logs what fails. A refusal names the requests, as others may be accepted. */
  #begin(requests: string, err: unknown): void {
    if (!this.#active) {
      this.#active = true;
      this.#since = now();
    }
    const message = statusOf(err) === 0
      ? "the server does not answer; requests are repeated until it does"
      : `the server refuses ${requests}; they are repeated until it accepts one`;
    this.log.warn(message, { error: textOf(err) });
  }

  #endIfOver(): void {
    if (!this.#active || this.#pollsFail || this.#missing > 0) return;
    this.#active = false;
    this.log.info("the server answers again", { seconds: now() - this.#since });
  }
}

/** The status of the answer that an error is about; 0 is no answer. */
export function statusOf(err: unknown): number {
  return err instanceof MillraceError ? err.status : 0;
}
