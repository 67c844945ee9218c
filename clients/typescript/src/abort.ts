// Signals and timers: what a context is in Go.

/** The options that every call has. */
export interface CallOptions {
  /** Ends the call, with an error that is "aborted". */
  signal?: AbortSignal | undefined;
}

const watchers = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls fn once when the signal is aborted, at once if it is already. The returned function stops
 * that. All watchers of a signal share one listener, because Node.js warns of many on one signal.
 */
export function onAbort(signal: AbortSignal | undefined, fn: () => void): () => void {
  if (!signal) return () => {};
  if (signal.aborted) {
    fn();
    return () => {};
  }
  let set = watchers.get(signal);
  if (!set) {
    const created = new Set<() => void>();
    set = created;
    watchers.set(signal, created);
    signal.addEventListener("abort", () => {
      watchers.delete(signal);
      for (const watcher of created) watcher();
    }, { once: true });
  }
  const mine = () => fn();
  set.add(mine);
  return () => void set.delete(mine);
}

/** Scope is a signal that ends with other signals, or by itself. It must be closed. */
export class Scope {
  readonly #controller = new AbortController();
  readonly #stops: (() => void)[];

  constructor(...parents: (AbortSignal | undefined)[]) {
    this.#stops = parents.map((parent) =>
      onAbort(parent, () => this.abort(parent?.reason)));
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  /** Aborts the signal that long after another one has been, with its reason. */
  abortAfter(end: AbortSignal, seconds: number): void {
    this.#stops.push(onAbort(end, () => {
      const timer = after(seconds, () => this.abort(end.reason));
      this.#stops.push(() => timer.stop());
    }));
  }

  /** Ends the connection with the parents. The signal is not aborted by it. */
  close(): void {
    for (const stop of this.#stops) stop();
  }
}

/** The longest time that a timer of JavaScript takes, in milliseconds. */
const maxTimer = 2 ** 31 - 1;

/** A timer that calls a function once, after any number of seconds. */
export interface Timer {
  stop(): void;
  /** Begins to count again. */
  restart(): void;
}

/** Calls fn after so many seconds. */
export function after(seconds: number, fn: () => void): Timer {
  let handle: ReturnType<typeof setTimeout> | undefined;
  const wait = (left: number) => {
    const part = Math.min(left, maxTimer);
    handle = setTimeout(() => (left > part ? wait(left - part) : fn()), part);
  };
  const start = () => wait(Math.max(0, Math.ceil(seconds * 1000)));
  start();
  return {
    stop: () => clearTimeout(handle),
    restart: () => {
      clearTimeout(handle);
      start();
    },
  };
}

/** Pauses. The result is false, and comes at once, when the signal is aborted. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const end = (slept: boolean) => {
      timer.stop();
      stop();
      resolve(slept);
    };
    const timer = after(seconds, () => end(true));
    const stop = onAbort(signal, () => end(false));
  });
}

/** Waits for a promise, or until the signal is aborted: the result is false then. */
export async function endsBefore(work: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  return await new Promise((resolve) => {
    const stop = onAbort(signal, () => resolve(false));
    const done = () => {
      stop();
      resolve(true);
    };
    work.then(done, done);
  });
}

/** The seconds on a clock that never jumps. */
export function now(): number {
  return performance.now() / 1000;
}
