import { checkHeader } from "./path.js";
import { listOf, shape } from "./shape.js";

/** The type of a job: process_file makes variants, delete_file removes the file with them. */
export type ImageJobType = "process_file" | "delete_file";

/**
 * The status of a job. After failed_retryable another attempt follows, after failed none: it is a
 * dead letter.
 */
export type ImageJobStatus = "queued" | "processing" | "completed" | "failed_retryable" | "failed";

/**
 * The status of a file: processing while its first variants are being made, ready when it has
 * variants (more may follow), failed when it gets none unless by a replay, deleted also while its
 * objects are removed.
 */
export type ImageFileStatus = "processing" | "ready" | "failed" | "deleted";

/** A picture to upload, a JPEG, PNG, GIF or WebP. One of type and name is needed. */
export interface ImageUpload {
  /**
   * The picture. A stream or an iterable is sent as it is read, so that memory does not grow with
   * it, and there is only one try; Node.js can do that, browsers cannot. A Blob, such as a File,
   * and bytes are sent again by a repeated try.
   */
  body: Blob | Uint8Array | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
  /** The media type, such as "image/png"; without it that of a Blob or of the extension of name. */
  type?: string;
  /** A file name, used for its extension only: it is not sent. */
  name?: string;
  /**
   * The longer sides of the variants in pixels: at most 20, each from 1 to 8192. Without them those
   * of the server's settings.
   */
  sizes?: readonly number[];
  /** Listed with the jobs of the file. */
  userId?: string;
  /** Makes an upload repeatable: the same key returns the same file. Without it a random one. */
  idempotencyKey?: string;
  /**
   * Receives a request when the job of the upload is completed or failed. Requests are signed with
   * the secret that `millrace operator secret images` prints, see {@link verifyWebhook}.
   */
  callbackUrl?: string;
}

/** The answer to an upload, which the server has stored. */
export interface ImageReceipt {
  fileId: string;
  /** The id of the job that makes the variants, and status is its status. */
  jobId: string;
  status: ImageJobStatus;
  /** The key that was sent. */
  idempotencyKey: string;
}

/** A picture and its variants. */
export interface ImageFile {
  id: string;
  status: ImageFileStatus;
  /** The media type of the upload, and the detected one once the file is ready. */
  type: string;
  bytes: number;
  /** Null until the file is ready. */
  width: number | null;
  height: number | null;
  /** In the order of their sizes. */
  variants: ImageVariant[];
  /** The id of the file's latest job. */
  jobId: string;
}

/**
 * A variant of a picture. Its longer side has size pixels, or as many as that of the original if
 * that is shorter.
 */
export interface ImageVariant {
  size: number;
  width: number;
  height: number;
  bytes: number;
  /** The key of its object in the object storage; it ends in .jpg or .png. */
  key: string;
  /** Its path on the server. */
  url: string;
}

/** A job of a file. */
export interface ImageJob {
  id: string;
  type: ImageJobType;
  status: ImageJobStatus;
  fileId: string;
  /** That of the upload. */
  userId: string | null;
  attempts: number;
  maxAttempts: number;
  /** Describe the latest failed attempt; null when none failed. */
  lastError: string | null;
  lastErrorType: string | null;
  createdAt: string;
  updatedAt: string;
  /** Null unless the job is processing. */
  lockedAt: string | null;
  /** Receives a request when the job has finished; null for none. */
  callbackUrl: string | null;
}

/** A job that was given up. */
export interface ImageDeadLetter {
  jobId: string;
  type: ImageJobType;
  fileId: string;
  error: string;
  errorType: string;
  attempts: number;
  failedAt: string;
  /** When it was last replayed, and the id of the job that was made then; null if it was not. */
  replayedAt: string | null;
  replayedAs: string | null;
}

/** The supported media types by the extension of a file name. */
const types: Record<string, string> = { jpg: "image/jpeg", jpeg: "image/jpeg", png: "image/png",
  gif: "image/gif", webp: "image/webp" };

/** The headers of an upload. Any other type is sent as it is: the server refuses it. */
export function uploadHeaders(up: ImageUpload, idempotencyKey: string): Record<string, string> {
  const extension = /\.([^./\\]*)$/.exec(up.name ?? "")?.[1]?.toLowerCase() ?? "";
  const ofBlob = up.body instanceof Blob ? up.body.type : "";
  const type = up.type || types[extension] || ofBlob || "application/octet-stream";
  const header: Record<string, string> = {};
  for (const [what, name, value] of [["type", "Content-Type", type],
    ["user id", "X-User-Id", up.userId], ["idempotency key", "Idempotency-Key", idempotencyKey],
  ] as const) {
    if (!value) continue;
    checkHeader(what, value);
    header[name] = value;
  }
  return header;
}

/** Reads a receipt, without its idempotency key. */
export const imageReceipt = shape<Omit<ImageReceipt, "idempotencyKey">>();

/** Reads a file. */
export const imageFile = shape<ImageFile>({
  rename: { file_id: "id", mime_type: "type", size_bytes: "bytes" },
  read: { variants: listOf(shape<ImageVariant>()) },
});

/** Reads a job. */
export const imageJob = shape<ImageJob>({
  rename: { job_id: "id", job_type: "type", attempt_count: "attempts" },
  absent: { callbackUrl: null } });

/** Reads a dead letter. */
export const imageDeadLetter = shape<ImageDeadLetter>({ rename: { job_type: "type" } });
