import { RunCanceledError } from "./error.js";

/** What a {@link JobError} says about a failure. */
export interface JobErrorOptions extends ErrorOptions {
  /** Names the kind of failure in up to 255 characters. */
  type?: string;
  /** No other run can succeed: the job fails without another attempt. */
  final?: boolean;
}

/**
 * JobError is for the handler of a {@link JobWorker} to throw: a failure with what its report says
 * about it.
 */
export class JobError extends Error {
  override readonly name: string = "JobError";
  readonly type: string;
  readonly final: boolean;

  constructor(message: string, options: JobErrorOptions = {}) {
    super(message, options);
    this.type = options.type ?? "";
    this.final = options.final ?? false;
  }
}

/**
 * Marks an error of a handler as one that no other run can avoid, for the handler to throw: the job
 * fails without another attempt.
 */
export function final(error: unknown): JobError {
  const type = causeOf(error, JobError)?.type ?? typeOf(error);
  const message = error instanceof Error ? error.message || error.name : String(error);
  return new JobError(message, { cause: error, type, final: true });
}

/**
 * Release is for the handler of a {@link JobWorker} to throw: the job is released, because the run
 * could not do its work for a reason outside the job. No failure is counted where the contract
 * allows that.
 */
export class Release extends Error {
  override readonly name: string = "Release";
}

/** The type of a failure, where its error says no other: the name of its class. */
export function typeOf(failure: unknown): string {
  return failure instanceof Error ? failure.name : "";
}

/**
 * The type of the failure of a handler, for its report. cause is the reason of its signal if that
 * was aborted.
 */
export function failureType(failure: unknown, cause: unknown): string {
  const type = causeOf(failure, JobError)?.type;
  return type ?? (cause instanceof RunCanceledError ? "canceled" : typeOf(failure));
}

/** How many bytes of an explanation are sent. */
const maxFailure = 8 << 10;

/** Cuts a text to what the server takes. */
export function truncated(text: string): string {
  const bytes = new TextEncoder().encode(text); // half of a surrogate pair becomes U+FFFD
  const decoder = new TextDecoder();
  if (bytes.length <= maxFailure) return decoder.decode(bytes);
  return `${decoder.decode(bytes.subarray(0, maxFailure), { stream: true })}…`;
}

/** The first error of a class among an error and its causes. */
export function causeOf<T extends Error>(error: unknown,
  kind: new (...args: never[]) => T): T | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof kind) return cause;
  }
  return undefined;
}
