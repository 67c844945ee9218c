// What the admin API says of queues, dead letters, workers, nodes and schedules.

import { listOf, shape } from "./shape.js";

/** A queue with its counts and what is in force for it. */
export interface AdminQueue {
  contract: string;
  queue: string;
  /** Jobs that wait for others or for their time. */
  waiting: number;
  /** Jobs that wait for a retry. */
  delayed: number;
  /** Jobs that may be claimed, and those that are leased. */
  ready: number;
  leased: number;
  /** The dead letters that were not replayed. */
  dead: number;
  /** Those that ask for it, over all nodes, without those that are drained. */
  workers: number;
  /** When a claim last asked for it, on any node; null is never within a week. */
  lastAskedAt: string | null;
  /** Since when the first job is ready, of any priority; null where none is. */
  oldestReadyAt: string | null;
  /**
   * New jobs, attempts that began, that succeeded, and that failed or were lost, over five minutes
   * on all nodes. Null where the server has too many active queues to count each.
   */
  submittedPerMinute: number | null;
  startedPerMinute: number | null;
  succeededPerMinute: number | null;
  failedPerMinute: number | null;
  /**
   * Percentiles of how long jobs were ready before an attempt, and of how long attempts took, in
   * seconds, over five minutes; null where there was none. They are estimates.
   */
  waitP50: number | null;
  waitP95: number | null;
  runP50: number | null;
  runP95: number | null;
  paused: boolean;
  /** How many jobs run at a time, over all nodes; null is no limit. */
  maxRunning: number | null;
  /** How many jobs start in every ratePeriod, such as "1m", over all nodes; null is no rate. */
  rate: number | null;
  ratePeriod: string | null;
}

/** Selects queues. Members that are missing select all. */
export interface AdminQueueFilter {
  contract?: string;
  /** In the name. */
  text?: string;
  /** By contract and name without it. */
  order?: "name" | "depth" | "age" | "failures";
  /** Also those of the server's own jobs: bulk operations and schedules. */
  internal?: boolean;
}

/** What to set for a queue. Members that are missing stay as they are. */
export interface AdminQueueChange {
  paused?: boolean;
  /** 0 is no limit. */
  maxRunning?: number;
  /** 0 is no rate. */
  rate?: number;
  /** Such as "1m"; needed with a first rate. */
  ratePeriod?: string;
}

/** A job that was given up, kept so that it can be replayed. */
export interface AdminDeadLetter {
  /** Unique over all contracts. It is not the number of the job. */
  id: number | bigint;
  /** What dead letters of one reason share. */
  fingerprint: string;
  contract: string;
  queue: string;
  /** The place of the job in the store, and jobId the contract's id of it. */
  number: number | bigint;
  jobId: string;
  /** How often the job was claimed, and worker is that of the last of them. */
  attempts: number;
  worker: string | null;
  /** The type or code of the failure; of a job without one, why it was given up. */
  errorType: string;
  /**
   * The text of the failure, at most 4 KiB; null where there is none. Of a job whose worker fell
   * silent it is what that reported last.
   */
  error: string | null;
  /** When the job was given up. */
  at: string;
  /** When it was last replayed, and the number of the job that ran then; null if it was not. */
  replayedAt: string | null;
  replayedAs: number | bigint | null;
}

/** What dead letters with one fingerprint have in common that were not replayed. */
export interface AdminDeadLetterGroup {
  fingerprint: string;
  contract: string;
  queue: string;
  /** Those of the newest dead letter. */
  errorType: string;
  error: string | null;
  /** How many there are, given up from firstAt to lastAt. */
  count: number;
  firstAt: string;
  lastAt: string;
}

/** Selects dead letters. Members that are missing select all. */
export interface AdminDeadLetterFilter {
  contract?: string;
  queue?: string;
  fingerprint?: string;
  /** In type or text of the error, without case. */
  error?: string;
  /** From is inclusive, to exclusive. */
  from?: Date | string;
  to?: Date | string;
}

/**
 * A worker as one node knows it. One that talks to several nodes, or works for several contracts,
 * is an entry for each.
 */
export interface AdminWorker {
  /** The name that its jobs show, and node is the one that knows it. */
  name: string;
  node: string;
  /** "process" for one of the node's own, else "outside". */
  kind: string;
  contract: string;
  /** Those that it asks for; none means all. */
  queues: string[];
  /** The numbers of the jobs that it executes. */
  running: (number | bigint)[];
  /** How many jobs it executes at once; null where the server does not know that. */
  slots: number | null;
  /** When the node heard of it first and last. */
  firstSeen: string;
  lastSeen: string;
  /** The attempts that it has ended on this node. */
  succeeded: number;
  failed: number;
  /** That of its node, or how its program names itself; null where it does not. */
  version: string | null;
  /** Whether it is given no further jobs. */
  draining: boolean;
  /** Whether nothing was heard of it for a minute and it runs nothing: most likely it has ended. */
  gone: boolean;
}

/** A node as it wrote last that it is. */
export interface AdminNode {
  /** Another one after each start. */
  name: string;
  version: string;
  address: string;
  startedAt: string;
  /** A node writes every five seconds. */
  lastSeen: string;
  draining: boolean;
  contracts: string[];
  /** The roles in which it is the leader. */
  leaderRoles: string[];
  goroutines: number;
  /** In bytes. */
  memory: number;
  /** Null where the system does not show it. */
  openFiles: number | null;
  store: AdminNodePart;
  stream: AdminNodePart | null;
  objects: AdminNodePart | null;
}

/** Something that a node depends on. */
export interface AdminNodePart {
  /** What it is, such as "postgres". */
  kind: string;
  state: "ok" | "failing";
  /** That of the transactions of the last five seconds, in seconds; null for none. */
  latencyP95: number | null;
  /** How its connections are used; null where it has none, as SQLite. */
  pool: { inUse: number; open: number; max: number } | null;
}

/** How the parts are that a node depends on. */
export interface AdminHealth {
  /** Whether every part works that is not optional. */
  ok: boolean;
  parts: AdminPart[];
}

/** Something that a node depends on, as it was found. */
export interface AdminPart {
  name: string;
  state: "ok" | "failing";
  /** When it began to be so, as far as the node knows. */
  since: string;
  /** It may fail while the node is ready. */
  optional: boolean;
  /** How long it took to find out, in seconds. */
  latency: number;
  /** Why the part failed last, and when; null if it has not since the node started. */
  lastError: string | null;
  lastErrorAt: string | null;
}

/**
 * What a schedule submits, and when. With {@link Admin.setSchedule} members that are missing stay
 * as they are. Durations are texts such as "90s".
 */
export interface AdminScheduleSpec {
  /**
   * Has five fields, or six with seconds first, or is @hourly and the like. It or every is needed.
   */
  cron?: string;
  /** The duration from each time to the next one, from 1s. */
  every?: string;
  /** That of cron, such as "Europe/Berlin"; UTC without one. */
  timeZone?: string;
  /** Gets the jobs, such as "taskflow". */
  contract?: string;
  /** What its own route would take. */
  request?: unknown;
  /** The client of ForgeRun, which needs one, or the tenant of FetchBox. */
  owner?: string;
  /** The job type of FetchBox. */
  jobType?: string;
  /** Where FetchBox tells the end of its jobs; requests of others hold their own. */
  callbackUrl?: string;
  /** What happens while the job of an earlier time is not settled; the default is "allow". */
  overlap?: "allow" | "skip" | "queue" | "replace";
  /** What happens about times that have passed in a downtime or a pause; the default is "last". */
  catchUp?: "last" | "none" | "all";
  /** The most by which a job is submitted after its time. */
  jitter?: string;
  /** Runs at no time. */
  paused?: boolean;
  /** The first moment that may be a time, and the first after those. */
  startsAt?: Date | string;
  endsAt?: Date | string;
}

/** A schedule; see {@link AdminScheduleSpec} for the members that it shares. */
export interface AdminSchedule {
  name: string;
  cron: string | null;
  every: string | null;
  timeZone: string | null;
  contract: string;
  request: any;
  owner: string | null;
  jobType: string | null;
  callbackUrl: string | null;
  overlap: string;
  catchUp: string;
  jitter: string | null;
  paused: boolean;
  startsAt: string | null;
  endsAt: string | null;
  /** The settings define it: it can be paused, and changed there alone. */
  fromSettings: boolean;
  createdAt: string;
  /** Its next times, without jitter. */
  next: string[];
  /** What was done about its latest time; null before the first. */
  latest: AdminScheduleTick | null;
  /** A time that could not be submitted for error, and is tried again. */
  failing: string | null;
  error: string | null;
  /** A time that waits until the job of an earlier one is settled. */
  queued: string | null;
}

/** What was done about a time of a schedule. */
export interface AdminScheduleTick {
  time: string;
  /**
   * When it was done, and lateness is how long that was after the time and its jitter, in seconds.
   */
  at: string;
  lateness: number;
  outcome: "submitted" | "skipped" | "missed";
  /** The number of the job that was submitted; null for none. */
  job: number | bigint | null;
  /** How many earlier times this one stands for. */
  passed: number;
  /** Why nothing was submitted. */
  error: string | null;
}

/** Reads a queue. */
export const adminQueue = shape<AdminQueue>({ rename: { run_limit: "maxRunning" } });

/** Reads a dead letter. */
export const adminDeadLetter = shape<AdminDeadLetter>();

/** Reads a group of dead letters. */
export const adminDeadLetterGroup = shape<AdminDeadLetterGroup>();

/** Reads a worker. */
export const adminWorker = shape<AdminWorker>();

const nodePart = shape<AdminNodePart>({
  read: { pool: shape<NonNullable<AdminNodePart["pool"]>>() } });

/** Reads a node. */
export const adminNode = shape<AdminNode>({ rename: { duties: "leaderRoles" },
  read: { store: nodePart, stream: nodePart, objects: nodePart } });

/** Reads the health of a node. */
export const adminHealth = shape<AdminHealth>({ read: { parts: listOf(shape<AdminPart>()) } });

/** Reads what was done about a time. */
export const adminScheduleTick = shape<AdminScheduleTick>();

/** Reads a schedule. */
export const adminSchedule = shape<AdminSchedule>({ read: { latest: adminScheduleTick } });
