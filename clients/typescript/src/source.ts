// A runner is made for any contract. These interfaces are what it needs of one: Worker gives it the
// source of a Relay queue, JobWorker the source of a contract behind the worker API.

import type { Attempt } from "./attempt.js";
import type { CallPolicy } from "./http.js";

/** Source claims jobs. */
export interface Source {
  /**
   * Leases up to max jobs and waits up to wait seconds for the first one. It makes one try, because
   * the runner has its own backoff. drained says that the worker gets no further jobs.
   */
  claim(max: number, wait: number, signal: AbortSignal):
    Promise<{ leases: Lease[]; drained: boolean }>;
  /** Waits until it is idle, with no request under way, after the last run has ended. */
  idle(): Promise<void>;
}

/** Lease is one claimed job, under the run id of its claim. */
export interface Lease {
  /**
   * How long the lease lasts after the claim and after each heartbeat, in seconds; 0 means that
   * heartbeats cannot extend it.
   */
  readonly timeout: number;
  /** Identifies the run in the log. */
  readonly logFields: object;
  /** Calls the handler. */
  handle(attempt: Attempt): Promise<void>;
  /**
   * Extends the lease and stores the state unless that is undefined. It fails with RunLostError
   * when the lease has ended. The result is true when the server asks the run to end although it
   * still has its lease.
   */
  heartbeat(state: unknown, policy: CallPolicy): Promise<boolean>;
  /**
   * Ends the lease with success. A result that the server refuses ends it with a failure, and is
   * the refusal. It may be called again after an error.
   */
  complete(policy: CallPolicy): Promise<Error | undefined>;
  /**
   * Reports why a handler has failed. cause is the reason of the handler's signal if that was
   * aborted before the handler returned. The lease ends by it, in a contract that has releases. It
   * may be called again after an error.
   */
  report(failure: unknown, cause: unknown, policy: CallPolicy): Promise<void>;
  /**
   * Gives the job back without an attempt counted, in a contract that has that; without it a failed
   * job returns when its lease expires.
   */
  release?(policy: CallPolicy): Promise<void>;
  /**
   * Is called when nothing more will be sent about the run, with the reason why the job was not
   * completed; undefined if it was, or was requeued or released by the handler.
   */
  runEnded(reason: Error | undefined): void;
}
