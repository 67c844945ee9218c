import type { CallOptions } from "./abort.js";
import { invalid } from "./error.js";
import { handlerProblem, sourceProblem } from "./handler.js";
import { processName } from "./name.js";
import { withFields, type Logger } from "./outage.js";
import { Relay } from "./relay.js";
import { RelaySource } from "./relay-source.js";
import type { ClaimedRelayJob } from "./relay-wire.js";
import type { Handler, Middleware } from "./run.js";
import { Runner } from "./runner.js";

/** What {@link Worker} and {@link JobWorker} have in common. All durations are in seconds. */
export interface WorkerSettings {
  /**
   * Identifies the worker to the server, in up to 255 bytes. Without it host name and process id.
   */
  name?: string;
  /**
   * Limits the handlers that run at once, and so the jobs that this worker has claimed. The default
   * is 1.
   */
  concurrency?: number;
  /**
   * How long the server may wait for a job before it answers that there is none, at most 30; with 0
   * it answers at once. The default is 30.
   */
  pollWait?: number;
  /**
   * The least time between two polls that bring no job. It keeps the worker from polling in a tight
   * loop when the server does not wait. The default is 1.
   */
  pollInterval?: number;
  /**
   * Limits the time between heartbeats, which is a third of the lease. A handler learns from its
   * heartbeats that its run was lost or is asked to end; set this for it to learn that earlier
   * under long leases. Without it there is no bound.
   */
  maxHeartbeatInterval?: number;
  /**
   * How long handlers may continue after the signal of run was aborted; 0 aborts their signals at
   * once. The default is 25.
   */
  drainTimeout?: number;
  /**
   * Ends a drain early: when it is aborted, the worker stops, and the signals of the handlers are
   * aborted with a DrainTimeoutError whose cause is its reason, as after drainTimeout.
   */
  kill?: AbortSignal;
  /**
   * Gets at the start what the worker waits for, failures and lost runs and, at level debug, each
   * job that was started and completed: console is one. Without it they are discarded.
   */
  logger?: Logger;
}

/** What a {@link Worker} is made of. */
export interface WorkerConfig<P = any> extends WorkerSettings {
  /** The contract to claim jobs from. */
  relay: Relay;
  /** The queue's name. */
  queue: string;
  /** Is called for every job. */
  handler: Handler<P>;
  /** Wraps the handler; the first is the outermost. */
  middleware?: readonly Middleware<P>[];
  /**
   * Is called for each run when nothing more will be sent about it, with the reason why the job was
   * not completed: undefined if it was, or was requeued by its handler.
   */
  afterRun?: (job: ClaimedRelayJob<P>, reason: Error | undefined) => void;
}

/** Worker claims the jobs of one Relay queue and runs a handler for each. */
export class Worker<P = any> {
  readonly #config: WorkerConfig<P>;

  /** Its error is an InvalidError that says what is missing or wrong. */
  constructor(config: WorkerConfig<P>) {
    checkSettings("relay worker", config, [
      sourceProblem("relay", config.relay, Relay, "client.relay()"),
      !config.queue && "queue is required",
      config.handler === undefined ? "handler is required" : handlerProblem(config.handler),
    ]);
    this.#config = { ...config };
  }

  /**
   * Claims and executes jobs until the signal is aborted, and drains then: it stops polling and
   * lets running handlers finish under their heartbeats. After drainTimeout it aborts their signals
   * and waits for them to return. Nothing of it is left when it returns. The poll that is under way
   * when the signal is aborted may take half a second more, and its jobs are executed; then it is
   * cut off, and jobs that were claimed in that moment return after their timeout.
   *
   * Each job gets a heartbeat at every third of its timeout, which also stores the state that the
   * handler has set meanwhile. A lease of timeout 0 cannot be extended; its heartbeats, one a
   * second, only detect the loss of the run. A run is lost when a heartbeat is answered with 404,
   * when the server has refused all of them for a whole timeout, such as for a wrong token, or when
   * the answer to its completion says so, as when the server was away for longer than the timeout.
   * A lost run is never completed: its job runs again.
   *
   * Runs that end at about the same time are completed in one request, and heartbeats that are due
   * together and have no state share one too. None waits for others. With a server that does not
   * have these requests each run has its own.
   *
   * Time in which the server cannot be reached, or asks to try again, does not count: it gives no
   * job to another worker then. Handlers go on, and a completion is tried until the server gives a
   * definite answer; after a stop, until 10 s after drainTimeout. The log gets one line when the
   * server begins to fail requests, and one when it answers again.
   *
   * While the server answers with errors, the worker polls again after random pauses that grow, and
   * not before Retry-After. Errors of single jobs are logged.
   *
   * When an operator drains the worker on the server, it stops polling, lets its handlers finish
   * without a limit of time, and returns.
   *
   * It returns after a drain in which all handlers finished, and fails with a DrainTimeoutError
   * when the signals of some had to be aborted.
   *
   * A handler that computes without a pause for a third of the timeout keeps its heartbeats from
   * being sent: JavaScript has one thread. Give such work to a worker thread or a process.
   */
  async run(options: CallOptions = {}): Promise<void> {
    const { relay, queue, middleware = [], afterRun = () => {} } = this.#config;
    const handler = middleware.reduceRight((inner, wrap) => wrap(inner), this.#config.handler);
    const name = this.#config.name || processName();
    logStart(this.#config, { contract: "relay", queues: [queue], server: relay.http.baseURL });
    await new Runner({
      source: new RelaySource<P>(relay, queue, name, handler, afterRun),
      ...runnerSettings(this.#config),
      backoff: relay.http.backoff,
      log: withFields(this.#config.logger, { queue }),
    }).run(options.signal);
  }
}

/** Logs what a worker waits for. */
export function logStart({ logger, concurrency = 1 }: WorkerSettings, fields: object): void {
  logger?.info("waiting for jobs", { ...fields, concurrency });
}

/** Throws an InvalidError with all that is missing or wrong. */
export function checkSettings(op: string, settings: WorkerSettings,
  problems: readonly (string | false | undefined)[]): void {
  const { concurrency = 1 } = settings;
  const wrong = problems.filter(Boolean);
  if (!Number.isSafeInteger(concurrency) || concurrency < 1) {
    wrong.push("concurrency is not a whole number above zero");
  }
  const durations = ["pollWait", "pollInterval", "maxHeartbeatInterval", "drainTimeout"] as const;
  for (const name of durations) {
    const seconds: unknown = settings[name] ?? 0;
    const isDuration = typeof seconds === "number" && seconds >= 0;
    if (!isDuration) wrong.push(`${name} is not a number of seconds`);
  }
  if (wrong.length > 0) throw invalid(op, wrong.join(", "));
}

/** What the settings of a worker mean to a runner. */
export function runnerSettings(settings: WorkerSettings) {
  return {
    concurrency: settings.concurrency ?? 1,
    pollWait: Math.min(settings.pollWait ?? 30, 30),
    pollPause: settings.pollInterval ?? 1,
    drainTimeout: settings.drainTimeout ?? 25,
    kill: settings.kill,
    maxHeartbeatInterval: settings.maxHeartbeatInterval ?? 0,
  };
}
