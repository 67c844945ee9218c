// The paths that the client uses are those of the OpenAPI documents of the server.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Client } from "../dist/index.js";
import { calls } from "./support/calls.js";

const documents = ["contract/relay", "contract/taskflow", "contract/forgerun", "contract/fetchbox",
  "contract/images", "workerapi", "admin"];

/** Operations that the client does not use: version 1 of Relay, and others of the same meaning. */
const leftOut = [
  "POST /v1/queues/jobs",
  "PUT /v1/queues/jobs",
  "GET /v1/queues/{queue}/jobs",
  "HEAD /v1/queues/{queue}/jobs/{id}",
  "GET /v1/queues/{queue}/jobs/{id}",
  "PATCH /v1/queues/{queue}/jobs/{id}",
  "DELETE /v1/queues/{queue}/jobs/{id}",
  "HEAD /images/v1/files/{file_id}/content",
  "HEAD /images/v1/files/{file_id}/variants/{size}",
];

/** The operations of a document, such as "GET /v2/queues/{queue}/jobs". */
async function operations(name) {
  const document = new URL(`../../../internal/${name}/openapi.yaml`, import.meta.url);
  const found = [];
  let path = "";
  for (const line of (await readFile(document, "utf8")).split("\n")) {
    path = /^  (\/\S*):/.exec(line)?.[1] ?? (/^\S/.test(line) ? "" : path);
    const method = /^    (get|put|post|patch|delete|head):/.exec(line)?.[1];
    if (path && method) found.push(`${method.toUpperCase()} ${path}`);
  }
  assert.ok(found.length > 0, name);
  return found;
}

/** Whether a request is one of an operation. */
function matches(request, operation) {
  const pattern = operation.replace(/[.]/g, "\\.").replace(/\{\w+\}/g, "[^/]+");
  return new RegExp(`^${pattern}$`).test(request);
}

/** Makes a call whose request is refused, and returns the request. */
async function requestOf(call) {
  const requests = [];
  const client = new Client({ baseURL: "http://server", fetch: async (url, { method }) => {
    requests.push(`${method} ${new URL(url).pathname}`);
    return new Response("no", { status: 418 });
  } });
  await assert.rejects(async () => {
    const result = call(client);
    await (typeof result.next === "function" ? result.next() : result);
  }, { status: 418 });
  assert.equal(requests.length, 1, String(call));
  return requests[0];
}

test("every request is one of an OpenAPI document", async () => {
  const known = (await Promise.all(documents.map(operations))).flat();
  const used = new Set();
  for (const [contract, methods] of Object.entries(calls)) {
    for (const [method, call] of Object.entries(methods)) {
      const request = await requestOf(call);
      const operation = known.find((one) => matches(request, one));
      assert.ok(operation, `${contract}.${method} sends ${request}`);
      used.add(operation);
    }
  }
  // Of the contracts' own documents nothing is left out but what the README names.
  const left = known.filter((one) => !used.has(one) && !one.includes(" /admin/v1/"));
  assert.deepEqual(left, leftOut);
});

test("the list of calls has every method of every contract", () => {
  const client = new Client({ baseURL: "http://server" });
  for (const [contract, methods] of Object.entries(calls)) {
    const own = Object.getOwnPropertyNames(Object.getPrototypeOf(client[contract]()));
    const without = ["constructor", "nextFor", "completeOf", "requeueOf", "claimFor", "withApiKey",
      "withOperatorToken", "withActor"];
    assert.deepEqual(Object.keys(methods).sort(),
      own.filter((name) => !without.includes(name)).sort(), contract);
  }
});
