// The cases that the clients for Go, Python and TypeScript have in common: what they send, and what
// they make of answers. They are in clients/cases.json.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { text as textOf } from "node:stream/consumers";
import { test } from "node:test";
import { Client, ConflictError, CycleError, InvalidError, MillraceError, NotFoundError,
  NotMillraceError, RetryableError, RunLostError, UnauthorizedError } from "../dist/index.js";

const file = new URL("../../cases.json", import.meta.url);
const { cases } = JSON.parse(await readFile(file, "utf8"));

const noon = "2026-05-01T12:00:00.123456Z";
const run = { queue: "q", id: "a", runId: "r" };
const task = { name: "n", queue: "q", priority: 7, dependencies: ["d"], payload: { a: [1] },
  retry: { maxAttempts: 2, baseDelay: 1.5 } };

/** The kinds of errors, in the order in which they are looked for. */
const kinds = { not_millrace: NotMillraceError, run_lost: RunLostError, cycle: CycleError,
  not_found: NotFoundError, conflict: ConflictError, invalid: InvalidError,
  unauthorized: UnauthorizedError, retryable: RetryableError, other: MillraceError };

/** A time as the results of the cases have it: with all of its microseconds. */
function timeOf(text) {
  if (text === null) return null;
  const [, seconds, fraction = ""] = /^(.{19})(?:\.(\d{1,6}))?Z$/.exec(text);
  return `${seconds}.${fraction.padEnd(6, "0")}Z`;
}

const taskOf = (job) => ({ id: job.id, status: job.status, next_run_at: timeOf(job.nextRunAt),
  result: job.result, last_error: job.lastError?.message ?? null });

const calls = {
  "relay.enqueue": (client) => client.relay().enqueue({ queue: "q/ü", id: "a b", timeout: 1.5,
    maxRetries: 2, payload: { n: 1.5 }, runAt: noon }, { mode: "ignore" }),
  "relay.get": async (client) => {
    const job = await client.relay().get("q/ü", "a b");
    return { payload: job.payload, retries_remaining: job.retriesRemaining,
      run_id: job.runId ?? "", run_at: timeOf(job.runAt), created_at: timeOf(job.createdAt) };
  },
  "relay.heartbeat": (client) => client.relay().heartbeat(run, { state: { page: 1 } }),
  "relay.complete": (client) => client.relay().complete(run),
  "relay.claim": async (client) => {
    const jobs = await client.relay().claim("q", { numJobs: 5, wait: 1.5 });
    return jobs.map((job) => ({ id: job.id, run_id: job.runId, payload: job.payload,
      timeout: job.timeout }));
  },
  "relay.complete_all": (client) => client.relay().completeAll([run,
    { queue: "q", id: "b", runId: "s" }]),
  "relay.replay_again": (client) => client.relay().replay("q", 7, { again: true }),
  "taskflow.submit": async (client) => taskOf(await client.taskFlow().submit(task)),
  "taskflow.submit_once": async (client) =>
    taskOf(await client.taskFlow().submitOnce("k", task)),
  "taskflow.get": async (client) => taskOf(await client.taskFlow().get("1")),
  "taskflow.delete": (client) => client.taskFlow().delete("1"),
  "forgerun.submit": async (client) => {
    const receipt = await client.forgeRun().submit({ type: "DEFERRED", kind: "SUCCESS_FAST",
      executionAt: noon, idempotencyKey: "k" });
    return { id: receipt.jobId, state: receipt.state, idempotency_key: receipt.idempotencyKey };
  },
  "forgerun.get": async (client) => {
    const job = await client.forgeRun().get("1");
    return { id: job.id, state: job.state, attempt: job.attempt,
      execution_at: timeOf(job.executionAt), failure: job.failure?.code ?? null };
  },
  "fetchbox.submit": async (client) => {
    const receipt = await client.fetchBox().submit({ type: "default", tenant: "t",
      idempotencyKey: "k", manifest: { metadata: { m: 1 },
        resources: [{ id: "a", url: "http://h/a", headers: { "X-A": "b" } }] } });
    return { id: receipt.jobId, resources: receipt.resources,
      idempotency_key: receipt.idempotencyKey };
  },
  "worker.claim": async (client) => {
    const jobs = await client.workerAPI().claim({ contract: "taskflow", queues: ["q"], max: 3,
      worker: "w" }, { wait: 1.5 });
    return jobs.map((job) => ({ id: job.id, run_id: job.runId, attempt: job.attempt,
      payload: job.payload, lease: job.lease }));
  },
  "worker.complete": (client) => client.workerAPI().complete("r", { result: { x: 1 } }),
};

/** Answers a request. */
function send(response, { cut, status, headers = {}, text = "", json, problem }) {
  if (cut) return response.socket.destroy();
  const types = { "application/json": json, "application/problem+json": problem };
  const [type, body] = Object.entries(types).find(([, value]) => value !== undefined) ?? [];
  // fetch repeats no request, but a connection that is cut may be one that was used before.
  response.writeHead(status, { Connection: "close", ...(type && { "Content-Type": type }),
    ...headers }).end(type ? JSON.stringify(body) : text);
}

/** Starts a server with the answers of a case, whose requests it notes. */
async function serve(t, answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    const answer = answers[Math.min(requests.length, answers.length - 1)];
    requests.push({ method, url, headers, body: await textOf(request) });
    send(response, answer);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  return { requests, baseURL: `http://127.0.0.1:${server.address().port}/base/` };
}

function checkRequest(want, { method, url, headers, body }) {
  const target = `/base${want.path}${want.query ? `?${want.query}` : ""}`;
  assert.deepEqual([method, url], [want.method, target]);
  const expected = { authorization: "Bearer secret", ...want.headers };
  for (const [name, value] of Object.entries(expected)) assert.equal(headers[name], value, name);
  assert.deepEqual(body ? JSON.parse(body) : undefined, want.json);
}

function checkError(want, err) {
  assert.ok(err instanceof MillraceError, String(err));
  const all = { kind: Object.keys(kinds).find((name) => err instanceof kinds[name]),
    status: err.status, code: err.code, message: err.detail, instance: err.instance,
    uncertain: err.uncertain, retry_after: err.retryAfter, cycle: err.cycle };
  for (const [name, value] of Object.entries(want)) {
    assert.deepEqual(all[name], value, `${name}: ${err}`);
  }
}

for (const { name, call, answers, tries, request, result, error } of cases) {
  test(`shared case: ${name}`, async (t) => {
    const { requests, baseURL } = await serve(t, answers);
    const client = new Client({ baseURL, token: "secret", retry: { baseDelay: 0.001 } });
    const made = calls[call](client);
    if (error) {
      await assert.rejects(made, (err) => checkError(error, err) ?? true);
    } else {
      assert.deepEqual(await made, result);
    }
    assert.equal(requests.length, tries ?? answers.length);
    if (request) requests.forEach((sent) => checkRequest(request, sent));
  });
}

test("shared cases: each call has one", () => {
  assert.ok(cases.length >= 50);
  assert.deepEqual([...new Set(cases.map(({ call }) => call))].sort(), Object.keys(calls).sort());
});
