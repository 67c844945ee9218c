import type { CallOptions } from "./abort.js";
import type { Call, Http } from "./http.js";
import { listOf, objectOf } from "./shape.js";

/** The options of lists. */
export interface ListOptions extends CallOptions {
  /** How many items each request asks for; without it the server chooses. */
  pageSize?: number;
}

/**
 * @internal Iterates over a list and reads it page by page. It ends with the first error. Lists say
 * that there is more with has_more and next_cursor, or with the latter alone.
 */
export async function* pages<T>(http: Http, call: Call, read: (wire: unknown) => T,
  pageSize = 0): AsyncGenerator<T, void, undefined> {
  const query = new URLSearchParams(call.query);
  if (pageSize > 0) query.set("limit", String(pageSize));
  for (;;) {
    const { items, next } = await http.json({ ...call, query }, (wire) => {
      const page = objectOf(wire);
      const more = page.has_more !== false && typeof page.next_cursor === "string";
      return { items: listOf(read)(page.items), next: more ? page.next_cursor : "" };
    });
    yield* items;
    if (!next) return;
    query.set("cursor", String(next));
  }
}
