/**
 * Percent-encodes one segment of a path, so that it can be any text. Every byte outside the
 * unreserved characters of RFC 3986 is encoded.
 */
export function escape(segment: string): string {
  return encodeURIComponent(segment).replace(/[!'()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

/**
 * Refuses a name that could not reach the server as it is: the empty name, which would change the
 * shape of the path, and one with half of a surrogate pair. Everything else is for the server to
 * check.
 */
export function checkName(what: string, name: unknown): void {
  if (typeof name !== "string") throw new TypeError(`${what} is not a string`);
  if (name === "") throw new TypeError(`${what} is empty`);
  if (hasLoneSurrogate(name)) throw new TypeError(`${what} ${JSON.stringify(name)} is not Unicode`);
}

/**
 * checkName for a segment of a path. The names "." and ".." are refused as well: fetch resolves
 * them as relative segments, even when they are percent-encoded.
 */
export function checkSegment(what: string, name: unknown): void {
  checkName(what, name);
  if (name === "." || name === "..") {
    throw new TypeError(`${what} "${name}" cannot be sent in a path by fetch`);
  }
}

function hasLoneSurrogate(text: string): boolean {
  return /[\uD800-\uDFFF]/u.test(text);
}

/** Refuses a value that a header would change or cannot hold. */
export function checkHeader(what: string, value: string): void {
  if (/^\s|\s$|[\u0000-\u001F\u007F]/.test(value) || hasLoneSurrogate(value)) {
    throw new TypeError(`${what} ${JSON.stringify(value)} cannot be sent in a header`);
  }
}

/** Joins the segments of a path, each of which may be any text. */
export function pathOf(base: string, ...segments: string[]): string {
  return [base, ...segments.map(escape)].join("/");
}

/** Rounds away from zero: a lease is never shorter than asked for. */
export function wholeSeconds(what: string, seconds: unknown): number {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) {
    throw new TypeError(`${what} is not a number of seconds`);
  }
  const exact = Number(seconds.toFixed(6)); // 3.0000000000000004 is 3
  return exact < 0 ? Math.floor(exact) : Math.ceil(exact);
}
