import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AbortedError, ConflictError, CycleError, InvalidError, NotFoundError, RawJSON,
  TaskFlowGraphBuilder } from "../dist/index.js";
import { Server, all } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let tasks;
let api;
before(async () => {
  server = await Server.start();
  tasks = server.client().taskFlow();
  api = server.client().workerAPI();
});
after(() => server.close());

/** Claims the next job of a queue and ends its run. */
async function end(queue, failure) {
  const [job] = await api.claim({ contract: "taskflow", queues: [queue] }, { wait: 20 });
  if (failure) await api.fail(job.runId, failure);
  else await api.complete(job.runId, { result: { ok: true } });
  return job;
}

test("a job from create to its result", async () => {
  const text = '{"n": 12345678901234567890,"d":1.10}';
  const created = await tasks.submit({ name: "first", queue: "life", priority: 7,
    payload: new RawJSON(text),
    retry: { maxAttempts: 2, strategy: "FIXED", baseDelay: 1, maxDelay: 2.5 } });
  assert.equal(created.status, "READY");
  assert.deepEqual(created.retry, { maxAttempts: 2, strategy: "FIXED", baseDelay: 1, maxDelay: 3 });
  assert.equal(created.payloadText, text);
  assert.equal(created.payload.n, 12345678901234567890n);
  await assertShape("TaskFlowJob", created);
  const updated = await tasks.update(created.id, { priority: 1, payload: [1], name: "again" });
  assert.deepEqual([updated.priority, updated.payload, updated.name], [1, [1], "again"]);

  await end("life", { error: "no", type: "net", retryable: true });
  const failed = await tasks.get(created.id);
  assert.deepEqual(failed.lastError, { message: "no", type: "net", retryable: true });
  assert.equal(failed.failedAttempts, 1);
  assert.ok(failed.nextRunAt);
  await end("life");
  const done = await tasks.wait(created.id);
  assert.deepEqual([done.status, done.result, done.resultText],
    ["COMPLETED", { ok: true }, '{"ok":true}']);
  await assertShape("TaskFlowJob", done);
  await assert.rejects(tasks.update(created.id, { priority: 2 }), ConflictError);
  await tasks.delete(created.id);
  await assert.rejects(tasks.get(created.id), NotFoundError);
  await assert.rejects(tasks.delete(created.id), NotFoundError);
});

test("a job has a callback", async () => {
  const url = "http://127.0.0.1:1/told";
  const events = ["taskflow.job.*"];
  const made = await tasks.submit({ name: "n", queue: "told", callback: { url, events } });
  await assertShape("TaskFlowJob", made);
  assert.deepEqual(made.callback, { url, events });
  const { callback } = await tasks.submit({ name: "n", queue: "told", callback: { url } });
  assert.equal(callback.url, url);
  assert.equal((await tasks.submit({ name: "n", queue: "told" })).callback, null);
});

test("a key makes one job of several creates", async () => {
  const spec = { name: "once", queue: "once" };
  const first = await tasks.submitOnce("key", spec);
  assert.equal((await tasks.submitOnce("key", spec)).id, first.id);
  await assert.rejects(tasks.submitOnce("key", { ...spec, priority: 9 }),
    (err) => err instanceof ConflictError && err.code === "IDEMPOTENCY_CONFLICT");
  assert.notEqual((await tasks.submitOnce("", spec)).id, first.id);
});

test("a graph is stored, runs in its order and is waited for", async () => {
  const graph = new TaskFlowGraphBuilder();
  const extract = graph.add("extract", { name: "extract", queue: "etl" });
  const left = graph.add("left", { name: "left", queue: "etl" }, extract);
  const right = graph.add("right", { name: "right", queue: "etl" }, extract);
  graph.add("load", { name: "load", queue: "etl" }, left, right);
  assert.deepEqual(graph.refs(), ["extract", "left", "right", "load"]);
  const ids = await tasks.submitGraphOnce("graph", graph);
  assert.deepEqual(await tasks.submitGraphOnce("graph", graph), ids);
  const stored = await tasks.graph(ids.load);
  assert.equal(stored.jobs.length, 4);
  assert.equal(stored.edges.length, 4);
  assert.equal(stored.truncated, false);
  await assertShape("TaskFlowGraph", stored);
  await assertShape("TaskFlowGraphJob", stored.jobs[0]);

  const order = [];
  for (let i = 0; i < 4; i++) order.push((await end("etl")).id);
  assert.deepEqual([order[0], order[3]], [ids.extract, ids.load]);
  const done = await tasks.waitGraph(ids.extract);
  assert.ok(done.jobs.every(({ status }) => status === "COMPLETED"));
});

test("what is wrong with a graph is said before it is sent, by refs", async () => {
  const spec = { name: "n", queue: "q" };
  const built = (...parts) => {
    const graph = new TaskFlowGraphBuilder();
    for (const [ref, ...after] of parts) graph.add(ref, spec, ...after);
    return tasks.submitGraph(graph);
  };
  await assert.rejects(built(), /the graph is empty/);
  await assert.rejects(built(["a"], ["a"]), /ref "a" is there twice/);
  await assert.rejects(built(["a", "b"]), /job "a" comes after "b", which is not in the graph/);
  await assert.rejects(built(["x"], ["a", "x", "c"], ["b", "a"], ["c", "b"]), (err) =>
    err instanceof CycleError && err.status === 0 &&
    assert.deepEqual([...err.cycle].sort(), ["a", "b", "c"]) === undefined);
  const long = Array.from({ length: 9000 }, (_, i) => i ? [`${i}`, `${i - 1}`] : ["0"]);
  const ids = await built(...long);
  assert.equal(Object.keys(ids).length, 9000);
});

test("a cycle that the server finds has its path", async () => {
  const a = await tasks.submit({ name: "a", queue: "cycle" });
  const b = await tasks.submit({ name: "b", queue: "cycle", dependencies: [a.id] });
  assert.equal(b.status, "PENDING");
  const c = await tasks.submit({ name: "c", queue: "cycle", dependencies: [b.id] });
  await assert.rejects(tasks.update(b.id, { dependencies: [c.id] }), (err) =>
    err instanceof CycleError && err.status === 409 && err.cycle.length === 2);
  await assert.rejects(tasks.delete(a.id), ConflictError);
  await tasks.deleteWithDependents(a.id);
  await assert.rejects(tasks.get(c.id), NotFoundError);
});

test("what has failed is run again", async () => {
  const graph = new TaskFlowGraphBuilder();
  graph.add("a", { name: "a", queue: "rerun" });
  graph.add("b", { name: "b", queue: "rerun" }, "a");
  const ids = await tasks.submitGraph(graph);
  await end("rerun", { error: "no", retryable: false });
  assert.equal((await tasks.wait(ids.b)).status, "BLOCKED");
  const copies = await tasks.rerun(ids.b);
  assert.deepEqual(Object.keys(copies).sort(), [ids.a, ids.b].sort());
  const copy = await tasks.get(copies[ids.a]);
  assert.equal(copy.rerunOf, ids.a);
  assert.equal((await tasks.get(ids.a)).rerunAs, copy.id);
  await assert.rejects(tasks.rerun(ids.b), (err) => err instanceof ConflictError &&
    assert.deepEqual(err.copies, copies) === undefined);
  assert.notDeepEqual(await tasks.rerun(ids.b, { again: true }), copies);
  const again = await tasks.rerunGraph(ids.a, { again: true });
  assert.equal(Object.keys(again).length, 2);
});

test("a run is canceled", async () => {
  const job = await tasks.submit({ name: "n", queue: "cancel" });
  await assert.rejects(tasks.cancel(job.id), ConflictError);
  const [claimed] = await api.claim({ contract: "taskflow", queues: ["cancel"] }, { wait: 20 });
  assert.equal((await tasks.cancel(job.id)).status, "FAILED");
  await assert.rejects(api.heartbeat(claimed.runId), { name: "RunLostError" });
});

test("jobs are searched page by page, and waiting is ended by a signal", async () => {
  for (let i = 0; i < 5; i++) {
    await tasks.submit({ name: `${i}`, queue: "search", priority: i + 1 });
  }
  const from = new Date(Date.now() - 3_600_000);
  const filter = { queue: "search", status: "READY", priorityMin: 2, priorityMax: 4,
    createdAfter: from, createdBefore: "2999-01-01T00:00:00Z", pageSize: 2 };
  assert.deepEqual((await all(tasks.search(filter))).map(({ name }) => name), ["3", "2", "1"]);
  const page = await tasks.page(filter);
  assert.equal(page.jobs.length, 2);
  await assertShape("TaskFlowPage", page);
  const rest = await tasks.page(filter, page.next);
  assert.deepEqual([rest.jobs.length, rest.next], [1, ""]);
  await assert.rejects(tasks.page({ status: "WHAT" }), InvalidError);
  await assert.rejects(tasks.page({}, "no cursor"), InvalidError);
  await assert.rejects(tasks.wait(page.jobs[0].id, { signal: AbortSignal.timeout(20) }),
    AbortedError);
});

test("bad input changes nothing", async () => {
  for (const wrong of [{}, { name: "n" }, { queue: "q" }, { name: "n", queue: "a b" },
    { name: "n", queue: "q", priority: 11 }, { name: "n", queue: "q", payload: NaN },
    { name: "n", queue: "q", retry: { baseDelay: "1" } }, { name: "n", queue: "q",
      dependencies: ["what"] }]) {
    await assert.rejects(tasks.submit(wrong), InvalidError, JSON.stringify(wrong));
  }
  await assert.rejects(tasks.get(""), InvalidError);
  await assert.rejects(tasks.get("no UUID"), NotFoundError);
});
