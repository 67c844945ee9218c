import type { CallOptions } from "./abort.js";
import { adminDeadLetter, adminDeadLetterGroup, adminHealth, adminNode, adminQueue, adminSchedule,
  adminScheduleTick, adminWorker, type AdminDeadLetter, type AdminDeadLetterFilter,
  type AdminDeadLetterGroup, type AdminHealth, type AdminNode, type AdminQueue,
  type AdminQueueChange, type AdminQueueFilter, type AdminSchedule, type AdminScheduleSpec,
  type AdminScheduleTick, type AdminWorker } from "./admin-fleet.js";
import { adminActionResult, adminContract, adminCount, adminJob, adminJobDetail, adminTimeline,
  adminWhy, type AdminAction, type AdminActionResult, type AdminBody, type AdminContract,
  type AdminCount, type AdminCountQuery, type AdminJob, type AdminJobDetail, type AdminJobFilter,
  type AdminSubmission, type AdminTimeline, type AdminWhy } from "./admin-jobs.js";
import { checked, queryOf, timeText, type Call, type Http } from "./http.js";
import { encode } from "./json.js";
import { pages, type ListOptions } from "./pages.js";
import { checkHeader, checkSegment, pathOf } from "./path.js";
import { listOf, objectOf } from "./shape.js";

/** A call without what all calls of the admin API have in common. */
type AdminCall = Omit<Call, "method" | "path" | "accept"> &
  { method?: string; accept?: readonly number[] };

/** How many items of a short list one request asks for, without another pageSize. */
const wholeList = 500;

/**
 * Admin is the admin API, for operators. All of its calls need the operator's token; the read token
 * is enough for those that change nothing. Every change is an entry of the audit. The codes of its
 * errors are READ_ONLY for a token that only reads, FORBIDDEN, CONFLICT and NOT_ALLOWED.
 */
export class Admin {
  readonly #http: Http;
  readonly #actor: string;

  /** @internal */
  constructor(http: Http, actor = "") {
    this.#http = http;
    this.#actor = actor;
  }

  /**
   * The API with a name for the audit: who it is that uses the token. The name has at most 100
   * printable ASCII characters.
   */
  withActor(name: string): Admin {
    checked("admin", () => checkHeader("actor", name));
    return new Admin(this.#http, name);
  }

  /** Iterates over the contracts that the node which answers serves, by name. */
  async *contracts(options: ListOptions = {}): AsyncGenerator<AdminContract, void, undefined> {
    yield* this.#list("admin contracts", ["contracts"], whole(options), adminContract);
  }

  /** Checks the components on which the answering node depends. One that fails is no error. */
  async health(options: CallOptions = {}): Promise<AdminHealth> {
    return await this.#read("admin health", ["health"], options, adminHealth);
  }

  /**
   * Iterates over the jobs of all contracts that match a filter. It ends with the first error.
   * Where few jobs match, it asks the server more than once for the next of them.
   *
   * Errors: InvalidError, UnauthorizedError.
   */
  async *jobs(filter: AdminJobFilter = {},
    options: ListOptions = {}): AsyncGenerator<AdminJob, void, undefined> {
    yield* this.#list("admin jobs", ["jobs"], options, adminJob, {
      contract: filter.contract, queue: filter.queue, state: filter.states?.join(","),
      phase: filter.phases?.join(","), owner: filter.owner, kind: filter.kind, id: filter.id,
      number: filter.numbers?.join(","), parent: filter.parentNumber, worker: filter.worker,
      created_from: filter.createdFrom, created_before: filter.createdBefore,
      settled_from: filter.finishedFrom, settled_before: filter.finishedBefore,
      min_age: filter.minAge, max_age: filter.maxAge, min_attempts: filter.minAttempts,
      error: filter.errorContains, text: filter.bodyContains,
      order: filter.oldest ? "oldest" : "",
    });
  }

  /**
   * Returns the job with a number. One that is gone is as its dead letter has it.
   *
   * Errors: NotFoundError where there is no such job and no dead letter of it; UnauthorizedError.
   */
  async job(number: number | bigint, options: CallOptions = {}): Promise<AdminJobDetail> {
    return await this.#read("admin job", ["jobs", String(number)], options, adminJobDetail);
  }

  /**
   * Returns a body of the job with a number as it was sent, whole.
   *
   * Errors: NotFoundError where the job has none, or there is no such job; UnauthorizedError, also
   * where the token may not see it.
   */
  async jobBody(number: number | bigint, body: AdminBody,
    options: CallOptions = {}): Promise<string> {
    const { text } = await this.#http.send(this.#call(["jobs", String(number), body],
      { op: `admin job ${body}`, signal: options.signal }));
    return text;
  }

  /**
   * Says why the job with a number does not run, or that it does. The reasons are of one moment,
   * over all nodes; when a worker last claimed from a queue on another node is up to five seconds
   * old.
   *
   * Errors: NotFoundError where there is no such job and no dead letter of it; UnauthorizedError.
   */
  async why(number: number | bigint, options: CallOptions = {}): Promise<AdminWhy> {
    return await this.#read("admin why", ["jobs", String(number), "why"], options, adminWhy);
  }

  /**
   * Returns what happened to the job with a number.
   *
   * Errors: NotFoundError where there is no such job and no dead letter of it; UnauthorizedError.
   */
  async timeline(number: number | bigint, options: CallOptions = {}): Promise<AdminTimeline> {
    return await this.#read("admin timeline", ["jobs", String(number), "timeline"], options,
      adminTimeline);
  }

  /**
   * Iterates over the numbers of the jobs that are stored, by contract and value. By contract,
   * queue and phase they are exact. It ends with the first error.
   *
   * Errors: InvalidError, UnauthorizedError.
   */
  async *counts(query: AdminCountQuery,
    options: ListOptions = {}): AsyncGenerator<AdminCount, void, undefined> {
    const { by, contract, queue } = query;
    yield* this.#list("admin counts", ["counts"], options, adminCount, { by, contract, queue });
  }

  /**
   * Applies an action to the job with a number and returns the job as it is then, or the new job
   * that was made. What follows, such as events, is that of the contract's route. A job that was
   * deleted has the state "gone".
   *
   * Errors: ConflictError, whose code is NOT_ALLOWED where the state of the job does not allow the
   * action, and CONFLICT where the contract refuses it; NotFoundError; UnauthorizedError. It is
   * repeated only while no try can have taken effect.
   */
  async actOnJob(number: number | bigint, action: AdminAction,
    options: CallOptions = {}): Promise<AdminActionResult> {
    return await this.#json(["jobs", String(number), action], { op: `admin ${action} job`,
      method: "POST", notIdempotent: true, signal: options.signal }, adminActionResult);
  }

  /**
   * Submits a job as the contract's own route would.
   *
   * Errors: InvalidError with the contract's words; ConflictError where the job exists;
   * UnauthorizedError. Without an idempotency key it is repeated only while no try can have taken
   * effect.
   */
  async submitJob(submission: AdminSubmission,
    options: CallOptions = {}): Promise<AdminActionResult> {
    const op = "admin submit job";
    const { contract, request, owner, jobType, callbackUrl, idempotencyKey } = submission;
    const body = checked(op, () => encode({ contract, request, owner: owner || undefined,
      job_type: jobType || undefined, callback_url: callbackUrl || undefined,
      idempotency_key: idempotencyKey || undefined }));
    return await this.#json(["jobs"], { op, method: "POST", body, accept: [201],
      notIdempotent: !idempotencyKey, signal: options.signal }, adminActionResult);
  }

  /**
   * Iterates over the queues in the order of the filter. A queue is listed while it has jobs that
   * are not finished or settings, and for a week after it had either. It ends with the first error.
   */
  async *queues(filter: AdminQueueFilter = {},
    options: ListOptions = {}): AsyncGenerator<AdminQueue, void, undefined> {
    const { contract, nameContains: text, order, includeInternal: internal } = filter;
    yield* this.#list("admin queues", ["queues"], options, adminQueue,
      { contract, text, order, internal });
  }

  /**
   * Pauses, resumes or limits a queue and returns it as it is then. It is in force on all nodes
   * within two seconds. From a paused queue nothing is claimed, and it takes new jobs; running jobs
   * go on. What is set takes the place of the server's settings until {@link Admin.resetQueue}.
   *
   * Errors: NotFoundError for a contract that there is not; InvalidError names the member that is
   * wrong. A repeat changes nothing more.
   */
  async setQueue(contract: string, queue: string, change: AdminQueueChange,
    options: CallOptions = {}): Promise<AdminQueue> {
    const op = "admin set queue";
    const { paused, maxRunning, rateLimit, ratePeriod } = change;
    const body = checked(op, () => encode({ paused, run_limit: maxRunning, rate: rateLimit,
      rate_period: ratePeriod }));
    return await this.#json(["queues", contract, queue], { op, method: "PATCH", body,
      signal: options.signal }, adminQueue);
  }

  /**
   * Takes back what operators have set for a queue and returns it as it is then: the limits of the
   * server's settings are in force, and the queue is not paused.
   *
   * Errors: as {@link Admin.setQueue}.
   */
  async resetQueue(contract: string, queue: string,
    options: CallOptions = {}): Promise<AdminQueue> {
    return await this.#json(["queues", contract, queue], { op: "admin reset queue",
      method: "DELETE", signal: options.signal }, adminQueue);
  }

  /**
   * Iterates over the dead letters of all contracts, the oldest first. It ends with the first
   * error.
   *
   * Errors: InvalidError for a contract that there is not; UnauthorizedError.
   */
  async *deadLetters(filter: AdminDeadLetterFilter = {},
    options: ListOptions = {}): AsyncGenerator<AdminDeadLetter, void, undefined> {
    const { contract, queue, fingerprint, jobId } = filter;
    yield* this.#list("admin dead letters", ["dead-letters"], options, adminDeadLetter,
      { contract, queue, fingerprint, job_id: jobId, error: filter.errorContains,
        from: filter.failedFrom,
        to: filter.failedBefore });
  }

  /**
   * Iterates over the groups of dead letters of one reason that were not replayed, the largest
   * first. The server groups the newest 100,000 dead letters of each job type. It ends with the
   * first error.
   *
   * Errors: InvalidError for a contract that there is not; UnauthorizedError.
   */
  async *deadLetterGroups(filter: { contract?: string } = {},
    options: ListOptions = {}): AsyncGenerator<AdminDeadLetterGroup, void, undefined> {
    yield* this.#list("admin dead letter groups", ["dead-letters", "groups"], options,
      adminDeadLetterGroup, { contract: filter.contract });
  }

  /**
   * Returns a dead letter.
   *
   * Errors: NotFoundError; UnauthorizedError.
   */
  async deadLetter(id: number | bigint, options: CallOptions = {}): Promise<AdminDeadLetter> {
    return await this.#read("admin dead letter", ["dead-letters", String(id)], options,
      adminDeadLetter);
  }

  /**
   * Replays a dead letter and returns the job that runs then: the same job or a new one, as its
   * contract has it. With again also one that was replayed before.
   *
   * Errors: ConflictError where it was replayed before and again is not set, and where the contract
   * refuses it; NotFoundError; UnauthorizedError. It is repeated only while no try can have taken
   * effect.
   */
  async replayDeadLetter(id: number | bigint,
    options: { again?: boolean } & CallOptions = {}): Promise<AdminActionResult> {
    return await this.#json(["dead-letters", String(id), "replay"], {
      op: "admin replay dead letter", method: "POST", notIdempotent: true,
      body: encode({ again: options.again ?? false }), signal: options.signal }, adminActionResult);
  }

  /**
   * Deletes a dead letter.
   *
   * Errors: NotFoundError; UnauthorizedError. Repeating is safe: when a dead letter is not found
   * after a try whose answer was lost, it is no error.
   */
  async discardDeadLetter(id: number | bigint, options: CallOptions = {}): Promise<void> {
    await this.#delete("admin discard dead letter", ["dead-letters", String(id)], options);
  }

  /**
   * Iterates over the workers of all nodes, by name: those of the nodes, and those that have
   * claimed jobs or sent a heartbeat within the last five minutes. What other nodes know is up to
   * five seconds old. It ends with the first error.
   */
  async *workers(options: ListOptions = {}): AsyncGenerator<AdminWorker, void, undefined> {
    yield* this.#list("admin workers", ["workers"], whole(options), adminWorker);
  }

  /** Iterates over the nodes, by name. It ends with the first error. */
  async *nodes(options: ListOptions = {}): AsyncGenerator<AdminNode, void, undefined> {
    yield* this.#list("admin nodes", ["nodes"], whole(options), adminNode);
  }

  /**
   * Gives a worker no further jobs, on all nodes within two seconds, until it is resumed or for 24
   * hours. A worker of this package finishes what it has and ends.
   *
   * Errors: NotFoundError where no node knows the name. Repeating is safe.
   */
  async drainWorker(name: string, options: CallOptions = {}): Promise<void> {
    await this.#post("admin drain worker", ["workers", name, "drain"], options, () => {});
  }

  /**
   * Ends a drain.
   *
   * Errors: those of {@link Admin.drainWorker}.
   */
  async resumeWorker(name: string, options: CallOptions = {}): Promise<void> {
    await this.#post("admin resume worker", ["workers", name, "resume"], options, () => {});
  }

  /** Iterates over the schedules, by name. It ends with the first error. */
  async *schedules(options: ListOptions = {}): AsyncGenerator<AdminSchedule, void, undefined> {
    yield* this.#list("admin schedules", ["schedules"], options, adminSchedule);
  }

  /**
   * Returns a schedule with the times of its next ticks, from 1 to 100 of them.
   *
   * Errors: NotFoundError.
   */
  async schedule(name: string,
    options: { next?: number } & CallOptions = {}): Promise<AdminSchedule> {
    return await this.#json(["schedules", name], { op: "admin schedule", readOnly: true,
      query: queryOf({ next: options.next ?? 1 }), signal: options.signal }, adminSchedule);
  }

  /**
   * Makes a schedule. Its name has 1 to 100 letters, digits, dots, hyphens and underscores.
   *
   * Errors: InvalidError names the member that is wrong; ConflictError where the name is in use,
   * also by an earlier try of the call.
   */
  async createSchedule(name: string, spec: AdminScheduleSpec,
    options: CallOptions = {}): Promise<AdminSchedule> {
    const op = "admin create schedule";
    const body = checked(op, () => encode({ name, ...scheduleWire(spec) }));
    return await this.#json(["schedules"], { op, method: "POST", body, accept: [201],
      notIdempotent: true, signal: options.signal }, adminSchedule);
  }

  /**
   * Changes the members of a schedule that are there. Cron takes the place of every and the other
   * way round. New ticks count from now on.
   *
   * Errors: as {@link Admin.createSchedule}, NotFoundError, and ConflictError for one of the
   * settings.
   */
  async setSchedule(name: string, spec: AdminScheduleSpec,
    options: CallOptions = {}): Promise<AdminSchedule> {
    const op = "admin set schedule";
    const body = checked(op, () => encode(scheduleWire(spec)));
    return await this.#json(["schedules", name], { op, method: "PATCH", body,
      signal: options.signal }, adminSchedule);
  }

  /**
   * Deletes a schedule. Jobs that it has submitted stay.
   *
   * Errors: NotFoundError; ConflictError for one of the settings. Repeating is safe: when a
   * schedule is not found after a try whose answer was lost, it is no error.
   */
  async deleteSchedule(name: string, options: CallOptions = {}): Promise<void> {
    await this.#delete("admin delete schedule", ["schedules", name], options);
  }

  /**
   * Pauses a schedule: it submits nothing. {@link Admin.resumeSchedule} ends that; catchUp says
   * what happens about the ticks between.
   *
   * Errors: NotFoundError. A repeat changes nothing more.
   */
  async pauseSchedule(name: string, options: CallOptions = {}): Promise<AdminSchedule> {
    return await this.#post("admin pause schedule", ["schedules", name, "pause"], options,
      adminSchedule);
  }

  /**
   * Resumes a schedule that was paused.
   *
   * Errors: NotFoundError. A repeat changes nothing more.
   */
  async resumeSchedule(name: string, options: CallOptions = {}): Promise<AdminSchedule> {
    return await this.#post("admin resume schedule", ["schedules", name, "resume"], options,
      adminSchedule);
  }

  /**
   * Submits the job of a schedule once, besides its ticks. It is repeated only while no try can
   * have taken effect.
   *
   * Errors: NotFoundError; InvalidError with the words of the contract.
   */
  async runSchedule(name: string, options: CallOptions = {}): Promise<AdminActionResult> {
    return await this.#json(["schedules", name, "run"], { op: "admin run schedule",
      method: "POST", accept: [201], notIdempotent: true, signal: options.signal },
    adminActionResult);
  }

  /**
   * Iterates over what was done about the last 100 ticks of a schedule, the latest first.
   *
   * Errors: NotFoundError.
   */
  async *scheduleTicks(name: string,
    options: CallOptions = {}): AsyncGenerator<AdminScheduleTick, void, undefined> {
    yield* await this.#read("admin schedule ticks", ["schedules", name, "ticks"], options,
      (wire) => listOf(adminScheduleTick)(objectOf(wire).items));
  }

  async #read<T>(op: string, path: string[], { signal }: CallOptions,
    read: (wire: unknown) => T): Promise<T> {
    return await this.#json(path, { op, readOnly: true, signal }, read);
  }

  async #post<T>(op: string, path: string[], { signal }: CallOptions,
    read: (wire: unknown) => T): Promise<T> {
    return await this.#json(path, { op, method: "POST", signal }, read);
  }

  async #delete(op: string, segments: string[], { signal }: CallOptions): Promise<void> {
    await this.#http.deleteOnce(this.#call(segments, { op, signal }));
  }

  async *#list<T>(op: string, path: string[], { pageSize, signal }: ListOptions,
    read: (wire: unknown) => T,
    query: Parameters<typeof queryOf>[0] = {}): AsyncGenerator<T, void, undefined> {
    const call = this.#call(path, { op, readOnly: true, signal,
      query: checked(op, () => queryOf(query)) });
    yield* pages(this.#http, call, read, pageSize);
  }

  async #json<T>(path: string[], call: AdminCall, read: (wire: unknown) => T): Promise<T> {
    return await this.#http.json(this.#call(path, call), read);
  }

  /** Makes a call of a path, each segment of which may be any text. */
  #call(segments: string[], call: AdminCall): Call {
    const path = checked(call.op, () => {
      for (const segment of segments) checkSegment("a name", segment);
      return pathOf("/admin/v1", ...segments);
    });
    const header: Record<string, string> = this.#actor ? { "Millrace-Actor": this.#actor } : {};
    return { method: "GET", accept: [200], ...call, path, header };
  }
}

/** The options of a list that is short. */
function whole(options: ListOptions): ListOptions {
  return { pageSize: wholeList, ...options };
}

/** A schedule as it is on the wire. */
function scheduleWire({ timeZone, jobType, callbackUrl, catchUp, startsAt, endsAt,
  ...rest }: AdminScheduleSpec): object {
  return {
    ...rest,
    time_zone: timeZone,
    job_type: jobType,
    callback_url: callbackUrl,
    catch_up: catchUp,
    starts_at: startsAt && timeText("startsAt", startsAt),
    ends_at: endsAt && timeText("endsAt", endsAt),
  };
}
