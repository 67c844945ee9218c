import type { CallOptions } from "./abort.js";
import { handlerProblem, sourceProblem } from "./handler.js";
import type { JobHandler, JobMiddleware } from "./job-run.js";
import { JobSource } from "./job-source.js";
import { processName } from "./name.js";
import { withFields } from "./outage.js";
import { Runner } from "./runner.js";
import { checkSettings, logStart, runnerSettings, type WorkerSettings } from "./worker.js";
import { WorkerAPI } from "./worker-api.js";
import type { ClaimQuery, ClaimedJob, WorkerContract } from "./worker-api-wire.js";

/** What a {@link JobWorker} is made of. */
export interface JobWorkerConfig extends WorkerSettings {
  /** The worker API to claim jobs from. */
  api: WorkerAPI;
  /** The contract of the jobs, such as "taskflow". */
  contract: WorkerContract;
  /**
   * The handlers by queue. The worker claims jobs of these queues only. With a handler under "" it
   * claims jobs of all queues, and that handler gets those of the queues that have no other.
   */
  handlers: Readonly<Record<string, JobHandler<any>>>;
  /** Wraps every handler; the first is the outermost. */
  middleware?: readonly JobMiddleware[];
  /**
   * Is called for each run when nothing more will be sent about it, with the reason why the job was
   * not completed: undefined if it was, or was released by its handler. A result that the server
   * refuses is a reason.
   */
  afterRun?: (job: ClaimedJob, reason: Error | undefined) => void;
}

/** JobWorker claims the jobs of one contract over the worker API and runs handlers for them. */
export class JobWorker {
  readonly #config: JobWorkerConfig;

  /** Its error is an InvalidError that says what is missing or wrong. */
  constructor(config: JobWorkerConfig) {
    const handlers = Object.entries(config.handlers ?? {});
    const contract: string = config.contract;
    checkSettings("job worker", config, [
      sourceProblem("api", config.api, WorkerAPI, "client.workerAPI()"),
      !contract && "contract is required",
      contract === "relay" && "jobs of Relay are claimed by a Worker",
      handlers.length === 0 && "handlers are required",
      ...handlers.map(([queue, handler]) => handler === undefined
        ? `the handler of queue "${queue}" is required`
        : handlerProblem(handler)),
    ]);
    this.#config = { ...config };
  }

  /**
   * Claims and executes jobs until the signal is aborted, and drains then: it stops polling and
   * lets running handlers finish under their heartbeats. After drainTimeout it aborts their
   * signals, waits for them to return and releases their jobs. Nothing of it is left when it
   * returns. The poll that is under way when the signal is aborted may take half a second more, and
   * its jobs are released; then it is cut off, and jobs that were claimed in that moment return
   * when their leases expire.
   *
   * Each run gets a heartbeat at every third of its lease, which also stores the state that the
   * handler has set meanwhile. A run is lost when the server says so, or when it has refused all
   * heartbeats for a whole lease; nothing more is sent about it then. Time in which the server
   * cannot be reached, or asks to try again, does not count: handlers go on, and an outcome is
   * tried until the server gives a definite answer; after a stop, until 10 s after drainTimeout.
   * Outcomes that are ready at about the same time share a request, as with {@link
   * WorkerAPI.finish}, except those of Images.
   *
   * While the server answers with errors, the worker polls again after random pauses that grow, and
   * not before Retry-After. Errors of single jobs are logged.
   *
   * When an operator drains the worker on the server, it stops polling, lets its handlers finish
   * without a limit of time, and returns.
   *
   * It returns after a drain in which all handlers finished, and fails with a DrainTimeoutError
   * when the signals of some had to be aborted. As with {@link Worker.run}, a handler must not
   * compute without a pause for a third of the lease.
   */
  async run(options: CallOptions = {}): Promise<void> {
    const { api, contract, name, middleware = [], afterRun = () => {} } = this.#config;
    const handlers = new Map(Object.entries(this.#config.handlers).map(([queue, handler]) =>
      [queue, middleware.reduceRight((inner, wrap) => wrap(inner), handler)]));
    const query: ClaimQuery = { contract, worker: name || processName() };
    if (!handlers.has("")) query.queues = [...handlers.keys()].sort();
    const { queues = [] } = query;
    logStart(this.#config, { contract, queues, server: api.http.baseURL });
    await new Runner({
      source: new JobSource(api, query, handlers, afterRun),
      ...runnerSettings(this.#config),
      backoff: api.http.backoff,
      log: withFields(this.#config.logger, { contract }),
    }).run(options.signal);
  }
}
