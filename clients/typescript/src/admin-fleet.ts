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
  /**
   * Workers that claim from it, over all nodes, without those that are drained. A remote worker
   * counts for a minute after its last request, unless it has left.
   */
  workers: number;
  /** When a worker last tried to claim from it, on any node; null is never within a week. */
  lastClaimAt: string | null;
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
  /** How many jobs start in every ratePeriod, such as "1m", over all nodes; null is no limit. */
  rateLimit: number | null;
  ratePeriod: string | null;
}

/** Selects queues. Members that are missing select all. */
export interface AdminQueueFilter {
  contract?: string;
  nameContains?: string;
  /** By contract and name without it. */
  order?: "name" | "depth" | "age" | "failures";
  /** Also those of the server's own jobs: bulk operations and schedules. */
  includeInternal?: boolean;
}

/** What to set for a queue. Members that are missing stay as they are. */
export interface AdminQueueChange {
  paused?: boolean;
  /** 0 is no limit. */
  maxRunning?: number;
  /** 0 is no limit. */
  rateLimit?: number;
  /** Such as "1m"; needed with a first rate limit. */
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
   * The text of the failure, at most 4 KiB; null where there is none. Of a job whose lease
   * expired it is what the worker reported last.
   */
  error: string | null;
  /** When the job was given up. */
  failedAt: string;
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
  /** The contract's id of the job, exactly. */
  jobId?: string;
  /** A text in the type or text of the error, without case. */
  errorContains?: string;
  /** From is inclusive, before is exclusive. */
  failedFrom?: Date | string;
  failedBefore?: Date | string;
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
  /** Those that it claims from; none means all. */
  queues: string[];
  /** The numbers of the jobs that it executes. */
  running: (number | bigint)[];
  /** How many jobs it executes at once; null where the server does not know that. */
  concurrency: number | null;
  /** When the node saw it first and last. */
  firstSeen: string;
  lastSeen: string;
  /** The attempts that it has ended on this node. */
  succeeded: number;
  failed: number;
  /** That of its node, or how its program names itself; null where it does not. */
  version: string | null;
  /** Whether it is given no further jobs. */
  draining: boolean;
  /** Whether it has sent no request for a minute and runs nothing: most likely it has ended. */
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
  /** Whether it has written nothing for 15 seconds; the rest is as it wrote it last. */
  gone: boolean;
  contracts: string[];
  /** The roles in which it is the leader. */
  leaderRoles: string[];
  goroutines: number;
  memoryBytes: number;
  /** Null where the system does not show it. */
  openFiles: number | null;
  store: AdminNodeComponent;
  stream: AdminNodeComponent | null;
  objects: AdminNodeComponent | null;
}

/** Something that a node depends on. */
export interface AdminNodeComponent {
  /** What it is, such as "postgres". */
  kind: string;
  state: "ok" | "failing";
  /** That of the transactions of the last five seconds, in seconds; null for none. */
  latencyP95: number | null;
  /** How its connections are used; null where it has none, as SQLite. */
  connections: AdminConnectionPool | null;
}

/** How the connections of a node to its store are used. */
export interface AdminConnectionPool {
  inUse: number;
  open: number;
  max: number;
}

/** The health of the components that a node depends on. */
export interface AdminHealth {
  /** Whether every component works that is not optional. */
  ok: boolean;
  components: AdminComponent[];
}

/** Something that a node depends on, as it was found. */
export interface AdminComponent {
  name: string;
  state: "ok" | "failing";
  /** When the state began, as far as the node knows. */
  stateSince: string;
  /** It may fail while the node is ready. */
  optional: boolean;
  /** How long it took to find out, in seconds. */
  latency: number;
  /** Why the component failed last, and when; null if it has not since the node started. */
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
  /** The duration from each tick to the next one, from 1s. */
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
  /**
   * The URL that receives a request when a job of FetchBox is finished; requests of other contracts
   * have their own.
   */
  callbackUrl?: string;
  /** What happens while the job of an earlier tick is not finished; the default is "allow". */
  overlap?: "allow" | "skip" | "queue" | "replace";
  /** What happens about ticks that were missed in a downtime or a pause; the default is "last". */
  catchUp?: "last" | "none" | "all";
  /** The most by which a job is submitted after its tick. */
  jitter?: string;
  /** A paused schedule submits nothing. */
  paused?: boolean;
  /** The earliest time that may be a tick, and the time from which on there are none. */
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
  /** The times of its next ticks, without jitter. */
  nextTimes: string[];
  /** What was done about its latest tick; null before the first. */
  lastTick: AdminScheduleTick | null;
  /** A tick whose job could not be submitted, for error; it is tried again. */
  failingTick: string | null;
  error: string | null;
  /** A tick that waits until the job of an earlier one is finished. */
  queuedTick: string | null;
}

/** What was done about a tick of a schedule. */
export interface AdminScheduleTick {
  /** The tick. */
  time: string;
  /**
   * When it was done, and lateness is how long that was after the tick and its jitter, in seconds.
   */
  at: string;
  lateness: number;
  outcome: "submitted" | "skipped" | "missed";
  /** The number of the job that was submitted; null for none. */
  jobNumber: number | bigint | null;
  /** How many earlier ticks, which were missed, this one stands for. */
  earlierMissed: number;
  /** Why nothing was submitted. */
  error: string | null;
}

/** Reads a queue. */
export const adminQueue = shape<AdminQueue>({ rename: { run_limit: "maxRunning",
  last_asked_at: "lastClaimAt", rate: "rateLimit" } });

/** Reads a dead letter. */
export const adminDeadLetter = shape<AdminDeadLetter>({ rename: { at: "failedAt" } });

/** Reads a group of dead letters. */
export const adminDeadLetterGroup = shape<AdminDeadLetterGroup>();

/** Reads a worker. */
export const adminWorker = shape<AdminWorker>({ rename: { slots: "concurrency" } });

const nodeComponent = shape<AdminNodeComponent>({ rename: { pool: "connections" },
  read: { pool: shape<AdminConnectionPool>() } });

/** Reads a node. */
export const adminNode = shape<AdminNode>({
  rename: { duties: "leaderRoles", memory: "memoryBytes" },
  read: { store: nodeComponent, stream: nodeComponent, objects: nodeComponent } });

/** Reads the health of a node. */
export const adminHealth = shape<AdminHealth>({ rename: { parts: "components" },
  read: { parts: listOf(shape<AdminComponent>({ rename: { since: "stateSince" } })) } });

/** Reads what was done about a tick. */
export const adminScheduleTick = shape<AdminScheduleTick>({ rename: { job: "jobNumber",
  passed: "earlierMissed" } });

/** Reads a schedule. */
export const adminSchedule = shape<AdminSchedule>({ rename: { next: "nextTimes",
  latest: "lastTick", failing: "failingTick", queued: "queuedTick" },
  read: { latest: adminScheduleTick } });
