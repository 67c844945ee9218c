/** The members that a MillraceError is made of. */
export interface ErrorFields {
  op: string;
  status?: number;
  code?: string;
  detail?: string;
  cycle?: string[];
  copies?: Record<string, string>;
  instance?: string;
  server?: string;
  retryAfter?: number;
  uncertain?: boolean;
  idempotencyKey?: string | undefined;
  cause?: unknown;
  /** The connection failed, so that another try may succeed. */
  transient?: boolean;
  /** No connection to the server was made. */
  notConnected?: boolean;
  /** No try has reached a server that serves the call now. */
  allRefused?: boolean;
}

/**
 * The error of every call of a contract. Its subclasses are the kinds to catch:
 *
 *     MillraceError
 *      ├── NotFoundError        no such job, or its file was deleted (404, 410)
 *      ├── ConflictError        the present state forbids the call (409)
 *      │    └── CycleError      dependencies that form a cycle
 *      ├── InvalidError         the request was refused, or not sent (400, 413, 415, 422)
 *      ├── UnauthorizedError    the token is missing, wrong or without permission (401, 403)
 *      ├── RetryableError       the same call may succeed later (429, 502, 503, 504, no answer)
 *      ├── NotMillraceError     the answer is not one of Millrace
 *      ├── RunLostError         the run is not the job's current one any more
 *      ├── RunFinishedError     the run was requeued or released, or its handler has returned
 *      └── AbortedError         the signal of the call was aborted
 *
 * An answer of any other kind, such as a 500, is a MillraceError itself. The message has all that
 * is known.
 */
export class MillraceError extends Error {
  /** Names the call, such as "relay enqueue". */
  readonly op: string;
  /** The HTTP status of the last answer; 0 when none came. */
  readonly status: number;
  /**
   * The contract's code of the failure: the code of a problem document (RFC 9457), or of an error
   * of TaskFlow or FetchBox; else empty. Those of ForgeRun begin with RFA_.
   */
  readonly code: string;
  /** The server's explanation, if it gave one; else empty. */
  readonly detail: string;
  /**
   * With a CycleError the jobs of the cycle, each once, from the changed job on along its
   * dependencies: by their ids, or by their refs when a graph was refused before it was sent.
   */
  readonly cycle: readonly string[];
  /**
   * With the ConflictError of a rerun, the ids of the jobs that an earlier rerun has made, by the
   * ids of their originals.
   */
  readonly copies: Readonly<Record<string, string>>;
  /** Identifies the request in the server's log, where the answer says it; else empty. */
  readonly instance: string;
  /**
   * The address that answered, where it refuses the token (401): the token may be that of another
   * server. Else it is empty.
   */
  readonly server: string;
  /** How many seconds the server asked the caller to wait; 0 when it did not. */
  readonly retryAfter: number;
  /**
   * A try of this call may have taken effect although no success was seen: its answer was lost, or
   * it was a 5xx. With a ConflictError the conflicting job may be the one that this call has
   * stored.
   */
  readonly uncertain: boolean;
  /**
   * The idempotency key that was sent with a submit or an upload: repeat that under the same key to
   * learn whether it has taken effect. Empty for other calls.
   */
  readonly idempotencyKey: string;
  readonly #transient: boolean;

  constructor(fields: ErrorFields) {
    super(messageOf(fields), "cause" in fields ? { cause: fields.cause } : {});
    this.name = new.target.name;
    this.op = fields.op;
    this.status = fields.status ?? 0;
    this.code = fields.code ?? "";
    this.detail = fields.detail ?? "";
    this.cycle = fields.cycle ?? [];
    this.copies = fields.copies ?? {};
    this.instance = fields.instance ?? "";
    this.server = fields.server ?? "";
    this.retryAfter = fields.retryAfter ?? 0;
    this.uncertain = fields.uncertain ?? false;
    this.idempotencyKey = fields.idempotencyKey ?? "";
    this.#transient = fields.transient ?? false;
  }

  /**
   * The same call may succeed later: the server said so (429, 503), a gateway could not reach it
   * (502, 504), or the connection failed.
   */
  get retryable(): boolean {
    return this.status === 0 ? this.#transient : isRetryableStatus(this.status);
  }
}

/** There is no such job (404), or the file was deleted (410). */
export class NotFoundError extends MillraceError {}

/**
 * The present state forbids the call (409), such as a job of the batch that exists already in mode
 * unique. {@link MillraceError.uncertain} marks a conflict that may be with the call's own earlier
 * try.
 */
export class ConflictError extends MillraceError {}

/**
 * The dependencies of a TaskFlow job would form a cycle. {@link MillraceError.cycle} has the jobs.
 */
export class CycleError extends ConflictError {}

/**
 * The content of the request was refused (400, 413, 415, 422, and the 403 of FetchBox), by the
 * server or, before anything was sent, by this package. The same request will be refused again.
 */
export class InvalidError extends MillraceError {}

/** The token is missing, wrong or without permission (401, 403). */
export class UnauthorizedError extends MillraceError {}

/** The same call may succeed later, see {@link MillraceError.retryable}. */
export class RetryableError extends MillraceError {}

/**
 * The answer is not one of Millrace, such as the page of another web server, or of a proxy that has
 * another address for the server.
 */
export class NotMillraceError extends MillraceError {}

/**
 * The run id is not the job's current one any more, because the job timed out, was replaced,
 * requeued, completed or deleted. It is also the reason of a handler's signal.
 */
export class RunLostError extends MillraceError {}

/**
 * The handler has already requeued or released this run, or has returned, so that nothing more can
 * be sent for it.
 */
export class RunFinishedError extends MillraceError {}

/**
 * The signal of the call was aborted before an answer came. The cause is the signal's reason. With
 * a status it is that of the last answer: the call was waiting to be repeated.
 */
export class AbortedError extends MillraceError {}

/**
 * The reason of a handler's signal when the answer to a heartbeat asked the run to end. The run
 * still has its lease: what the handler returns counts.
 */
export class RunCanceledError extends Error {
  override readonly name: string = "RunCanceledError";
}

/**
 * The handlers of a worker did not finish within its drainTimeout. It is the reason of their
 * signals, and the error of {@link Worker.run} and {@link JobWorker.run}.
 */
export class DrainTimeoutError extends Error {
  override readonly name: string = "DrainTimeoutError";
}

/** Makes the error of a call, of the class that its status and code say. */
export function errorOf(fields: ErrorFields): MillraceError {
  return new (classOf(fields))(fields);
}

function classOf(fields: ErrorFields): typeof MillraceError {
  const { status = 0, code } = fields;
  if (status === 404 || status === 410) return NotFoundError;
  if (status === 409 && code === codeRunLost) return RunLostError;
  if (status === 409) return fields.cycle?.length ? CycleError : ConflictError;
  if (status === 403 && code === unsupportedJobType) return InvalidError;
  if (status === 401 || status === 403) return UnauthorizedError;
  if ([400, 413, 415, 422].includes(status)) return InvalidError;
  const retryable = status === 0 ? fields.transient : isRetryableStatus(status);
  return retryable ? RetryableError : MillraceError;
}

/** The code of a run that is not the job's current one. */
export const codeRunLost = "RUN_LOST";
/** The code of a broken rule, or of a result that the contract refuses. */
export const codeInvalid = "VALIDATION_ERROR";
const unsupportedJobType = "UNSUPPORTED_JOB_TYPE";

/** Reports whether an answer with a status may be another one later. */
export function isRetryableStatus(status: number): boolean {
  return status === 429 || status === 502 || status === 503 || status === 504;
}

function messageOf(fields: ErrorFields): string {
  let text = fields.op;
  if (fields.status) text += `: ${fields.status}`;
  if (fields.code) text += `: ${fields.code}`;
  if (fields.detail) text += `: ${fields.detail}`;
  if (fields.server) text += ` (the answer of ${fields.server})`;
  if (fields.instance) text += ` (request ${fields.instance})`;
  const cause = causeText(fields.cause);
  if (cause) text += `: ${cause}`;
  if (fields.notConnected) text += "; is the server running? `millrace serve` starts one";
  if (fields.uncertain && !fields.allRefused) text += " (a try may have taken effect)";
  return text;
}

/** The text of a cause, with its own cause: fetch says "fetch failed", and the cause why. */
function causeText(cause: unknown): string {
  if (cause === undefined) return "";
  if (!(cause instanceof Error)) return String(cause);
  const reason = cause instanceof MillraceError ? "" : causeText(cause.cause);
  const code = "code" in cause && typeof cause.code === "string" ? cause.code : "";
  return [cause.message || code || cause.name, reason].filter((text) => text !== "").join(": ");
}

/** The error of a request that was refused before it was sent. */
export function invalid(op: string, problem: unknown): InvalidError {
  const detail = problem instanceof Error ? problem.message : String(problem);
  return new InvalidError({ op, detail: `invalid request: ${detail}` });
}

/** The error of an answer that cannot be read. */
export function unreadable(op: string, status: number, cause: unknown,
  uncertain: boolean): MillraceError {
  return new MillraceError({ op, status, detail: "the answer cannot be read", cause, uncertain });
}

/** Makes an error of anything that was thrown. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown), { cause: thrown });
}

/** The text of anything that was thrown. */
export function textOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.message || thrown.name;
}
