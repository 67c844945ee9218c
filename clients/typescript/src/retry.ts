/**
 * The longest Retry-After, in seconds, that a call waits for. A call whose server asks for more
 * fails with {@link MillraceError.retryAfter} set, and its caller decides.
 */
export const maxRetryAfter = 60;

/** The policy by which the tries of a call are repeated. */
export interface Retry {
  /**
   * Limits the tries of one call, the first included. 1 means no retries, and a negative number
   * means until the signal is aborted. The requests by which a worker finishes a run are tried as
   * long as {@link Worker.run} and {@link JobWorker.run} say. The default is 6.
   */
  maxTries?: number;
  /**
   * The longest pause before the second try, in seconds; it doubles with every further try. The
   * pause is random between zero and that (full jitter), on top of Retry-After if the server sent
   * it. The default is 0.1.
   */
  baseDelay?: number;
  /** Where the doubling ends, in seconds. The default is 10. */
  maxDelay?: number;
}

/** Backoff computes pauses that grow with the number of failures. */
export class Backoff {
  readonly #base: number;
  readonly #max: number;

  constructor(retry: Retry) {
    this.#base = Math.max(retry.baseDelay ?? 0.1, 0);
    this.#max = Math.max(retry.maxDelay ?? 10, this.#base);
  }

  /**
   * The pause after that many failures in a row, from 1 on, in seconds. It is never shorter than
   * retryAfter.
   */
  delay(failures: number, retryAfter: number): number {
    const ceiling = Math.min(this.#max, this.#base * 2 ** (failures - 1));
    return retryAfter + Math.random() * ceiling;
  }
}

/**
 * Reads Retry-After, in seconds or as a date; 0 when there is none. A date is compared with the
 * server's own Date header, so that the clocks need not agree.
 */
export function retryAfterOf(headers: Headers): number {
  const value = headers.get("Retry-After") ?? "";
  if (/^[+-]?[0-9]{1,9}$/.test(value)) return Math.max(Number(value), 0);
  const until = Date.parse(value) - Date.parse(headers.get("Date") ?? "");
  return until > 0 ? until / 1000 : 0;
}
