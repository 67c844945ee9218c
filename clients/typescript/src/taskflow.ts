import type { CallOptions } from "./abort.js";
import { isFinal } from "./final.js";
import { checked, queryOf, type Call, type Http } from "./http.js";
import { encode } from "./json.js";
import { checkSegment, pathOf } from "./path.js";
import { randomText } from "./random.js";
import { listOf, objectOf } from "./shape.js";
import type { TaskFlowGraphBuilder } from "./taskflow-graph.js";
import { encodePatch, encodeTask, taskFlowGraph, taskFlowJob, taskFlowTexts, type TaskFlowFilter,
  type TaskFlowGraph, type TaskFlowJob, type TaskFlowPage, type TaskFlowPatch, type TaskFlowSpec }
  from "./taskflow-wire.js";
import { watch } from "./watch.js";

const jobsPath = "/api/v1/jobs";

/** The options of {@link TaskFlow.rerun} and {@link TaskFlow.rerunGraph}. */
export interface RerunOptions extends CallOptions {
  /** Also what was rerun before. */
  again?: boolean;
}

/**
 * TaskFlow is the TaskFlow contract: jobs with priorities, dependencies and retry policies. Every
 * error is a {@link MillraceError} whose code, when the server answered, is VALIDATION_ERROR,
 * NOT_FOUND, CONFLICT, IDEMPOTENCY_CONFLICT, UNAUTHORIZED, METHOD_NOT_ALLOWED, PAYLOAD_TOO_LARGE or
 * INTERNAL_ERROR.
 *
 * A {@link JobWorker} for "taskflow" executes the jobs, or handlers in the server do.
 */
export class TaskFlow {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Stores a job and returns it as the server has it: READY, PENDING while it has unfinished
   * dependencies, or BLOCKED if one of them has failed.
   *
   * Errors: InvalidError, also for an unknown dependency; UnauthorizedError; RetryableError.
   *
   * Repeating would store another job, so a try whose answer was lost is not repeated. The error
   * is uncertain then, and the job may exist.
   */
  async submit<P = any>(spec: TaskFlowSpec, options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    return await this.#submit(spec, { notIdempotent: true, signal: options.signal });
  }

  /**
   * Is submit with an idempotency key of 1 to 255 characters: of equal specs with the same key one
   * makes a job, within the day for which the server remembers the key, and all others return that
   * job as it is then. An empty key is one that no other call has.
   *
   * Errors: those of submit; ConflictError with the code IDEMPOTENCY_CONFLICT where another spec
   * came with the key; NotFoundError where the job was deleted since. Repeating is safe.
   */
  async submitOnce<P = any>(key: string, spec: TaskFlowSpec,
    options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    return await this.#submit(spec, { header: keyHeader(key), signal: options.signal });
  }

  async #submit<P>(spec: TaskFlowSpec, rest: Partial<Call>): Promise<TaskFlowJob<P>> {
    const op = "taskflow submit";
    const body = checked(op, () => encodeTask(spec));
    return await this.#job({ op, method: "POST", path: jobsPath, body, accept: [201, 200],
      ...rest });
  }

  /**
   * Reads a job.
   *
   * Errors: NotFoundError; UnauthorizedError; RetryableError. Repeating is safe.
   */
  async get<P = any>(id: string, options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    const op = "taskflow get";
    return await this.#job({ op, method: "GET", path: jobPath(op, id), readOnly: true,
      accept: [200], signal: options.signal });
  }

  /**
   * Changes the members that are in the patch and returns the job. The new dependencies of a
   * PENDING job decide its status at once.
   *
   * Errors: NotFoundError; InvalidError; ConflictError for a job that has finished, and for
   * unfinished dependencies of a job that is READY or RUNNING; CycleError. Repeating is safe.
   */
  async update<P = any>(id: string, patch: TaskFlowPatch,
    options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    const op = "taskflow update";
    const path = jobPath(op, id);
    const body = checked(op, () => encodePatch(patch));
    return await this.#job({ op, method: "PUT", path, body, accept: [200],
      signal: options.signal });
  }

  /**
   * Deletes a job. The run of a RUNNING job is lost.
   *
   * Errors: NotFoundError; ConflictError when another job depends on it.
   *
   * Repeating is safe: when a job is not found after a try whose answer was lost, it is no error.
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    const op = "taskflow delete";
    await this.#http.deleteOnce({ op, path: jobPath(op, id), signal: options.signal });
  }

  /**
   * Deletes a job and all that depend on it, directly or through others, or none of them.
   *
   * Errors: NotFoundError; ConflictError while one of them is RUNNING. Repeating is as safe as that
   * of {@link TaskFlow.delete}.
   */
  async deleteWithDependents(id: string, options: CallOptions = {}): Promise<void> {
    const op = "taskflow delete";
    const query = queryOf({ cascade: true });
    await this.#http.deleteOnce({ op, path: jobPath(op, id), query, signal: options.signal });
  }

  /**
   * Ends the attempt of a job that is RUNNING: the job is FAILED for good, and its worker learns
   * that its run is lost. It returns the job.
   *
   * Errors: NotFoundError; ConflictError for a job that is not RUNNING, also when a try whose
   * answer was lost has ended it: the error is uncertain then.
   */
  async cancel<P = any>(id: string, options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    const op = "taskflow cancel";
    return await this.#job({ op, method: "POST", path: `${jobPath(op, id)}/cancel`, accept: [200],
      signal: options.signal });
  }

  /**
   * Makes new jobs of one that is FAILED or BLOCKED, and of those of its ancestors and dependents
   * that are as well. It returns the ids of the copies by those of their originals. A job is rerun
   * once, unless again is true.
   *
   * Errors: NotFoundError; ConflictError for any other job, and with copies for one that was rerun
   * before, by another call or by a try of this one whose answer was lost. With again a try whose
   * answer was lost is not repeated.
   */
  async rerun(id: string, options: RerunOptions = {}): Promise<Record<string, string>> {
    return await this.#rerun("taskflow rerun", id, "/rerun", options);
  }

  /**
   * Is rerun for all jobs that are connected with a job and are FAILED or BLOCKED. Without again
   * those that were rerun before are left out.
   */
  async rerunGraph(id: string, options: RerunOptions = {}): Promise<Record<string, string>> {
    return await this.#rerun("taskflow rerun graph", id, "/graph/rerun", options);
  }

  async #rerun(op: string, id: string, route: string,
    { again = false, signal }: RerunOptions): Promise<Record<string, string>> {
    return await this.#http.json({ op, method: "POST", path: jobPath(op, id) + route,
      body: encode({ again }), notIdempotent: again, accept: [201], signal }, copies);
  }

  /**
   * Polls a job until it has finished, and returns it. It polls after growing pauses of up to two
   * seconds, and continues while the server is unavailable or limits requests. A job that has
   * failed, or is blocked for good, is no error: its status says how it ended.
   *
   * Errors: those of {@link TaskFlow.get} except RetryableError; AbortedError.
   */
  async wait<P = any>(id: string, options: CallOptions = {}): Promise<TaskFlowJob<P>> {
    return await watch("taskflow wait", options.signal, () => this.get<P>(id, options),
      (job) => isFinal(job.status));
  }

  /**
   * Reads one page of a search: the first page for an empty cursor, else the page whose cursor was
   * next of another page.
   *
   * Errors: InvalidError for an invalid filter or cursor; UnauthorizedError; RetryableError.
   * Repeating is safe.
   */
  async page<P = any>(filter: TaskFlowFilter = {}, cursor = "",
    options: CallOptions = {}): Promise<TaskFlowPage<P>> {
    const op = "taskflow search";
    const query = checked(op, () => queryOf({
      queue: filter.queue,
      status: filter.status,
      priority_min: filter.priorityMin,
      priority_max: filter.priorityMax,
      created_after: filter.createdAfter,
      created_before: filter.createdBefore,
      limit: filter.pageSize,
      cursor,
    }));
    return await this.#http.json({ op, method: "GET", path: jobsPath, query, readOnly: true,
      accept: [200], raw: taskFlowTexts, signal: options.signal }, (wire) => {
      const { items, next_cursor: next, has_more: more } = objectOf(wire);
      return { jobs: listOf(taskFlowJob<P>)(items), next: more ? String(next ?? "") : "" };
    });
  }

  /**
   * Iterates over all jobs that match the filter, page by page. A job that exists throughout comes
   * exactly once. It ends with the first error, which is one of {@link TaskFlow.page}.
   */
  async *search<P = any>(filter: TaskFlowFilter = {},
    options: CallOptions = {}): AsyncGenerator<TaskFlowJob<P>, void, undefined> {
    let cursor = "";
    do {
      const { jobs, next } = await this.page<P>(filter, cursor, options);
      yield* jobs;
      cursor = next;
    } while (cursor !== "");
  }

  /**
   * Stores a graph, all of it or nothing, and returns the id of each job by its ref.
   *
   * Errors: InvalidError, also for refs that are unknown or used twice and for more than 10,000
   * jobs; CycleError with the refs along the cycle; UnauthorizedError; RetryableError.
   *
   * Repeating would store another graph, so a try whose answer was lost is not repeated. The error
   * is uncertain then, and the graph may exist.
   */
  async submitGraph(graph: TaskFlowGraphBuilder,
    options: CallOptions = {}): Promise<Record<string, string>> {
    return await this.#submitGraph(graph, { notIdempotent: true, signal: options.signal });
  }

  /**
   * Is submitGraph with an idempotency key, as that of {@link TaskFlow.submitOnce}: of equal graphs
   * with the same key one is stored, and all others return its ids. Repeating is safe.
   */
  async submitGraphOnce(key: string, graph: TaskFlowGraphBuilder,
    options: CallOptions = {}): Promise<Record<string, string>> {
    return await this.#submitGraph(graph, { header: keyHeader(key), signal: options.signal });
  }

  async #submitGraph(graph: TaskFlowGraphBuilder,
    rest: Partial<Call>): Promise<Record<string, string>> {
    const op = "taskflow submit graph";
    return await this.#http.json({ op, method: "POST", path: "/api/v1/graphs",
      body: graph.encode(op), accept: [201, 200], ...rest }, copies);
  }

  /**
   * Reads the graph of a job: all jobs that it depends on or that depend on it, directly or not.
   *
   * Errors: NotFoundError; UnauthorizedError; RetryableError. Repeating is safe.
   */
  async graph(id: string, options: CallOptions = {}): Promise<TaskFlowGraph> {
    const op = "taskflow graph";
    return await this.#http.json({ op, method: "GET", path: `${jobPath(op, id)}/graph`,
      readOnly: true, accept: [200], signal: options.signal }, taskFlowGraph);
  }

  /**
   * Polls the graph of a job until every job in it has finished, and returns it. Of a truncated
   * graph it sees only the jobs that {@link TaskFlow.graph} returns. Jobs that have failed are no
   * error: the status of each says how it ended.
   *
   * Errors: those of {@link TaskFlow.graph} except RetryableError; AbortedError.
   */
  async waitGraph(id: string, options: CallOptions = {}): Promise<TaskFlowGraph> {
    return await watch("taskflow wait graph", options.signal, () => this.graph(id, options),
      ({ jobs }) => jobs.every(({ status }) => isFinal(status)));
  }

  async #job<P>(call: Call): Promise<TaskFlowJob<P>> {
    return await this.#http.json({ raw: taskFlowTexts, ...call }, (wire) => taskFlowJob<P>(wire));
  }
}

/** Reads the ids of an answer. */
function copies(wire: unknown): Record<string, string> {
  return objectOf(objectOf(wire).jobs) as Record<string, string>;
}

/** A header with an idempotency key, a random one if the key is empty. */
export function keyHeader(key: string | undefined): Record<string, string> {
  return { "Idempotency-Key": key || randomText() };
}

function jobPath(op: string, id: string): string {
  return checked(op, () => {
    checkSegment("job id", id);
    return pathOf(jobsPath, id);
  });
}
