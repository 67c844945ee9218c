import type { CallOptions } from "./abort.js";
import { isFinal } from "./final.js";
import { checked, queryOf, type Call, type Http, type Upload } from "./http.js";
import { imageDeadLetter, imageFile, imageJob, imageReceipt, uploadHeaders, type ImageDeadLetter,
  type ImageFile, type ImageJob, type ImageJobType, type ImageReceipt, type ImageJobStatus,
  type ImageUpload } from "./images-wire.js";
import { encode } from "./json.js";
import { pages, type ListOptions } from "./pages.js";
import { checkSegment, pathOf } from "./path.js";
import { randomText } from "./random.js";
import { stringOf } from "./shape.js";
import { watch } from "./watch.js";

const filesPath = "/images/v1/files";
const jobsPath = "/images/v1/jobs";
const deadLettersPath = "/images/v1/dead-letters";

/** How many bytes of an upload a second are enough, where its progress is not seen. */
const slowestUpload = 32 << 10;

/**
 * Images is the Images contract: pictures are uploaded, and the server makes variants of them.
 * Every error is a {@link MillraceError} whose code, when the server answered, is
 * VALIDATION_FAILED, UNAUTHORIZED, FILE_NOT_FOUND, JOB_NOT_FOUND, VARIANT_NOT_FOUND, FILE_DELETED,
 * NOT_REPLAYABLE, UPLOAD_TOO_LARGE or UNSUPPORTED_IMAGE_TYPE.
 */
export class Images {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Uploads a picture. When it returns the picture is stored and its job is queued; both survive a
   * crash of the server. The request timeout bounds how long an upload of a stream may make no
   * progress. Other uploads have that time and one second more for every 32 KiB.
   *
   * Errors: InvalidError, with the code UNSUPPORTED_IMAGE_TYPE or UPLOAD_TOO_LARGE;
   * UnauthorizedError. After an error of the server no part of the file is stored.
   *
   * Repeating under the same idempotency key returns the first file, whatever the picture is. It is
   * repeated so after lost answers if body can be sent again; when that is given up, the error has
   * the key.
   */
  async upload(up: ImageUpload, options: CallOptions = {}): Promise<ImageReceipt> {
    const op = "images upload";
    const idempotencyKey = up.idempotencyKey || randomText();
    const call = checked(op, (): Call => ({
      op,
      method: "POST",
      path: filesPath,
      query: queryOf({ sizes: up.sizes?.join(","), callback_url: up.callbackUrl }),
      header: uploadHeaders(up, idempotencyKey),
      upload: uploadOf(up.body),
      once: isStreamed(up.body),
      accept: [202],
      idempotencyKey,
      signal: options.signal,
    }));
    return { ...await this.#http.json(call, imageReceipt), idempotencyKey };
  }

  /**
   * Reads a file: its status and its variants.
   *
   * Errors: NotFoundError, UnauthorizedError. Repeating is safe.
   */
  async file(fileId: string, options: CallOptions = {}): Promise<ImageFile> {
    const op = "images file";
    return await this.#http.json(get(op, pathTo(op, filesPath, fileId), options), imageFile);
  }

  /**
   * Polls a file until its first variants are made, it has failed or it is deleted, and returns it.
   * For variants that are added to a ready file use {@link Images.waitJob}. It polls after growing
   * pauses of up to two seconds, and continues while the server is unavailable or limits requests.
   *
   * Errors: those of {@link Images.file} except RetryableError; AbortedError.
   */
  async wait(fileId: string, options: CallOptions = {}): Promise<ImageFile> {
    return await watch("images wait", options.signal, () => this.file(fileId, options),
      ({ status }) => status !== "processing");
  }

  /**
   * Opens the original as it was uploaded. The request timeout bounds the time until the picture
   * begins; the reading itself is bounded by the signal alone. Cancel the stream if it is not read
   * to its end.
   *
   * Errors: NotFoundError, with the code FILE_DELETED for a deleted file; UnauthorizedError. A
   * picture that breaks off is an error of the stream.
   */
  async content(fileId: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const op = "images content";
    return await this.#open(get(op, `${pathTo(op, filesPath, fileId)}/content`, options));
  }

  /**
   * Opens a variant of a file, as {@link Images.content} opens the original. size is the size that
   * was asked for.
   *
   * Errors: those of content; NotFoundError with the code VARIANT_NOT_FOUND when there is no
   * variant of this size, or not yet.
   */
  async variant(fileId: string, size: number,
    options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const op = "images variant";
    const path = `${pathTo(op, filesPath, fileId)}/variants/${size}`;
    return await this.#open(get(op, path, options));
  }

  async #open(call: Call): Promise<ReadableStream<Uint8Array>> {
    return await this.#http.repeat(call, () => this.#http.open(call));
  }

  /**
   * Deletes a file and returns the id of the job that removes its objects. When it returns the file
   * is deleted for all callers. Its objects are removed when the job has completed, see
   * {@link Images.waitJob}.
   *
   * Errors: NotFoundError; UnauthorizedError. Repeating returns the same job, unless that has
   * failed.
   */
  async delete(fileId: string, options: CallOptions = {}): Promise<string> {
    const op = "images delete";
    return await this.#http.json({ op, method: "DELETE", path: pathTo(op, filesPath, fileId),
      accept: [202], signal: options.signal }, (wire) => stringOf(wire, "job_id"));
  }

  /**
   * Stores another job for a file: process_file for more variants or delete_file for its deletion.
   * sizes are the longer sides of the variants in pixels; without them those of the server's
   * settings. callbackUrl is that of {@link ImageUpload}; a job that deletes has none.
   *
   * Errors: NotFoundError, with the code FILE_DELETED for a deleted file; InvalidError;
   * UnauthorizedError.
   *
   * Repeating would store another job, so a try whose answer was lost is not repeated. The error
   * is uncertain then.
   */
  async submitJob(jobType: ImageJobType, fileId: string,
    options: { sizes?: readonly number[]; callbackUrl?: string } & CallOptions = {},
  ): Promise<ImageJob> {
    const op = "images submit job";
    const body = checked(op, () => encode({ type: jobType, file_id: fileId,
      sizes: options.sizes, callback_url: options.callbackUrl || undefined }));
    return await this.#http.json({ op, method: "POST", path: jobsPath, body, accept: [202],
      notIdempotent: true, signal: options.signal }, imageJob);
  }

  /**
   * Reads a job.
   *
   * Errors: NotFoundError, UnauthorizedError. Repeating is safe.
   */
  async job(jobId: string, options: CallOptions = {}): Promise<ImageJob> {
    const op = "images job";
    return await this.#http.json(get(op, pathTo(op, jobsPath, jobId), options), imageJob);
  }

  /**
   * Polls a job until no attempt follows, and returns it, as {@link Images.wait} does with a file.
   *
   * Errors: those of {@link Images.job} except RetryableError; AbortedError.
   */
  async waitJob(jobId: string, options: CallOptions = {}): Promise<ImageJob> {
    return await watch("images wait job", options.signal, () => this.job(jobId, options),
      ({ status }) => isFinal(status));
  }

  /**
   * Iterates over the jobs, the newest first. A job that exists throughout comes exactly once. It
   * ends with the first error. With a status, a job that changes its status meanwhile may be
   * missed.
   */
  async *jobs(options: { status?: ImageJobStatus; type?: ImageJobType } & ListOptions = {}):
    AsyncGenerator<ImageJob, void, undefined> {
    const { status, type, pageSize } = options;
    const call = { ...get("images jobs", jobsPath, options), query: queryOf({ status, type }) };
    yield* pages(this.#http, call, imageJob, pageSize);
  }

  /**
   * Publishes the message of a job once more, which notifies a worker when the first message was
   * lost. It changes nothing else. It returns the status of the job.
   *
   * Errors: NotFoundError, UnauthorizedError. Repeating is safe.
   */
  async republishMessage(jobId: string, options: CallOptions = {}): Promise<ImageJobStatus> {
    const op = "images republish message";
    const body = checked(op, () => {
      checkSegment("job id", jobId);
      return encode({ job_id: jobId });
    });
    return await this.#http.json({ op, method: "POST", path: "/images/v1/messages", body,
      accept: [202], signal: options.signal },
      (wire) => stringOf(wire, "status") as ImageJobStatus);
  }

  /**
   * Iterates over the jobs that were given up, the newest first. It ends with the first error. A
   * dead letter that was replayed stays in the list until its retention ends.
   */
  async *deadLetters(options: ListOptions = {}): AsyncGenerator<ImageDeadLetter, void, undefined> {
    yield* pages(this.#http, get("images dead letters", deadLettersPath, options), imageDeadLetter,
      options.pageSize);
  }

  /**
   * Creates a new job that does what the job of a dead letter was to do.
   *
   * Errors: NotFoundError; ConflictError with the code NOT_REPLAYABLE for a job that is not a dead
   * letter; UnauthorizedError.
   *
   * Repeating: as with {@link Images.submitJob}, a try whose answer was lost is not repeated.
   */
  async replay(jobId: string, options: CallOptions = {}): Promise<ImageJob> {
    const op = "images replay";
    return await this.#http.json({ op, method: "POST",
      path: `${pathTo(op, deadLettersPath, jobId)}/replay`, accept: [202], notIdempotent: true,
      signal: options.signal }, imageJob);
  }

  /**
   * Gives up a job that waits for another attempt, and returns it.
   *
   * Errors: NotFoundError; ConflictError for a job in any other status, also when a try whose
   * answer was lost has given it up: the error is uncertain then; UnauthorizedError.
   */
  async cancelJob(jobId: string, options: CallOptions = {}): Promise<ImageJob> {
    const op = "images cancel";
    return await this.#http.json({ op, method: "POST",
      path: `${pathTo(op, jobsPath, jobId)}/cancel`, accept: [200], signal: options.signal },
    imageJob);
  }
}

function get(op: string, path: string, { signal }: CallOptions): Call {
  return { op, method: "GET", path, readOnly: true, accept: [200], signal };
}

function pathTo(op: string, collection: string, id: string): string {
  return checked(op, () => {
    checkSegment("id", id);
    return pathOf(collection, id);
  });
}

/** Whether a body is read while it is sent, so that it cannot be sent again. */
function isStreamed(body: ImageUpload["body"]): body is
  ReadableStream<Uint8Array> | AsyncIterable<Uint8Array> {
  return !(body instanceof Blob || body instanceof Uint8Array);
}

/** Makes the body of the requests of an upload. */
function uploadOf(body: ImageUpload["body"]): Upload {
  if (!isStreamed(body)) {
    const size = body instanceof Blob ? body.size : body.byteLength;
    return { open: () => body as BodyInit, allowance: size / slowestUpload };
  }
  if (!(body instanceof ReadableStream) && typeof body?.[Symbol.asyncIterator] !== "function") {
    throw new TypeError("body is not a Blob, bytes, a stream or an async iterable");
  }
  return { open: (onProgress) => watched(body, onProgress), allowance: 0 };
}

/** A stream of a body that reports when a part of it was taken. */
function watched(body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
  onProgress: () => void): ReadableStream<Uint8Array> {
  const reader = body instanceof ReadableStream ? body.getReader() : undefined;
  const parts = reader ? undefined : (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const part = await (reader ? reader.read() : parts?.next());
      onProgress();
      if (!part || part.done) controller.close();
      else controller.enqueue(part.value);
    },
    async cancel(reason) {
      await reader?.cancel(reason);
      await parts?.return?.();
    },
  });
}
