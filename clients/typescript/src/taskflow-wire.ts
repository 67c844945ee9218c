import { encode } from "./json.js";
import { checkName, wholeSeconds } from "./path.js";
import { listOf, shape } from "./shape.js";

/**
 * The status of a job: PENDING waits for its dependencies, READY can be claimed or waits for its
 * next attempt, RUNNING, COMPLETED, FAILED has used up its attempts or had a failure that was
 * final, BLOCKED has a dependency that has failed or is blocked.
 */
export type TaskFlowStatus =
  "PENDING" | "READY" | "RUNNING" | "COMPLETED" | "FAILED" | "BLOCKED";

/**
 * How the backoff grows, after the n-th failed attempt: FIXED is the base delay, LINEAR n times
 * that, EXPONENTIAL is doubled with each failure.
 */
export type TaskFlowBackoffStrategy = "FIXED" | "LINEAR" | "EXPONENTIAL";

/** A retry policy. A member that is missing means TaskFlow's default. */
export interface TaskFlowRetryPolicy {
  /** Limits the failed attempts, from 1 to 10; the default is 3. */
  maxAttempts?: number;
  /** How the delay grows; the default is EXPONENTIAL. */
  strategy?: TaskFlowBackoffStrategy;
  /**
   * The first delay, from 1 to 300 seconds; the default is 10. The wire has whole seconds;
   * fractions are rounded up.
   */
  baseDelay?: number;
  /** Limits the delay, from baseDelay to 3600 seconds, rounded like it; the default is 300. */
  maxDelay?: number;
}

/** A job as it is created. */
export interface TaskFlowSpec {
  /** Has 1 to 255 characters. */
  name: string;
  /** Has 1 to 64 letters, digits and underscores. */
  queue: string;
  /** Any JSON value of up to 65,536 bytes; {} without it. */
  payload?: unknown;
  /** From 1 to 10; a job of higher priority is claimed first. The default is 5. */
  priority?: number;
  /** The ids of at most 50 jobs that must be COMPLETED before this one runs. */
  dependencies?: readonly string[];
  /** The retry policy; without it TaskFlow's default. */
  retry?: TaskFlowRetryPolicy;
  /** Receives requests about events of the job. */
  callback?: TaskFlowCallback | null;
}

/**
 * A URL that gets events of one job. Requests are signed with the secret that `millrace operator
 * secret taskflow` prints, see {@link verifyWebhook}.
 */
export interface TaskFlowCallback {
  url: string;
  /** Types, or patterns with *, such as "taskflow.job.started"; without them the final ones. */
  events?: readonly string[];
}

/** A change of a job; members that are missing stay as they are. */
export interface TaskFlowPatch {
  name?: string;
  queue?: string;
  priority?: number;
  /** Replaces the whole payload. */
  payload?: unknown;
  /** Replaces all dependencies. */
  dependencies?: readonly string[];
  /**
   * Replaces the whole policy: members that are missing mean TaskFlow's defaults, not the present
   * values.
   */
  retry?: TaskFlowRetryPolicy;
}

/** The failure report of a worker. */
export interface TaskFlowFailure {
  message: string;
  type: string | null;
  /** What the worker reported. */
  retryable: boolean;
}

/** A job as the server has it. */
export interface TaskFlowJob<P = any> {
  /** A UUID. */
  id: string;
  name: string;
  queue: string;
  /** The payload, and payloadText is that byte for byte. */
  payload: P;
  payloadText: string;
  priority: number;
  dependencies: string[];
  retry: Required<TaskFlowRetryPolicy>;
  status: TaskFlowStatus;
  createdAt: string;
  updatedAt: string;
  /** The number of failed attempts. */
  failedAttempts: number;
  /** When a READY job that waits for its next attempt can be claimed; null for all others. */
  nextRunAt: string | null;
  /**
   * The result of the attempt that completed the job; null for none. Only {@link TaskFlow.get} and
   * {@link TaskFlow.wait} return it and lastError.
   */
  result: any;
  resultText: string;
  /** The latest failure that a worker reported; null if there was none. */
  lastError: TaskFlowFailure | null;
  /** The id of the job of which this one is a copy, and of the last copy of this one; or null. */
  rerunOf: string | null;
  rerunAs: string | null;
  /** That of its {@link TaskFlowSpec}; null for none. */
  callback: TaskFlowCallback | null;
}

/** Selects the jobs of a search. A job must match every member that is there. */
export interface TaskFlowFilter {
  queue?: string;
  status?: TaskFlowStatus;
  /** Bound the priority, both inclusive. */
  priorityMin?: number;
  priorityMax?: number;
  /** createdAfter is inclusive, createdBefore exclusive. */
  createdAfter?: Date | string;
  createdBefore?: Date | string;
  /** How many jobs each request asks for, from 1 to 100; without it the server sends 20. */
  pageSize?: number;
}

/** One page of a search. */
export interface TaskFlowPage<P = any> {
  /** The newest first, and those of the same time by id. */
  jobs: TaskFlowJob<P>[];
  /** The cursor of the next page; empty on the last page. */
  next: string;
}

/** A job in a graph. */
export interface TaskFlowGraphJob {
  id: string;
  name: string;
  queue: string;
  status: TaskFlowStatus;
  priority: number;
  failedAttempts: number;
}

/** Says that job to depends on job from. */
export interface TaskFlowEdge {
  from: string;
  to: string;
}

/** A set of jobs that are connected by dependencies. */
export interface TaskFlowGraph {
  jobs: TaskFlowGraphJob[];
  edges: TaskFlowEdge[];
  /** Whether the graph has more than the 2,000 jobs in jobs. */
  truncated: boolean;
}

/** The members of jobs that stay texts, besides their values. */
export const taskFlowTexts: ReadonlySet<string> = new Set(["payload", "result"]);

const retry = shape<Required<TaskFlowRetryPolicy>>({ rename: { backoff_strategy: "strategy",
  base_delay_seconds: "baseDelay", max_delay_seconds: "maxDelay" } });

const failure = shape<TaskFlowFailure>({ rename: { error: "message", error_type: "type" },
  absent: { type: null } });

const members = shape<TaskFlowJob>({
  rename: { retry_policy: "retry", attempt_count: "failedAttempts" },
  read: { retry_policy: retry, last_error: failure },
  absent: { nextRunAt: null, result: null, resultText: "null", lastError: null, rerunOf: null,
    rerunAs: null, callback: null },
});

/** Reads a job of an answer. */
export function taskFlowJob<P>(wire: unknown): TaskFlowJob<P> {
  return members(wire) as TaskFlowJob<P>;
}

/** Reads a graph of an answer. */
export const taskFlowGraph = shape<TaskFlowGraph>({ rename: { nodes: "jobs" }, read: {
  nodes: listOf(shape<TaskFlowGraphJob>({ rename: { job_id: "id",
    attempt_count: "failedAttempts" } })),
}, absent: { truncated: false } });

/** Encodes a job that is created. */
export function encodeTask(spec: TaskFlowSpec): string {
  const { dependencies } = spec;
  return encode({ ...taskMembers(spec), dependencies: dependencies?.length ? dependencies
    : undefined });
}

/** The members of a job on the wire, without its dependencies. */
export function taskMembers(spec: TaskFlowSpec): object {
  checkName("name", spec.name);
  checkName("queue", spec.queue);
  const { callback } = spec;
  return { ...patchMembers(spec), dependencies: undefined,
    callback: callback ? { url: callback.url, events: callback.events } : undefined };
}

/** Encodes a change of a job. */
export function encodePatch(patch: TaskFlowPatch): string {
  return encode(patchMembers(patch));
}

function patchMembers({ name, queue, priority, payload, dependencies, retry }: TaskFlowPatch):
  object {
  const seconds = (what: string, value: number | undefined) =>
    value === undefined ? undefined : wholeSeconds(what, value);
  return { name, queue, priority, payload, dependencies, retry_policy: retry && {
    max_attempts: retry.maxAttempts,
    backoff_strategy: retry.strategy,
    base_delay_seconds: seconds("baseDelay", retry.baseDelay),
    max_delay_seconds: seconds("maxDelay", retry.maxDelay),
  } };
}
