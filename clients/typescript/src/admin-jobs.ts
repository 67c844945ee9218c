// What the admin API says of jobs.

import { listOf, shape } from "./shape.js";

/**
 * What an operator may do with a job. Which of them a job allows depends on its contract and state:
 * {@link AdminActionResult.actions}.
 *
 * - "retry" makes a failed job ready once more; it stays the same job.
 * - "rerun" makes a new job of one that is finished.
 * - "run-now" makes a job that waits for its time due now.
 * - "cancel" cancels a job.
 * - "release" gives a leased job back. Its run is lost.
 * - "delete" deletes a job.
 */
export type AdminAction = "retry" | "rerun" | "run-now" | "cancel" | "release" | "delete";

/** What the store sees of a state; dead is one with a dead letter that was not replayed. */
export type AdminPhase = "waiting" | "ready" | "leased" | "done" | "dead";

/** A contract that the node which answers serves. */
export interface AdminContract {
  contract: string;
  /** The states of its jobs in its own words, in alphabetical order. */
  states: string[];
}

/**
 * A job as operators see it, with the words of its contract. Members that have no meaning for the
 * job are null.
 */
export interface AdminJob {
  /** The place of the job in the store. It is unique over all contracts. */
  number: number | bigint;
  contract: string;
  queue: string;
  /** The contract's id of the job. */
  id: string;
  /** The contract's word for what kind of job it is, such as "manifest". */
  kind: string | null;
  /** The contract's word for the state of the job. */
  state: string;
  phase: AdminPhase;
  /** Is higher for jobs that are claimed first. */
  priority: number | null;
  /** How often the job was claimed. */
  attempts: number;
  /** How many of the attempts have failed. */
  failures: number;
  /** The failures after which it is given up. */
  maxAttempts: number | null;
  createdAt: string;
  updatedAt: string;
  /** It is not claimed before. */
  dueAt: string | null;
  /** When the present or the last attempt began. */
  startedAt: string | null;
  /** When the job was finished. */
  finishedAt: string | null;
  /** When the attempt is lost without a heartbeat. */
  leaseUntil: string | null;
  /** The worker of the present or the last attempt. */
  worker: string | null;
  /** The client, tenant or file that the job belongs to. */
  owner: string | null;
  /** The number of the job that this one is a child of. */
  parentNumber: number | bigint | null;
  /** How many children this one has. */
  children: number | null;
  /** How many jobs it still waits for. */
  openDependencies: number | null;
  /** The first line of the failure, of 200 characters at most. */
  error: string | null;
  /** The bytes of the job, as its contract counts them. */
  size: number | null;
}

/** A job right after an operator has changed or submitted it. */
export interface AdminActionResult extends AdminJob {
  /** The number of the job that the action was on, where it made this one. */
  sourceNumber: number | bigint | null;
  /** Those that the job allows now. */
  actions: AdminAction[];
}

/** A body of a job. */
export type AdminBody = "payload" | "definition" | "progress" | "result" | "failure";

/**
 * A job with its bodies. Each is JSON as it is, an object {"encoding":"base64","data":…} where it
 * is not JSON, and null where there is none or the token may not see it. Of one that is longer than
 * 64 KiB it is the start, as a string; {@link Admin.jobBody} has all of it.
 */
export interface AdminJobDetail extends AdminJob {
  /** What was submitted. */
  payload: any;
  /** What its contract keeps of it. */
  definition: any;
  /** The latest progress. */
  progress: any;
  /** What the work has left. */
  result: any;
  /** Why it failed. */
  failure: any;
  /** Which of the bodies are longer than 64 KiB. */
  payloadTruncated: boolean;
  definitionTruncated: boolean;
  progressTruncated: boolean;
  resultTruncated: boolean;
  failureTruncated: boolean;
  /** Those that the job allows now. */
  actions: AdminAction[];
  /** The id of its latest dead letter. */
  deadLetterId: number | bigint | null;
  /** The number of the job that this was replayed as. */
  replayedAs: number | bigint | null;
  links: AdminJobLinks;
}

/** Paths of what is known of a job elsewhere on the server. */
export interface AdminJobLinks {
  /** The contract's own route of the job. */
  contract: string | null;
  why: string;
  timeline: string;
  /** The job that it is a child of. */
  parent: string | null;
}

/** Selects the jobs of a list. Members that are missing select all. */
export interface AdminJobFilter {
  contract?: string;
  queue?: string;
  /** The contract's own words. */
  states?: readonly string[];
  phases?: readonly AdminPhase[];
  owner?: string;
  kind?: string;
  /** The contract's id, exactly. */
  id?: string;
  /** The numbers of some jobs, at most 1,000. */
  numbers?: readonly (number | bigint)[];
  parentNumber?: number | bigint;
  worker?: string;
  /** From is inclusive, before is exclusive. */
  createdFrom?: Date | string;
  createdBefore?: Date | string;
  finishedFrom?: Date | string;
  finishedBefore?: Date | string;
  /** Durations since the creation, such as "90m". */
  minAge?: string;
  maxAge?: string;
  minAttempts?: number;
  /** A text in the failure, without case. */
  errorContains?: string;
  /** A text in definition, payload or result, without case. */
  bodyContains?: string;
  /** Lists by number ascending; otherwise the newest jobs come first. */
  oldest?: boolean;
}

/** Why a job does not run, or that it does. */
export interface AdminWhy {
  number: number;
  /** The contract of its queue, as the list of queues has it. */
  contract: string;
  queue: string;
  /** The answer for people: the text of the first reason. */
  summary: string;
  /**
   * All that hold, the one that holds the job longest first. There are none where the next claim of
   * its queue takes the job.
   */
  reasons: AdminReason[];
  /** The earliest time at which that may change by itself; null if no reason has one. */
  next: string | null;
}

/** One reason. */
export interface AdminReason {
  /** Later servers may have further ones. */
  code: AdminReasonCode;
  /** The reason for people. */
  text: string;
  /**
   * What the text was made of, by name. Each code has its own; the OpenAPI document of the admin
   * API describes them.
   */
  facts: Record<string, any>;
}

/**
 * Names a reason. "behind" is that other jobs of its queue are claimed first, "nobody_asks" that no
 * worker has claimed from its queue for half a minute or longer.
 */
export type AdminReasonCode =
  | "running" | "not_due" | "backing_off" | "waits_for_dependencies" | "waits_for_children"
  | "dependency_failed" | "queue_paused" | "queue_limit" | "contract_limit" | "rate_limited"
  | "behind" | "nobody_asks" | "node_draining" | "message_pending" | "done" | "dead"
  | (string & {});

/** What happened to a job. */
export interface AdminTimeline {
  /** In the order of their times. */
  entries: AdminTimelineEntry[];
  /** Whether there is more than these entries, of which there are 2,000 at most. */
  truncated: boolean;
}

/** One thing that happened to a job. Members without meaning for its kind are null. */
export interface AdminTimelineEntry {
  at: string;
  /** What the entry is about. Later servers may have further ones. */
  kind: string;
  /** For people; null where the token may not see what jobs carry. */
  text: string | null;
  /** How long it lasted, in seconds; null while it lasts. */
  duration: number | null;
  /**
   * The contract's word for the state that was entered, and cause says why; of a dependency, a
   * child and a delivery it is the present one.
   */
  state: string | null;
  cause: string | null;
  /** The members down to error are those of an attempt. */
  worker: string | null;
  runId: string | null;
  from: string | null;
  to: string | null;
  outcome: string | null;
  error: string | null;
  /** The number of the dependency, child or delivery, and id its contract's id. */
  number: number | bigint | null;
  id: string | null;
  /** Who has done action, as the audit has it. */
  actor: string | null;
  action: string | null;
}

/** Asks for counts. Contract and queue are filters. */
export interface AdminCountQuery {
  by: "contract" | "queue" | "phase" | "state" | "kind" | "worker";
  contract?: string;
  queue?: string;
}

/** How many jobs have one value of what is counted by. The other members are null. */
export interface AdminCount {
  /** Null where phases are counted. */
  contract: string | null;
  queue: string | null;
  phase: AdminPhase | null;
  state: string | null;
  /** Null for jobs without one; worker is null for jobs that were never claimed. */
  kind: string | null;
  worker: string | null;
  /**
   * How many there are. Where more were counted than the server counts one by one, it is null, and
   * atLeast is set.
   */
  count: number | null;
  atLeast: number | null;
}

/** A job to be submitted in place of a client. */
export interface AdminSubmission {
  /** The contract, such as "taskflow". */
  contract: string;
  /** What the contract's own route would take: a JSON object. */
  request: unknown;
  /** The client of ForgeRun, which needs one, or the tenant of FetchBox. */
  owner?: string;
  /** The job type of FetchBox. */
  jobType?: string;
  /**
   * The URL that receives a request when the job is finished, of FetchBox alone. Requests of other
   * contracts have their own.
   */
  callbackUrl?: string;
  /** Makes one job of several submissions with the same key. */
  idempotencyKey?: string;
}

const rename = { run_limit: "maxAttempts", settled_at: "finishedAt", parent: "parentNumber",
  made_from: "sourceNumber", dead_letter: "deadLetterId" };

/** Reads a contract. */
export const adminContract = shape<AdminContract>();

/** Reads a job. */
export const adminJob = shape<AdminJob>({ rename });

/** Reads a job after an action. */
export const adminActionResult = shape<AdminActionResult>({ rename,
  absent: { sourceNumber: null } });

/** Reads a job with its bodies. */
export const adminJobDetail = shape<AdminJobDetail>({ rename,
  read: { links: shape<AdminJobLinks>() } });

/** Reads why a job does not run. */
export const adminWhy = shape<AdminWhy>({ rename: { sentence: "summary" },
  read: { reasons: listOf(shape<AdminReason>()) } });

/** Reads what happened to a job. */
export const adminTimeline = shape<AdminTimeline>({
  read: { entries: listOf(shape<AdminTimelineEntry>({ rename: { lasted: "duration" } })) } });

/** Reads a count. */
export const adminCount = shape<AdminCount>({ absent: { contract: null, queue: null, phase: null,
  state: null, kind: null, worker: null, count: null, atLeast: null } });
