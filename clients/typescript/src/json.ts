// JSON whose values are not damaged: integers of any size, and texts that stay byte for byte.

/**
 * RawJSON is JSON that is sent byte for byte in the place of a value. Use it for a text that must
 * not change on the way, such as numbers with more digits than JavaScript keeps:
 *
 *     await relay.enqueue({ queue: "mail", id: "42", timeout: 30,
 *       payload: new RawJSON('{"amount": 1.10}') });
 */
export class RawJSON {
  /** The JSON itself. */
  readonly text: string;

  /** Throws a SyntaxError if the text is not JSON. */
  constructor(text: string) {
    JSON.parse(text);
    this.text = text;
  }

  /** The decoded value, for JSON.stringify. */
  toJSON(): unknown {
    return decode(this.text);
  }

  /** The JSON itself. */
  toString(): string {
    return this.text;
  }
}

/** JSON of an answer, as a text that is known to be JSON. */
export class JSONText {
  constructor(readonly text: string) {}
}

/** How deep values may be nested; the server takes 512. */
const maxDepth = 1000;

/**
 * Encodes a value as JSON.stringify does, with these differences: a bigint is an integer, a
 * RawJSON is sent as it is, undefined is null, and what JSON cannot hold (NaN, Infinity, functions,
 * symbols, cycles) throws.
 */
export function encode(value: unknown): string {
  return encodeValue(value, 0) ?? "null";
}

function encodeValue(value: unknown, depth: number): string | undefined {
  if (depth > maxDepth) throw new TypeError("the value is nested too deep, or in a cycle");
  switch (typeof value) {
    case "undefined":
      return undefined;
    case "string":
      return JSON.stringify(value);
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      if (!Number.isFinite(value)) throw new TypeError(`${value} is not JSON`);
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : encodeObject(value, depth);
  }
  throw new TypeError(`a ${typeof value} is not JSON`);
}

function encodeObject(value: object, depth: number): string | undefined {
  if (value instanceof RawJSON) return value.text;
  if ("toJSON" in value && typeof value.toJSON === "function") {
    return encodeValue(value.toJSON(), depth + 1);
  }
  if (Array.isArray(value)) {
    return `[${value.map((item) => encodeValue(item, depth + 1) ?? "null").join(",")}]`;
  }
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    const text = encodeValue(member, depth + 1);
    if (text !== undefined) members.push(`${JSON.stringify(name)}:${text}`);
  }
  return `{${members.join(",")}}`;
}

/** Matches texts that may have integers which a number cannot hold. */
const longDigits = /[0-9]{16}/;

/** Decodes JSON. Integers that a number cannot hold exactly become bigints. */
export function decode(text: string): unknown {
  return longDigits.test(text) ? new Parser(text, new Set()).parse() : JSON.parse(text);
}

/** Decodes JSON as decode does, but the members with these names become JSONText. */
export function decodeWithRaw(text: string, raw: ReadonlySet<string>): unknown {
  return new Parser(text, raw).parse();
}

/** Parser reads one value of JSON. */
class Parser {
  #at = 0;
  #depth = 0;

  constructor(readonly text: string, readonly raw: ReadonlySet<string>) {}

  parse(): unknown {
    const value = this.#value();
    this.#space();
    if (this.#at < this.text.length) this.#fail();
    return value;
  }

  #value(): unknown {
    this.#space();
    const at = this.text[this.#at];
    if (at === "{" || at === "[") {
      if (++this.#depth > maxDepth) throw new SyntaxError("the JSON is nested too deep");
      const value = at === "{" ? this.#object() : this.#array();
      this.#depth--;
      return value;
    }
    const token = this.#scalar();
    return at === '"' ? JSON.parse(token) : scalarOf(token);
  }

  #object(): object {
    const object: Record<string, unknown> = {};
    this.#at++;
    for (let first = true; !this.#takes("}"); first = false) {
      if (!first) this.#expect(",");
      this.#space();
      if (this.text[this.#at] !== '"') this.#fail();
      const name = JSON.parse(this.#string()) as string;
      this.#expect(":");
      const value = this.raw.has(name) ? this.#raw() : this.#value();
      Object.defineProperty(object, name,
        { value, writable: true, enumerable: true, configurable: true });
    }
    return object;
  }

  #array(): unknown[] {
    const array: unknown[] = [];
    this.#at++;
    for (let first = true; !this.#takes("]"); first = false) {
      if (!first) this.#expect(",");
      array.push(this.#value());
    }
    return array;
  }

  /** Takes the text of a value without decoding it. */
  #raw(): JSONText {
    this.#space();
    const start = this.#at;
    let open = 0;
    do {
      this.#space();
      const at = this.text[this.#at] ?? this.#fail();
      if (at === "{" || at === "[") open++;
      if (at === "}" || at === "]") open--;
      if ("{}[],:".includes(at)) this.#at++;
      else this.#scalar();
    } while (open > 0);
    const text = this.text.slice(start, this.#at);
    JSON.parse(text);
    return new JSONText(text);
  }

  /** Takes a string with its quotes. */
  #string(): string {
    const start = this.#at;
    for (let end = start + 1; ; end++) {
      end = this.text.indexOf('"', end);
      if (end < 0) this.#fail();
      let slashes = 0;
      while (this.text[end - 1 - slashes] === "\\") slashes++;
      if (slashes % 2 === 0) {
        this.#at = end + 1;
        return this.text.slice(start, this.#at);
      }
    }
  }

  /** Takes a string, number, true, false or null. */
  #scalar(): string {
    if (this.text[this.#at] === '"') return this.#string();
    const token = /[-+.0-9A-Za-z]*/y;
    token.lastIndex = this.#at;
    const [text] = token.exec(this.text) ?? [""];
    if (text === "") this.#fail();
    this.#at += text.length;
    return text;
  }

  #takes(char: string): boolean {
    this.#space();
    if (this.text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #expect(char: string): void {
    if (!this.#takes(char)) this.#fail();
  }

  #space(): void {
    while (" \n\r\t".includes(this.text[this.#at] ?? "-")) this.#at++;
  }

  #fail(): never {
    throw new SyntaxError(`not JSON at position ${this.#at}`);
  }
}

function scalarOf(token: string): unknown {
  const value = JSON.parse(token) as unknown;
  const isUnsafe = typeof value === "number" && !Number.isSafeInteger(value);
  return isUnsafe && /^-?[0-9]+$/.test(token) ? BigInt(token) : value;
}
