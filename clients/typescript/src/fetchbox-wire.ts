import { encode } from "./json.js";
import { checkHeader, checkName } from "./path.js";
import { shape } from "./shape.js";

/**
 * The status of a job: queued is no download started, in_progress not all finished, completed all
 * succeeded, failed all finished and not all succeeded.
 */
export type FetchBoxStatus = "queued" | "in_progress" | "completed" | "failed";

/** A manifest as it is submitted. */
export interface FetchBoxSpec {
  /** A job type of the server's settings. */
  type: string;
  /** Recorded with the job and its downloads. */
  tenant?: string;
  /**
   * Makes a submit repeatable: within the server's window, the same tenant, type and key return the
   * same job. Without it a random one is used.
   */
  idempotencyKey?: string;
  /**
   * Receives a request when the job is completed or failed. Requests are signed with the secret
   * that `millrace operator secret fetchbox` prints, see {@link verifyWebhook}.
   */
  callbackUrl?: string;
  /** The manifest; a RawJSON travels byte for byte. */
  manifest: FetchBoxManifest | unknown;
}

/** A manifest. It is sent as one of version v1, see {@link fetchBoxManifest}. */
export interface FetchBoxManifest {
  /** A JSON object; {} without it. */
  metadata?: object;
  /** The downloads, 1 to 1000 unless the server's settings say otherwise. */
  resources: readonly FetchBoxResource[];
  /** A JSON object for handlers. */
  attributes?: object;
}

/** One download. */
export interface FetchBoxResource {
  /** Has at most 128 characters and is unique within the manifest. */
  id: string;
  /** Begins with http:// or https://. */
  url: string;
  /**
   * Sent with the request; they override those of the job type. At most 10, with values of at most
   * 1024 bytes.
   */
  headers?: Readonly<Record<string, string>>;
  /** Passed to the handler and the storage, within the same limits. */
  tags?: Readonly<Record<string, string>>;
}

/** The answer to a submitted manifest, which is stored and queued. */
export interface FetchBoxReceipt {
  /** A UUID. */
  jobId: string;
  /** The URI of the stored manifest. */
  manifestKey: string;
  /** The number of resources in the manifest. */
  resources: number;
  /** The key that was sent. */
  idempotencyKey: string;
}

/**
 * Why a download failed. The code is HTTP_ and a status, begins with DOWNLOAD_, UPLOAD_, HANDLER_
 * or SYSTEM_, or is CANCELED.
 */
export interface FetchBoxFailure {
  code: string;
  message: string;
}

/** A position in a stream. */
export interface FetchBoxLogPosition {
  stream: string;
  offset: number | bigint;
}

/** A job as the ledger has it. */
export interface FetchBoxJob {
  id: string;
  type: string;
  status: FetchBoxStatus;
  createdAt: string;
  /** Changes with every progress. */
  updatedAt: string;
  /** Null until all downloads have finished and the job's handler has returned. */
  finishedAt: string | null;
  /** The numbers of downloads. */
  total: number;
  completed: number;
  failed: number;
  /** Null when a direct producer published the tasks without one. */
  manifestKey: string | null;
  tenant: string | null;
  /** Where the job's log begins. */
  logStart: FetchBoxLogPosition;
  /** The latest failure; null when there was none. */
  lastError: FetchBoxFailure | null;
  /** Receives a request when the job has finished; null for none. */
  callbackUrl: string | null;
}

/**
 * A download as the server has it: the payload of a {@link JobWorker} for "fetchbox", and the
 * message that a direct producer publishes. Its members are those of the wire.
 */
export interface FetchBoxTask {
  job_id: string;
  job_type: string;
  resource_id: string;
  url: string;
  headers: Record<string, string>;
  tags: Record<string, string>;
  proxy?: { primary?: string; fallbacks?: string[] };
  storage?: { bucket?: string; key?: string; metadata?: Record<string, string> };
  manifest_key?: string;
  tenant?: string;
  trace_id?: string;
  attempt: number;
}

/** A download that was given up. */
export interface FetchBoxDeadLetter {
  /** Identifies the dead letter, for {@link FetchBox.replay}. */
  offset: number | bigint;
  /**
   * A {@link FetchBoxTask}, or whatever a direct producer published instead of one; taskText is
   * that byte for byte.
   */
  task: any;
  taskText: string;
  code: string;
  message: string;
  attempts: number;
  failedAt: string;
  /** When it was replayed, and the resource that was ready again then; null if it was not. */
  replayedAt: string | null;
  replayedAs: string | null;
}

/** The answer to a replay. */
export interface FetchBoxReplay {
  jobId: string;
  resourceId: string;
  /** That of the download. */
  status: string;
}

/** One entry in the log of a job. */
export interface FetchBoxLogEntry {
  /** Increases along the log. */
  offset: number | bigint;
  jobId: string;
  /** Null in an entry about the job as a whole. */
  resourceId: string | null;
  level: "info" | "warn" | "error";
  message: string;
  fields: Record<string, any>;
  /** Milliseconds since 1970. */
  timestampMs: number;
  traceId: string | null;
}

/** The health of the server and of its parts: api, ledger, stream, storage and proxy_pools. */
export interface FetchBoxHealth {
  status: FetchBoxComponent["status"];
  components: Record<string, FetchBoxComponent>;
}

/** The health of one part of the server. */
export interface FetchBoxComponent {
  status: "ok" | "degraded" | "down";
  detail?: string;
}

/**
 * The JSON of a manifest of version v1. Without a manifest_version of its own a manifest is made
 * one of v1, and anything else stays as it is, for the server to check.
 */
export function fetchBoxManifest(manifest: unknown): string {
  const isBuilt = typeof manifest === "object" && manifest !== null && "resources" in manifest &&
    !("manifest_version" in manifest);
  if (!isBuilt) return encode(manifest);
  const { metadata = {}, resources, attributes } = manifest as FetchBoxManifest;
  if (!Array.isArray(resources)) throw new TypeError("resources is not a list");
  resources.forEach((resource: Partial<FetchBoxResource> | null, i) => {
    checkName(`resource ${i}: id`, resource?.id);
    checkName(`resource ${i}: url`, resource?.url);
  });
  return encode({ manifest_version: "v1", metadata, resources, attributes });
}

/** The headers of a submit. */
export function submitHeaders(spec: FetchBoxSpec, idempotencyKey: string): Record<string, string> {
  checkName("job type", spec.type);
  const header: Record<string, string> = {};
  for (const [what, name, value] of [
    ["job type", "X-Fetchbox-Job-Type", spec.type],
    ["tenant", "X-Fetchbox-Tenant", spec.tenant],
    ["idempotency key", "X-Fetchbox-Idempotency-Key", idempotencyKey],
    ["callback URL", "X-Fetchbox-Callback-Url", spec.callbackUrl],
  ] as const) {
    if (!value) continue;
    checkHeader(what, value);
    header[name] = value;
  }
  return header;
}

/** The members of dead letters that stay texts, besides their values. */
export const fetchBoxTexts: ReadonlySet<string> = new Set(["task"]);

/** Reads a receipt, without its idempotency key. */
export const fetchBoxReceipt = shape<Omit<FetchBoxReceipt, "idempotencyKey">>({
  rename: { resource_count: "resources" } });

/** Reads a job. */
export const fetchBoxJob = shape<FetchBoxJob>({ rename: { job_id: "id", job_type: "type",
  resource_total: "total", resource_completed: "completed", resource_failed: "failed",
  log_cursor: "logStart" },
  absent: { callbackUrl: null } });

/** Reads a dead letter. */
export const fetchBoxDeadLetter = shape<FetchBoxDeadLetter>({ rename: { failure_code: "code",
  failure_message: "message" } });

/** Reads the answer to a replay. */
export const fetchBoxReplay = shape<FetchBoxReplay>();

/** Reads an entry of a log. */
export const fetchBoxLogEntry = shape<FetchBoxLogEntry>();

/** Reads the health of a server. */
export const fetchBoxHealth = shape<FetchBoxHealth>();
