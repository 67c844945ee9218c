import { sleep } from "./abort.js";
import { AbortedError, MillraceError } from "./error.js";

// The pauses of watch grow from the first to the second, in seconds.
const minWatchPause = 0.05;
const maxWatchPause = 2;

/**
 * Polls until done is true of a value, and returns that. Retryable errors do not end it, so that it
 * continues while the server is unavailable or limits requests; other errors do, and so does the
 * signal.
 */
export async function watch<T>(op: string, signal: AbortSignal | undefined,
  poll: () => Promise<T>, done: (value: T) => boolean): Promise<T> {
  for (let pause = minWatchPause; ; pause = Math.min(pause * 1.5, maxWatchPause)) {
    let minPause = 0;
    try {
      const value = await poll();
      if (done(value)) return value;
    } catch (err) {
      const goesOn = err instanceof MillraceError && err.retryable && !signal?.aborted;
      if (!goesOn) throw err;
      minPause = err.retryAfter;
    }
    // The pause is random between its half and its whole, so that many callers spread out.
    if (!(await sleep(minPause + pause / 2 + Math.random() * pause / 2, signal))) {
      throw new AbortedError({ op, cause: signal?.reason as unknown });
    }
  }
}
