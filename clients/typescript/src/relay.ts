import type { CallOptions } from "./abort.js";
import { MillraceError, RunLostError } from "./error.js";
import { checked, policyOf, type Answer, type Call, type CallPolicy, type Http,
  type RepeatedAnswer } from "./http.js";
import { encode } from "./json.js";
import { pages, type ListOptions } from "./pages.js";
import { checkName, checkSegment, pathOf, wholeSeconds } from "./path.js";
import { claimedJobs, encodeRuns, encodeSpecs, knownRuns, relayJob, relayTexts,
  type ClaimedRelayJob, type RelayHeartbeat, type RelayJob, type RelayMode, type RelayRun,
  type RelaySpec } from "./relay-wire.js";
import { shape } from "./shape.js";

/** The options of {@link Relay.enqueue} and {@link Relay.requeue}. */
export interface EnqueueOptions extends CallOptions {
  /** What happens to jobs that exist already; without it "unique". */
  mode?: RelayMode;
}

/** The options of {@link Relay.claim}. */
export interface ClaimOptions extends CallOptions {
  /** The most jobs to claim; 1 without it. */
  numJobs?: number;
  /**
   * How long the server may wait for a job before it answers that there is none: in whole seconds,
   * rounded up, and at most 30. Without it the server answers at once.
   */
  wait?: number;
}

/** A job that was out of retries. */
export interface RelayDeadLetter {
  /** The number of the dead letter. One job id may have several, as it can be used again. */
  id: number | bigint;
  queue: string;
  jobId: string;
  /** How often the job was claimed. */
  attempts: number;
  /** What is known of the last attempt. */
  error: string;
  /** Payload and state are as the job had them, payloadText and stateText byte for byte. */
  payload: unknown;
  payloadText: string;
  state: any;
  stateText: string;
  failedAt: string;
  /** When it was last replayed; null if it was not. */
  replayedAt: string | null;
}

const deadLetter = shape<RelayDeadLetter>({ absent: { replayedAt: null } });

/** The name of a call that a {@link Worker} makes in batches too. */
export const opHeartbeat = "relay heartbeat";
/** The name of the other one. */
export const opComplete = "relay complete";

/**
 * Relay is version 2 of the Relay contract: a queue for workers of your own. Every error is a
 * {@link MillraceError}.
 */
export class Relay {
  /** @internal */
  readonly http: Http;

  /** @internal */
  constructor(http: Http) {
    this.http = http;
  }

  /**
   * Stores a job, or jobs of one or several queues, all or none. When it returns they survive a
   * crash of the server. An empty list is no error.
   *
   * Errors: ConflictError in mode unique; InvalidError.
   *
   * Repeating: in mode unique a repeat can conflict with the jobs of an earlier try whose answer
   * was lost; the error is uncertain then, and {@link Relay.get} shows the stored job. In mode
   * ignore a repeat changes nothing. In mode replace it replaces the jobs once more, and a run that
   * began in between is lost.
   */
  async enqueue(jobs: RelaySpec | readonly RelaySpec[],
    options: EnqueueOptions = {}): Promise<void> {
    const op = "relay enqueue";
    const list: readonly RelaySpec[] = "queue" in jobs ? [jobs] : jobs;
    await this.http.send({
      op,
      method: "POST",
      path: "/v2/queues/jobs",
      query: modeQuery(options),
      body: checked(op, () => encodeSpecs(list)),
      accept: [202],
      signal: options.signal,
    });
  }

  /**
   * Claims due jobs of a queue, those with the earliest runAt first, and gives each a fresh runId.
   * There may be fewer than numJobs; when there are none the result is empty.
   *
   * Errors: InvalidError, also for numJobs below 1.
   *
   * Repeating: jobs in a lost answer are in flight without a worker. They return after their
   * timeout with one retry less. A repeat claims others.
   */
  async claim<P = any>(queue: string,
    options: ClaimOptions = {}): Promise<ClaimedRelayJob<P>[]> {
    const { jobs } = await this.nextFor<P>(queue, options, "");
    return jobs;
  }

  /** @internal Is claim, and says whether an operator has drained the worker. */
  async nextFor<P>(queue: string, options: ClaimOptions & CallPolicy,
    worker: string): Promise<{ jobs: ClaimedRelayJob<P>[]; drained: boolean }> {
    const op = "relay claim";
    const call = checked(op, (): Call => {
      checkSegment("queue", queue);
      const wait = wholeSeconds("wait", Math.max(options.wait ?? 0, 0));
      const header: Record<string, string> = {};
      if (wait > 0) header.Prefer = `wait=${wait}`;
      if (worker) header["Millrace-Worker"] = worker;
      return {
        op,
        method: "GET",
        path: pathOf("/v2/queues", queue, "jobs"),
        query: new URLSearchParams({ num_jobs: String(options.numJobs ?? 1) }),
        header,
        wait,
        once: options.once ?? false,
        accept: [200, 204],
        raw: relayTexts,
        signal: options.signal,
      };
    });
    const answer = await this.http.send(call);
    const drained = answer.headers.get("Millrace-Drain") === "true";
    if (answer.status === 204) return { jobs: [], drained };
    return { jobs: this.http.read(call, answer, (wire) => claimedJobs<P>(wire)), drained };
  }

  /**
   * Extends the lease of a run to a whole timeout. A state, any JSON value, is stored as the job's
   * state. Without one the stored state stays; null removes it.
   *
   * Errors: RunLostError when the run is not the job's current one; InvalidError.
   *
   * Repeating is safe: it stores the same state again.
   */
  async heartbeat(run: RelayRun, options: { state?: unknown } & CallOptions = {}): Promise<void> {
    const { state } = options;
    const call: Call = {
      op: opHeartbeat,
      method: "PATCH",
      path: runPath(opHeartbeat, run),
      accept: [202],
      ...policyOf(options),
    };
    if (state !== undefined) call.body = checked(opHeartbeat, () => encode(state));
    try {
      await this.http.send(call);
    } catch (err) {
      if (!(err instanceof MillraceError) || err.status !== 404) throw err;
      throw lostRun(opHeartbeat, err);
    }
  }

  /**
   * Removes the job of a run and stores the given jobs, in one transaction. The given jobs may have
   * the same queue and id, also in mode unique, and are new in every respect. With an empty list it
   * is {@link Relay.complete}.
   *
   * When the run is lost the server answers with success and does nothing. {@link Run.requeue}, of
   * a {@link Worker}, fails with a RunLostError then.
   *
   * Errors: ConflictError in mode unique, after which the run continues; InvalidError.
   *
   * Repeating is safe: a success ends the run, and a request for a run that has ended removes and
   * stores nothing.
   */
  async requeue(run: RelayRun, jobs: readonly RelaySpec[],
    options: EnqueueOptions = {}): Promise<void> {
    await this.requeueOf(run, jobs, options);
  }

  /** @internal Is requeue, and returns the error of a run that is lost. */
  async requeueOf(run: RelayRun, jobs: readonly RelaySpec[],
    options: EnqueueOptions): Promise<RunLostError | undefined> {
    const op = "relay requeue";
    const answer = await this.http.send({
      op,
      method: "PUT",
      path: runPath(op, run),
      query: modeQuery(options),
      body: checked(op, () => encodeSpecs(jobs)),
      accept: [202],
      ...policyOf(options),
    });
    return lostBy(op, answer);
  }

  /**
   * Removes the job if this run is its current one. If it is not, nothing is removed, and that is
   * no error.
   *
   * Errors: InvalidError. Repeating is safe, because the run id must match.
   */
  async complete(run: RelayRun, options: CallOptions = {}): Promise<void> {
    await this.completeOf(run, options);
  }

  /** @internal Is complete, and returns the error of a run that is lost. */
  async completeOf(run: RelayRun, options: CallOptions): Promise<RunLostError | undefined> {
    const answer = await this.http.send({ op: opComplete, method: "DELETE",
      path: runPath(opComplete, run), accept: [200], ...policyOf(options) });
    return lostBy(opComplete, answer);
  }

  /**
   * Removes a job, in flight or not. Deleting a job that does not exist is no error.
   *
   * Errors: InvalidError. Repeating: a repeat also removes a job that was enqueued with the same
   * queue and id in between.
   */
  async delete(queue: string, id: string, options: CallOptions = {}): Promise<void> {
    await this.#onJob("relay delete", "DELETE", queue, id, { accept: [200], ...options });
  }

  /**
   * Reports whether a job exists, due or not, in flight or not.
   *
   * Errors: InvalidError. Repeating is safe.
   */
  async exists(queue: string, id: string, options: CallOptions = {}): Promise<boolean> {
    const { status } = await this.#onJob("relay exists", "HEAD", queue, id,
      { readOnly: true, accept: [200, 404], ...options });
    return status === 200;
  }

  /**
   * Reads a job without claiming it.
   *
   * Errors: NotFoundError; InvalidError. Repeating is safe.
   */
  async get<P = any>(queue: string, id: string,
    options: CallOptions = {}): Promise<RelayJob<P>> {
    const op = "relay get";
    return await this.http.json({ op, method: "GET", path: jobPath(op, queue, id), readOnly: true,
      accept: [200], raw: relayTexts, ...options }, (wire) => relayJob<P>(wire));
  }

  /**
   * Completes up to 50,000 runs, also of several queues, in one request and one transaction, for
   * programs that claim many jobs at a time. The i-th result is whether the i-th run was the
   * current one of its job, which is removed then. A run that is not does not affect the others,
   * and is no error; when two entries have the same run id, the second is not known. Without runs
   * nothing is sent.
   *
   * Errors: InvalidError when an entry is wrong, which the message names by its index, and for a
   * request that is too large; NotFoundError or another error with a server that does not have this
   * request, which is an extension of the protocol. No run has ended then, unless the error is
   * uncertain.
   *
   * Repeating is safe. After a try whose answer was lost, the runs that it has ended are not known.
   */
  async completeAll(runs: readonly RelayRun[], options: CallOptions = {}): Promise<boolean[]> {
    const names = runs.map(({ queue, id, runId }) => ({ queue, id, runId }));
    return await this.#postRuns("relay complete all", "/v2/queues/completions", names, options);
  }

  /**
   * Sends heartbeats of up to 50,000 runs, also of several queues, in one request and one
   * transaction. The i-th result is whether the i-th entry named the current run of its job; where
   * it is false the run is lost, and its worker should stop. That does not affect the others. When
   * two entries have the same run id, the last state counts. Without heartbeats nothing is sent.
   *
   * Errors: those of {@link Relay.completeAll}. Repeating is safe: it stores the same states again.
   */
  async heartbeatAll(heartbeats: readonly RelayHeartbeat[],
    options: CallOptions = {}): Promise<boolean[]> {
    return await this.#postRuns("relay heartbeat all", "/v2/queues/heartbeats", heartbeats,
      options);
  }

  /**
   * Iterates over the dead letters of a queue, the oldest first. It ends with the first error. A
   * dead letter that was replayed stays in the list.
   *
   * Errors: InvalidError. Repeating is safe.
   */
  async *deadLetters(queue: string,
    options: ListOptions = {}): AsyncGenerator<RelayDeadLetter, void, undefined> {
    const op = "relay dead letters";
    const path = deadLettersPath(op, queue);
    yield* pages(this.http, { op, method: "GET", path, readOnly: true, accept: [200],
      raw: relayTexts, signal: options.signal }, deadLetter, options.pageSize);
  }

  /**
   * Enqueues the job of a dead letter again, under its id and with all of its retries, and returns
   * it. With again also one that was replayed before.
   *
   * Errors: NotFoundError; ConflictError when it was replayed before, and when a job has its queue
   * and id; InvalidError.
   *
   * Repeating: after a try whose answer was lost, the conflict of a repeat may be with that try;
   * the error is uncertain then. With again a try whose answer was lost is not repeated.
   */
  async replay<P = any>(queue: string, id: number | bigint,
    options: { again?: boolean } & CallOptions = {}): Promise<RelayJob<P>> {
    const op = "relay replay";
    const call: Call = {
      op,
      method: "POST",
      path: pathOf(deadLettersPath(op, queue), String(id), "replay"),
      accept: [202],
      notIdempotent: options.again ?? false,
      raw: relayTexts,
      signal: options.signal,
    };
    if (options.again) call.body = encode({ again: true });
    return await this.http.json(call, (wire) => relayJob<P>(wire));
  }

  async #onJob(op: string, method: string, queue: string, id: string,
    rest: Omit<Call, "op" | "method" | "path">): Promise<Answer> {
    return await this.http.send({ op, method, path: jobPath(op, queue, id), ...rest });
  }

  async #postRuns(op: string, path: string, entries: readonly RelayHeartbeat[],
    options: CallOptions): Promise<boolean[]> {
    if (entries.length === 0) return [];
    const body = checked(op, () => encodeRuns(entries));
    return await this.http.json({ op, method: "POST", path, body, accept: [200],
      ...policyOf(options) }, (wire) => knownRuns(wire, entries));
  }
}

/** The error of a heartbeat whose answer is that the run is lost. */
export function lostRun(op: string, err: MillraceError): RunLostError {
  return new RunLostError({ op, status: err.status, detail: err.detail, uncertain: err.uncertain });
}

/**
 * The error of an answer whose header says that the run of the request is lost. It is uncertain
 * when an earlier try of the call may have ended the run: its answer was lost, or it was one to try
 * again, which Relay also sends where it cannot tell what its store has done.
 */
function lostBy(op: string, answer: RepeatedAnswer): RunLostError | undefined {
  if (!answer.headers.get("Millrace-Lost-Runs")) return undefined;
  return notCurrent(op, answer.status, answer.uncertain || answer.repeated);
}

/** The error of a call whose answer says that the run is lost. */
export function notCurrent(op: string, status: number, uncertain: boolean): RunLostError {
  return new RunLostError({ op, status, uncertain,
    detail: "the run is no longer the job's current one" });
}

function modeQuery(options: EnqueueOptions): URLSearchParams {
  return new URLSearchParams(options.mode ? { mode: options.mode } : {});
}

function jobPath(op: string, queue: string, id: string): string {
  return checked(op, () => {
    checkSegment("queue", queue);
    checkSegment("id", id);
    return pathOf("/v2/queues", queue, "jobs", id);
  });
}

function runPath(op: string, run: RelayRun): string {
  return checked(op, () => {
    checkName("run id", run.runId);
    return pathOf(jobPath(op, run.queue, run.id), "run-id", run.runId);
  });
}

function deadLettersPath(op: string, queue: string): string {
  return checked(op, () => {
    checkSegment("queue", queue);
    return pathOf("/v2/queues", queue, "dead-letters");
  });
}
