import { sleep } from "./abort.js";
import { AbortedError } from "./error.js";
import { failed, isRetryable, transportFailure, type Failure } from "./failure.js";
import type { Call, Http } from "./http.js";
import { maxRetryAfter } from "./retry.js";

/** How a request that is one of several for one answer has ended. */
export interface StreamEnd {
  /** Nothing more is wanted, or there is nothing more. */
  isOver?: boolean;
  /** There is more at once. */
  goesOn?: boolean;
}

/** What an answer of several requests is made of. */
export interface StreamReader<T> {
  /** The call of the next request. */
  next(): Call;
  /** Reads a line. One that cannot be read is asked for again. */
  read(line: string): T;
  /** Is asked after a request whose answer was complete, with the number of its lines. */
  end(lines: number): StreamEnd;
  /** Bounds a line, in characters. */
  maxLine: number;
}

/**
 * Yields what the lines of an answer say, and makes further requests that continue it, until one
 * has ended, the tries are used up, or the signal is aborted. Tries are counted from zero after a
 * request that has brought something.
 */
export async function* continued<T>(http: Http,
  reader: StreamReader<T>): AsyncGenerator<T, void, undefined> {
  for (let failures = 0; ;) {
    const call = reader.next();
    let lines = 0;
    let fail: Failure | undefined;
    const opened = await http.open(call);
    if ("fail" in opened) {
      fail = opened.fail;
    } else {
      try {
        for await (const item of itemsOf(opened.value, reader)) {
          lines++;
          yield item;
        }
      } catch (err) {
        fail = brokenOff(call, err);
      }
    }
    const ended = fail ? {} : reader.end(lines);
    if (ended.isOver) return;
    if (call.signal?.aborted) throw aborted(call);
    if (ended.goesOn) continue;
    failures = lines > 0 ? 1 : failures + 1;
    const triesUsedUp = http.maxTries > 0 && failures >= http.maxTries;
    const isGivenUp = fail &&
      (triesUsedUp || !isRetryable(fail) || fail.retryAfter > maxRetryAfter);
    if (fail && isGivenUp) throw failed(fail);
    if (!(await sleep(http.backoff.delay(failures, fail?.retryAfter ?? 0), call.signal))) {
      throw aborted(call);
    }
  }
}

function aborted(call: Call): AbortedError {
  return new AbortedError({ op: call.op, cause: call.signal?.reason as unknown });
}

/** The error of a line that is too long, which another request would bring again. */
class LongLineError extends Error {}

function brokenOff(call: Call, err: unknown): Failure {
  const fail = transportFailure(call.op, err, call.signal);
  const isFinal = err instanceof LongLineError;
  return { ...fail, uncertain: false, ...(isFinal && { transient: false }) };
}

/**
 * Yields what the lines of a stream say. One that ends without a line break is left out: it is cut
 * off.
 */
async function* itemsOf<T>(stream: ReadableStream<Uint8Array>,
  { read, maxLine }: StreamReader<T>): AsyncGenerator<T, void, undefined> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim() !== "") yield read(line);
      if (rest.length > maxLine) throw new LongLineError("a line of the answer is too long");
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}
