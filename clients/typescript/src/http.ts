// How a call travels. Each layer does one thing:
//
//   method of a contract   builds the call, explains its errors
//     json                 decodes the answer
//       send               makes tries and returns the answer
//         repeat           decides whether and when a try is repeated
//           try            one try: one HTTP request, bounded in time
//
// Only repeat has the earlier tries, so it alone decides whether an error is uncertain: whether the
// call may have taken effect although it failed.

import { Scope, after, sleep, type CallOptions, type Timer } from "./abort.js";
import { AbortedError, MillraceError, NotMillraceError, invalid, unreadable } from "./error.js";
import { failed, isPage, isRefusal, isRetryable, responseFailure, transportFailure,
  type Failure } from "./failure.js";
import { decode, decodeWithRaw } from "./json.js";
import type { ServerOutage } from "./outage.js";
import { Backoff, maxRetryAfter } from "./retry.js";

const maxMessage = 16 << 10; // how much of the body of an error is kept
const maxOutcomePause = 2; // between tries to report an outcome, besides Retry-After

/**
 * Call is one request of a contract: what to send and which statuses mean success. All other
 * statuses are errors, other 2xx too: the welcome page of a proxy must not count as a stored job.
 */
export interface Call {
  op: string;
  method: string;
  /** Escaped; it is appended to the path of the base URL. */
  path: string;
  query?: URLSearchParams;
  /** JSON, or bytes with their Content-Type in header. */
  body?: string | Uint8Array<ArrayBuffer>;
  /** Instead of body, with its Content-Type in header. */
  upload?: Upload;
  /** Sent in addition. An Authorization in it replaces the token; null sends none. */
  header?: Record<string, string | null>;
  /** How much longer than the request timeout a long poll may take, in seconds. */
  wait?: number;
  accept: readonly number[];
  /** Changes nothing in the server, so its errors are never uncertain. */
  readOnly?: boolean;
  /** Has a second effect when it is repeated: tried again only while no try can have had one. */
  notIdempotent?: boolean;
  /** What the errors of the call show. */
  idempotencyKey?: string;
  /** The members of the answer that stay texts. */
  raw?: ReadonlySet<string>;
  signal?: AbortSignal | undefined;
  /** Is tried once. */
  once?: boolean;
  /** Reports the outcome of a run: tried until there is a definite answer. */
  outage?: ServerOutage | undefined;
}

/** The body of an upload, opened anew for every try. */
export interface Upload {
  /** Returns the body for one try. onProgress is to be called when a part of it was taken. */
  open(onProgress: () => void): BodyInit;
  /** How much longer than the request timeout the upload may take, in seconds. */
  allowance: number;
}

/** The options of a call that a worker makes; those of other callers have a signal only. */
export interface CallPolicy extends CallOptions {
  once?: boolean;
  outage?: ServerOutage | undefined;
}

/** Answer is the answer of a success. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

/** RepeatedAnswer is the answer of a call that was perhaps tried several times. */
export interface RepeatedAnswer extends Answer {
  /** An earlier try of the call may have taken effect. */
  uncertain: boolean;
  /** An earlier try of the call got an answer. */
  repeated: boolean;
}

/** How a try has ended. */
export type Try<T> = { value: T } | { fail: Failure };

/** What Http needs of the configuration of a client. */
export interface HttpConfig {
  baseURL: string;
  token: string;
  userAgent: string;
  fetch: typeof fetch;
  requestTimeout: number;
  maxResponseBytes: number;
  maxTries: number;
  backoff: Backoff;
}

/** Http sends calls to one server. */
export class Http {
  readonly backoff: Backoff;
  readonly maxTries: number;
  /** The address of the server. */
  readonly baseURL: string;
  readonly #config: HttpConfig;

  constructor(config: HttpConfig) {
    this.#config = config;
    this.backoff = config.backoff;
    this.maxTries = config.maxTries;
    this.baseURL = config.baseURL;
  }

  /** Makes a call, repeats tries that failed, and returns the answer. */
  async send(call: Call): Promise<RepeatedAnswer> {
    let uncertain = false;
    let repeated = false;
    const answer = await this.repeat(call, async () => {
      const result = await this.try(call);
      if ("fail" in result) {
        uncertain ||= result.fail.uncertain;
        repeated ||= result.fail.status !== 0;
      }
      return result;
    });
    return { ...answer, uncertain, repeated };
  }

  /** Makes a call whose answer is JSON. */
  async json<T>(call: Call, read: (wire: unknown) => T): Promise<T> {
    const answer = await this.send(call);
    return this.read(call, answer, read);
  }

  /** Decodes the JSON of an answer. */
  read<T>(call: Call, answer: Answer, read: (wire: unknown) => T): T {
    try {
      return read(call.raw ? decodeWithRaw(answer.text, call.raw) : decode(answer.text));
    } catch (err) {
      if (err instanceof MillraceError) throw err;
      if (isPage(answer.text)) {
        throw new NotMillraceError({ op: call.op, status: answer.status,
          detail: "this is not a Millrace server" });
      }
      throw unreadable(call.op, answer.status, err, !call.readOnly);
    }
  }

  /**
   * Makes a DELETE that a server answers with 204. What is not found after a try whose answer was
   * lost was deleted by that try.
   */
  async deleteOnce(call: Omit<Call, "method" | "accept">): Promise<void> {
    try {
      await this.send({ ...call, method: "DELETE", accept: [204] });
    } catch (err) {
      const wasDeleted = err instanceof MillraceError && err.status === 404 && err.uncertain;
      if (!wasDeleted) throw err;
    }
  }

  /** Makes tries until one succeeds, or until another try is not allowed or of no use. */
  async repeat<T>(call: Call, attempt: () => Promise<Try<T>>): Promise<T> {
    let uncertain = false;
    let allRefused = true;
    for (let tries = 1; ; tries++) {
      const result = await attempt();
      if ("value" in result) return result.value;
      const { fail } = result;
      allRefused &&= isRefusal(fail);
      uncertain ||= fail.uncertain;
      fail.uncertain = uncertain && !call.readOnly;
      fail.allRefused = allRefused;
      fail.idempotencyKey = call.idempotencyKey;
      let pause = this.backoff.delay(tries, fail.retryAfter);
      let lastTry = (this.maxTries > 0 && tries >= this.maxTries) ||
        fail.retryAfter > maxRetryAfter;
      if (call.outage && isRetryable(fail)) {
        call.outage.outcomeFailed(failed(fail));
        pause = Math.min(pause, Math.min(fail.retryAfter, maxRetryAfter) + maxOutcomePause);
        lastTry = false;
      }
      const isOver = call.once || lastTry || (call.notIdempotent && uncertain);
      if (isOver || !isRetryable(fail)) throw failed(fail);
      if (!(await sleep(pause, call.signal))) {
        throw failed({ ...fail, transient: false, as: AbortedError,
          cause: call.signal?.reason as unknown });
      }
    }
  }

  /** Makes one try of a call. The body of its answer has been read when it returns. */
  async try(call: Call): Promise<Try<Answer>> {
    return await this.#bounded(call, async (scope, timer) => {
      const response = await this.#fetch(call, scope.signal, timer);
      if (!call.accept.includes(response.status)) {
        const text = await readText(response, maxMessage, true);
        return { fail: responseFailure(call.op, response, text ?? "") };
      }
      const max = this.#config.maxResponseBytes;
      const text = await readText(response, max, false);
      if (text === undefined) {
        return { fail: { op: call.op, status: 0, retryAfter: 0, uncertain: true,
          detail: `the answer is larger than ${max} bytes (maxResponseBytes)` } };
      }
      return { value: { status: response.status, headers: response.headers, text } };
    });
  }

  /**
   * Makes one try of a call and returns the body of its answer as a stream. The request timeout
   * bounds the time until the answer begins. Canceling the stream ends the call.
   */
  async open(call: Call): Promise<Try<ReadableStream<Uint8Array>>> {
    return await this.#bounded(call, async (scope, timer) => {
      const response = await this.#fetch(call, scope.signal, timer);
      timer.stop();
      if (!call.accept.includes(response.status)) {
        const text = await readText(response, maxMessage, true);
        const fail = responseFailure(call.op, response, text ?? "");
        return { fail: { ...fail, uncertain: false } };
      }
      return { value: scoped(response.body ?? new Blob().stream(), scope) };
    });
  }

  /** Limits one try in time, and turns what it throws into a failure. */
  async #bounded<T>(call: Call,
    attempt: (scope: Scope, timer: Timer) => Promise<Try<T>>): Promise<Try<T>> {
    if (call.signal?.aborted) {
      return { fail: { ...transportFailure(call.op, undefined, call.signal), uncertain: false } };
    }
    const scope = new Scope(call.signal);
    const seconds = this.#config.requestTimeout + (call.wait ?? 0) + (call.upload?.allowance ?? 0);
    const timer = after(seconds, () =>
      scope.abort(new Error(`no answer within ${seconds} s (requestTimeout)`)));
    let keepsScope = false;
    try {
      const result = await attempt(scope, timer);
      keepsScope = "value" in result && result.value instanceof ReadableStream;
      return result;
    } catch (err) {
      if (err instanceof MillraceError) throw err;
      const cause: unknown = scope.signal.aborted ? scope.signal.reason : err;
      return { fail: transportFailure(call.op, cause, call.signal) };
    } finally {
      timer.stop();
      if (!keepsScope) scope.close();
    }
  }

  /** Makes the HTTP request of a call, with the credentials of the client. */
  async #fetch(call: Call, signal: AbortSignal, timer: Timer): Promise<Response> {
    const query = call.query?.toString();
    const url = `${this.#config.baseURL}${call.path}${query ? `?${query}` : ""}`;
    const init: RequestInit & { duplex?: "half" } = {
      method: call.method,
      headers: this.#headers(call),
      redirect: "manual", // no contract redirects
      signal,
      cache: "no-store",
      credentials: "omit",
    };
    if (call.body !== undefined) init.body = call.body;
    if (call.upload) {
      init.body = call.upload.open(() => timer.restart());
      init.duplex = "half";
    }
    return await this.#config.fetch.call(globalThis, url, init);
  }

  #headers(call: Call): Headers {
    const headers = new Headers({ "User-Agent": this.#config.userAgent });
    if (this.#config.token) headers.set("Authorization", `Bearer ${this.#config.token}`);
    if (call.body !== undefined) headers.set("Content-Type", "application/json");
    try {
      for (const [name, value] of Object.entries(call.header ?? {})) {
        if (value === null) headers.delete(name);
        else headers.set(name, bytesAsText(value));
      }
    } catch (err) {
      throw invalid(call.op, err);
    }
    return headers;
  }
}

/** A text whose characters are the bytes of the UTF-8 of a value: headers are bytes for fetch. */
function bytesAsText(value: string): string {
  return Array.from(new TextEncoder().encode(value), (b) => String.fromCharCode(b)).join("");
}

/**
 * Reads the body of an answer. Of one that is longer than max bytes the result is undefined, or its
 * beginning when cut is true, and the rest is not read.
 */
async function readText(response: Response, max: number,
  cut: boolean): Promise<string | undefined> {
  if (!response.body) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let size = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > max) {
      void reader.cancel().catch(() => {});
      const rest = value.subarray(0, value.byteLength - (size - max));
      return cut ? text + decoder.decode(rest) : undefined;
    }
    text += decoder.decode(value, { stream: true });
  }
}

/** A stream that closes its scope when it has ended, and aborts it when it is canceled. */
function scoped(body: ReadableStream<Uint8Array>, scope: Scope): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        scope.close();
        controller.close();
      } catch (err) {
        scope.close();
        throw err;
      }
    },
    async cancel(reason) {
      scope.close();
      await reader.cancel(reason).catch(() => {});
    },
  });
}

/** The query parameters that have a value: empty texts, 0, false and missing ones have none. */
export function queryOf(members: Record<string, QueryValue>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (!value) continue;
    query.set(name, value instanceof Date ? timeText(name, value) : String(value));
  }
  return query;
}

/** What a query parameter is made of. */
export type QueryValue = string | number | bigint | boolean | Date | null | undefined;

/** The text of a time that is a Date or a text already. */
export function timeText(what: string, time: Date | string): string {
  if (typeof time === "string") return time;
  if (!(time instanceof Date) || Number.isNaN(time.getTime())) {
    throw new TypeError(`${what} is not a time`);
  }
  return time.toISOString();
}

/** The policy of a call, which a worker gives in addition to the signal. */
export function policyOf(options: CallPolicy): CallPolicy {
  return { signal: options.signal, once: options.once ?? false, outage: options.outage };
}

/** Calls fn, whose errors mean that the request is invalid. */
export function checked<T>(op: string, fn: () => T): T {
  try {
    return fn();
  } catch (err) {
    throw err instanceof MillraceError ? err : invalid(op, err);
  }
}
