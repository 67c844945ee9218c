import type { CallOptions } from "./abort.js";
import { fetchBoxDeadLetter, fetchBoxHealth, fetchBoxJob, fetchBoxLogEntry, fetchBoxManifest,
  fetchBoxReceipt, fetchBoxReplay, fetchBoxTexts, submitHeaders, type FetchBoxDeadLetter,
  type FetchBoxHealth, type FetchBoxJob, type FetchBoxLogEntry, type FetchBoxReceipt,
  type FetchBoxReplay, type FetchBoxSpec, type FetchBoxStatus } from "./fetchbox-wire.js";
import { isFinal } from "./final.js";
import { checked, queryOf, type Call, type Http } from "./http.js";
import { decode } from "./json.js";
import { pages, type ListOptions } from "./pages.js";
import { checkSegment, pathOf } from "./path.js";
import { randomText } from "./random.js";
import { continued } from "./stream.js";
import { watch } from "./watch.js";

/** The size in bytes from which a manifest is sent compressed. */
const compressFrom = 16 << 10;
/** How many log entries one request asks for. */
const logPage = 1000;
/** Limits the line of a log entry, in characters. */
const maxLogLine = 1 << 20;

const jobsPath = "/operators/jobs";
const deadLettersPath = "/operators/dlq";

/** Selects a part of a log. */
export interface LogOptions extends CallOptions {
  /**
   * The offset of the first entry; without it the first of the job. To continue a log, pass the
   * offset of the last entry plus one.
   */
  since?: number | bigint;
  /** Waits for new entries after the last one. */
  follow?: boolean;
}

/**
 * FetchBox is the FetchBox contract: the server downloads the URLs of a manifest to object storage.
 * Every error is a {@link MillraceError} whose code, when the server answered, is INVALID_PAYLOAD,
 * UNAUTHORIZED, UNSUPPORTED_JOB_TYPE, PAYLOAD_TOO_LARGE, RATE_LIMITED, INTERNAL_ERROR, NOT_FOUND or
 * CONFLICT.
 *
 * {@link FetchBox.submit} is a call for clients. All others are for operators, who may have a token
 * of their own.
 */
export class FetchBox {
  readonly #http: Http;
  readonly #operator: string; // empty means the client's token

  /** @internal */
  constructor(http: Http, operator = "") {
    this.#http = http;
    this.#operator = operator;
  }

  /** The contract with another token for the calls of operators than the client's. */
  withOperatorToken(token: string): FetchBox {
    return new FetchBox(this.#http, token);
  }

  /**
   * Submits a manifest. When it returns the manifest is stored and its downloads are queued; they
   * survive a crash of the server.
   *
   * Errors: InvalidError, with the code UNSUPPORTED_JOB_TYPE for a job type that is not registered;
   * UnauthorizedError. After an error of the server no part of the job is stored, and the same key
   * may be used again.
   *
   * Repeating under the same idempotency key returns the first job, whatever the manifest is. It is
   * repeated so after lost answers; when that is given up, the error has the key.
   */
  async submit(spec: FetchBoxSpec, options: CallOptions = {}): Promise<FetchBoxReceipt> {
    const op = "fetchbox submit";
    const idempotencyKey = spec.idempotencyKey || randomText();
    const header = checked(op, () => submitHeaders(spec, idempotencyKey));
    let body: Uint8Array<ArrayBuffer> =
      new TextEncoder().encode(checked(op, () => fetchBoxManifest(spec.manifest)));
    if (body.length >= compressFrom) {
      body = await compressed(body);
      header["Content-Encoding"] = "gzip";
    }
    const receipt = await this.#http.json({ op, method: "POST", path: "/jobs", header, body,
      accept: [202], idempotencyKey, signal: options.signal }, fetchBoxReceipt);
    return { ...receipt, idempotencyKey };
  }

  /**
   * Reads a job from the ledger.
   *
   * Errors: NotFoundError, also after the ledger has pruned the job; UnauthorizedError. Repeating
   * is safe.
   */
  async job(jobId: string, options: CallOptions = {}): Promise<FetchBoxJob> {
    const op = "fetchbox job";
    return await this.#http.json(this.#read(op, jobPath(op, jobId), options), fetchBoxJob);
  }

  /**
   * Iterates over the jobs of the ledger, the newest first. A job that exists throughout comes
   * exactly once. It ends with the first error. With a status, a job that changes its status
   * meanwhile may be missed.
   */
  async *jobs(options: { status?: FetchBoxStatus } & ListOptions = {}):
    AsyncGenerator<FetchBoxJob, void, undefined> {
    const call = this.#read("fetchbox jobs", jobsPath, options);
    yield* pages(this.#http, { ...call, query: queryOf({ status: options.status }) }, fetchBoxJob,
      options.pageSize);
  }

  /**
   * Polls a job until it has finished, and returns it: all of its downloads have finished and its
   * handler has returned. It polls after growing pauses of up to two seconds, and continues while
   * the server is unavailable or limits requests. A replay may put a failed job in progress again.
   *
   * Errors: those of {@link FetchBox.job} except RetryableError; AbortedError.
   */
  async wait(jobId: string, options: CallOptions = {}): Promise<FetchBoxJob> {
    return await watch("fetchbox wait", options.signal, () => this.job(jobId, options),
      (job) => isFinal(job.status) && job.finishedAt !== null);
  }

  /**
   * Iterates over the log of a job: each entry once, in order. When the connection breaks, it
   * continues after the last entry, by the client's retry policy, whose tries are counted from zero
   * after each entry. Without follow it ends after the last entry. With follow it ends when the
   * caller stops it, or with an AbortedError.
   *
   * It ends with the first error: NotFoundError, UnauthorizedError, or RetryableError when the
   * tries are used up.
   */
  async *logs(jobId: string,
    options: LogOptions = {}): AsyncGenerator<FetchBoxLogEntry, void, undefined> {
    const op = "fetchbox logs";
    const call = this.#read(op, `${jobPath(op, jobId)}/logs`, options);
    const { follow = false } = options;
    let since = BigInt(options.since ?? 0);
    yield* continued(this.#http, {
      next: () => ({ ...call, query: queryOf({ since_offset: since, follow,
        limit: follow ? 0 : logPage }) }),
      read: (line) => {
        const entry = fetchBoxLogEntry(decode(line));
        if (BigInt(entry.offset) < since) throw new Error("an entry of the log comes twice");
        since = BigInt(entry.offset) + 1n;
        return entry;
      },
      end: (entries) => ({ isOver: !follow && entries < logPage, goesOn: !follow }),
      maxLine: maxLogLine,
    });
  }

  /**
   * Ends the open downloads of a job as failed, with the code CANCELED, and returns it. The job is
   * failed soon after.
   *
   * Errors: NotFoundError; ConflictError when no download is open, also when a try whose answer was
   * lost has ended them: the error is uncertain then; UnauthorizedError. After another error some
   * downloads of a large job may be canceled, and a repeat cancels the rest.
   */
  async cancel(jobId: string, options: CallOptions = {}): Promise<FetchBoxJob> {
    return await this.#operate("fetchbox cancel", jobId, "cancel", options);
  }

  /**
   * Starts all failed downloads of a job again, with all their attempts, and returns the job, which
   * is in progress then.
   *
   * Errors: those of {@link FetchBox.cancel}, for downloads that have failed.
   */
  async retry(jobId: string, options: CallOptions = {}): Promise<FetchBoxJob> {
    return await this.#operate("fetchbox retry", jobId, "retry", options);
  }

  /** Changes the downloads of a job. */
  async #operate(op: string, jobId: string, what: string,
    options: CallOptions): Promise<FetchBoxJob> {
    return await this.#http.json({ ...this.#read(op, `${jobPath(op, jobId)}/${what}`, options),
      method: "POST", readOnly: false, accept: [202] }, fetchBoxJob);
  }

  /**
   * Iterates over the downloads that were given up, the newest first. It ends with the first error.
   * A dead letter that was replayed stays in the list until its retention ends.
   */
  async *deadLetters(
    options: ListOptions = {}): AsyncGenerator<FetchBoxDeadLetter, void, undefined> {
    const call = this.#read("fetchbox dead letters", deadLettersPath, options);
    yield* pages(this.#http, { ...call, raw: fetchBoxTexts }, fetchBoxDeadLetter,
      options.pageSize);
  }

  /**
   * Starts the download of a dead letter again, with all its attempts. offset identifies the dead
   * letter. The job of the download is in progress again.
   *
   * Errors: NotFoundError when there is no such dead letter; ConflictError when its download was
   * replayed already, or belongs to no job of the ledger.
   *
   * Repeating: a repeat before the download has finished is a ConflictError, which is uncertain
   * after a lost answer. A repeat after it has failed again is another replay.
   */
  async replay(offset: number | bigint, options: CallOptions = {}): Promise<FetchBoxReplay> {
    const path = pathOf(deadLettersPath, String(offset), "replay");
    return await this.#http.json({ ...this.#read("fetchbox replay", path, options),
      method: "POST", readOnly: false, accept: [202] }, fetchBoxReplay);
  }

  /**
   * Reads the health of the server and its parts. A part that is down is no error, unless the
   * server cannot answer without it.
   *
   * Errors: UnauthorizedError; RetryableError. Repeating is safe.
   */
  async health(options: CallOptions = {}): Promise<FetchBoxHealth> {
    return await this.#http.json({ ...this.#read("fetchbox health", "/operators/health", options),
      accept: [200, 503] }, fetchBoxHealth);
  }

  /** A call of an operator that reads. */
  #read(op: string, path: string, { signal }: CallOptions): Call {
    const header: Record<string, string> = this.#operator
      ? { Authorization: `Bearer ${this.#operator}` } : {};
    return { op, method: "GET", path, header, readOnly: true, accept: [200], signal };
  }
}

function jobPath(op: string, jobId: string): string {
  return checked(op, () => {
    checkSegment("job id", jobId);
    return pathOf(jobsPath, jobId);
  });
}

/** Compresses bytes with gzip. */
async function compressed(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
