/**
 * Says why a worker cannot call a handler, or returns undefined. The body of a generator does not
 * run when it is called, and a handler that waits for a second argument, such as a callback, gets
 * none: its job would be completed and not done.
 */
export function handlerProblem(handler: unknown): string | undefined {
  if (typeof handler !== "function") return `handler ${named(handler)} cannot be called`;
  if (isGenerator(handler.prototype)) {
    return `handler ${named(handler)} is a generator: a handler is a plain or an async function`;
  }
  if (handler.length > 1) return `handler ${named(handler)} does not take one argument, the run`;
  return undefined;
}

/**
 * Says why a worker cannot claim from what it was given in the place of an API, such as a Client,
 * or returns undefined. call is how a caller gets the right one.
 */
export function sourceProblem(name: string, source: unknown, type: Function,
  call: string): string | undefined {
  if (source === undefined || source === null) return `${name} is required`;
  if (source instanceof type) return undefined;
  return `a ${typeName(source)} has no jobs for a worker: pass ${call}`;
}

/**
 * Fails a run whose handler has returned something that has still to run, as a generator that is
 * wrapped does.
 */
export function checkResult(result: unknown): void {
  if (isGenerator(result)) {
    throw new TypeError(`the handler returned a generator, which did not run`);
  }
}

/** Reports whether a value is a generator, or the prototype of those that a function makes. */
function isGenerator(value: unknown): boolean {
  return ["[object Generator]", "[object AsyncGenerator]"].includes(
    Object.prototype.toString.call(value));
}

/** The name of the class of a value that is neither undefined nor null. */
function typeName(value: {}): string {
  return value.constructor?.name ?? typeof value;
}

function named(handler: unknown): string {
  return typeof handler === "function" ? handler.name || "without a name" : String(handler);
}
