import { Scope, now, onAbort } from "./abort.js";
import { AbortedError } from "./error.js";
import type { CallPolicy } from "./http.js";

/**
 * The most requests under way: more than one, so that one that hangs does not delay every other.
 */
const maxSenders = 4;
/** The most entries in a request. */
const maxBatchEntries = 1000;
/** How long nothing is batched after "noBatches", in seconds. */
const noBatchesPause = 600;
/**
 * The size in bytes up to which an entry should share a request: a thousand of them stay below the
 * limit of the request, and none delays the others.
 */
export const maxBatchedBytes = 2 << 10;

/** The result of one entry: undefined when it was accepted. */
export type EntryResult = Error | undefined;

/**
 * What became of a batch: the result of each entry, or that each entry must go in a request of its
 * own ("singly"), which may hold for later entries too ("noBatches").
 */
export type BatchResult = EntryResult[] | "singly" | "noBatches";

interface PendingEntry<T> {
  entry: T;
  policy: CallPolicy;
  done: (result: EntryResult | "singly") => void;
}

/**
 * Batcher sends entries about runs, such as their outcomes, several in one request where that costs
 * no time. An entry is sent at once while fewer than maxSenders requests are under way. Those that
 * come while all senders are busy wait and go together with the next request:
 *
 *     send ──▶ pending ──▶ sender 1 … maxSenders ──▶ one entry: sendOne
 *                                                └─▶ several:   sendAll
 *
 * So a worker with many short jobs makes few requests, and a single entry waits for no other.
 */
export class Batcher<T> {
  #pending: PendingEntry<T>[] = [];
  readonly #senders = new Set<Promise<void>>();
  #singleUntil = -Infinity;

  /**
   * op is of the error of a caller that stops waiting. sendAll may throw, which is the error of all
   * entries.
   */
  constructor(readonly op: string,
    readonly sendOne: (entry: T, policy: CallPolicy) => Promise<void>,
    readonly sendAll: (entries: T[], policy: CallPolicy) => Promise<BatchResult>) {}

  /** Sends an entry, together with others that come at the same time. */
  async send(entry: T, policy: CallPolicy): Promise<void> {
    const result = now() < this.#singleUntil ? "singly" : await this.#await(entry, policy);
    if (result === "singly") return await this.sendOne(entry, policy);
    if (result) throw result;
  }

  /** Waits until the senders have ended, after the last caller of send. */
  async idle(): Promise<void> {
    await Promise.all(this.#senders);
  }

  /** Queues an entry for a request and waits for the answer. */
  #await(entry: T, policy: CallPolicy): Promise<EntryResult | "singly"> {
    return new Promise((resolve) => {
      const stop = onAbort(policy.signal, () => {
        this.#pending = this.#pending.filter((other) => other !== pending);
        resolve(new AbortedError({ op: this.op, uncertain: true, cause: policy.signal?.reason }));
      });
      const pending: PendingEntry<T> = { entry, policy, done: (result) => {
        stop();
        resolve(result);
      } };
      this.#pending.push(pending);
      if (this.#senders.size >= maxSenders) return;
      const sender: Promise<void> = this.#work().finally(() => this.#senders.delete(sender));
      this.#senders.add(sender);
    });
  }

  /** Makes requests until no entry is pending. */
  async #work(): Promise<void> {
    await Promise.resolve(); // entries that are sent in the same turn go together
    while (this.#pending.length > 0) {
      const batch = this.#pending.splice(0, maxBatchEntries);
      const [first] = batch;
      if (now() < this.#singleUntil) for (const pending of batch) pending.done("singly");
      else if (first && batch.length === 1) await this.#sendFirst(first);
      else await this.#sendBatch(batch);
    }
  }

  async #sendFirst(pending: PendingEntry<T>): Promise<void> {
    try {
      await this.sendOne(pending.entry, pending.policy);
      pending.done(undefined);
    } catch (err) {
      pending.done(err as Error);
    }
  }

  /**
   * Sends entries in one request. It is tried until the signals of all their callers have been
   * aborted: a late answer does no harm to the callers that no longer wait.
   */
  async #sendBatch(batch: PendingEntry<T>[]): Promise<void> {
    const scope = new Scope();
    let waiting = batch.length;
    const stops = batch.map(({ policy }) => onAbort(policy.signal, () => {
      if (--waiting === 0) scope.abort(policy.signal?.reason);
    }));
    let result: BatchResult | Error;
    try {
      const entries = batch.map(({ entry }) => entry);
      const outage = batch[0]?.policy.outage;
      result = await this.sendAll(entries, { signal: scope.signal, outage });
    } catch (err) {
      result = err as Error;
    }
    for (const stop of stops) stop();
    if (result === "noBatches") this.#singleUntil = now() + noBatchesPause;
    batch.forEach((pending, i) => {
      if (typeof result === "string") pending.done("singly");
      else pending.done(Array.isArray(result) ? result[i] : result);
    });
  }
}
