import { AbortedError, NotMillraceError, errorOf, isRetryableStatus, type ErrorFields,
  type MillraceError } from "./error.js";
import { retryAfterOf } from "./retry.js";

/** Failure is why a try of a call has failed, until it becomes the error of the call. */
export interface Failure extends ErrorFields {
  status: number;
  retryAfter: number;
  uncertain: boolean;
  /** The class of the error, where the status does not say it. */
  as?: typeof MillraceError;
}

/** Makes the error of a call. */
export function failed(fail: Failure): MillraceError {
  return fail.as ? new fail.as(fail) : errorOf(fail);
}

/** Reports whether the same call may succeed later. */
export function isRetryable(fail: Failure): boolean {
  return fail.status === 0 ? fail.transient === true : isRetryableStatus(fail.status);
}

/** Reports whether a try found no server, or one that does not serve the call now. */
export function isRefusal(fail: Failure): boolean {
  const notConnected = fail.transient === true && !fail.uncertain;
  return notConnected || fail.status === 429 || fail.status === 503;
}

/** The failure of an answer whose status is not accepted; text is the beginning of its body. */
export function responseFailure(op: string, response: Response, text: string): Failure {
  const fail: Failure = {
    op,
    status: response.status,
    detail: text.trim(),
    instance: response.headers.get("X-Request-Id") ?? "",
    retryAfter: retryAfterOf(response.headers),
    uncertain: response.status >= 500,
    server: response.status === 401 ? originOf(response.url) : "",
  };
  readProblem(fail, response.headers.get("Content-Type") ?? "", text);
  readForeign(fail, text);
  if (response.type === "opaqueredirect") fail.as = NotMillraceError;
  return fail;
}

/** The address of a server; empty where a fetch of the caller's own does not say it. */
function originOf(url: string): string {
  return url === "" ? "" : new URL(url).origin;
}

/**
 * Takes code and message from a problem document (RFC 9457) or from an error of TaskFlow or
 * FetchBox. With any other body the detail stays the plain text.
 */
function readProblem(fail: Failure, contentType: string, text: string): void {
  const mediaType = contentType.split(";", 1)[0]?.trim().toLowerCase();
  if (mediaType !== "application/json" && mediaType !== "application/problem+json") return;
  const body = membersOf(text);
  const detail = mediaType === "application/json" ? body.message : body.detail ?? body.title;
  if (mediaType === "application/json" && isObject(body.error)) {
    setProblem(fail, body.error.code, body.error.message);
    return;
  }
  if (mediaType === "application/json" && typeof body.code !== "string") return;
  setProblem(fail, body.code, detail);
  if (typeof body.instance === "string") fail.instance = body.instance;
  if (isObject(body.details)) {
    const { cycle_path: cycle, jobs } = body.details;
    if (Array.isArray(cycle)) fail.cycle = cycle.map(String);
    if (isObject(jobs)) fail.copies = jobs as Record<string, string>;
  }
}

function setProblem(fail: Failure, code: unknown, detail: unknown): void {
  if (typeof code === "string") fail.code = code;
  fail.detail = typeof detail === "string" ? detail : "";
}

function membersOf(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    return isObject(body) ? body : {};
  } catch {
    return {};
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Recognises the answer of another server, and removes a page from the detail. A gateway answers
 * with a page of its own when the server behind it is unavailable.
 */
function readForeign(fail: Failure, text: string): void {
  const goNotFound = "404 page not found\n";
  if (isPage(text)) fail.detail = "";
  if ((isPage(text) || text === goNotFound) && !isRetryable(fail)) {
    fail.as = NotMillraceError;
    fail.detail = "this is not a Millrace server";
    fail.uncertain = false;
  }
}

/** Reports whether a body is HTML, which no route of the contracts answers. */
export function isPage(text: string): boolean {
  return text.trimStart().startsWith("<");
}

/** The failure of a try without an answer. */
export function transportFailure(op: string, cause: unknown,
  signal: AbortSignal | undefined): Failure {
  const code = codeOf(cause);
  const wrongServer = certificateCodes.test(code);
  const notConnected = connectCodes.test(code);
  const uncertain = !wrongServer && !notConnected;
  const base = { op, status: 0, retryAfter: 0, uncertain };
  if (signal?.aborted) return { ...base, cause: signal.reason as unknown, as: AbortedError };
  return { ...base, cause, transient: !wrongServer, notConnected };
}

/** The codes of errors before there was a connection, so that no server has seen the request. */
const connectCodes =
  /^(ECONNREFUSED|ENOTFOUND|EAI_[A-Z]+|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

/** The codes of a certificate that was rejected, and of a server that speaks HTTP, not HTTPS. */
const certificateCodes = new RegExp("^(CERT_.*|.*_CERT|.*_CERT_.*|.*_SIGNATURE|ERR_TLS_.*|" +
  "ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$");

/** The code of the error below an error of fetch, where the platform has one. */
function codeOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (typeof code === "string") return code;
  if (error instanceof AggregateError && error.errors.length > 0) return codeOf(error.errors[0]);
  return error instanceof Error && error.cause !== undefined ? codeOf(error.cause) : "";
}
