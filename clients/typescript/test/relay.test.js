import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ConflictError, InvalidError, NotFoundError, RawJSON, RunLostError }
  from "../dist/index.js";
import { Server, all, until } from "./support/server.js";

let server;
let relay;
before(async () => {
  server = await Server.start();
  relay = server.client().relay();
});
after(() => server.close());

test("a job from enqueue to complete", async () => {
  const runAt = "2020-01-02T03:04:05.000006Z";
  await relay.enqueue({ queue: "life", id: "1", timeout: 2.5, maxRetries: 4, runAt,
    payload: { to: "ä@example.org" }, state: [1] });
  assert.equal(await relay.exists("life", "1"), true);
  const stored = await relay.get("life", "1");
  assert.deepEqual(stored, { queue: "life", id: "1", timeout: 3, maxRetries: 4,
    retriesRemaining: 4, payload: { to: "ä@example.org" }, payloadText: '{"to":"ä@example.org"}',
    state: [1], stateText: "[1]", callbackUrl: null, runId: null, runAt,
    createdAt: stored.createdAt, updatedAt: stored.updatedAt });

  const [job] = await relay.claim("life", { numJobs: 5 });
  assert.equal(job.id, "1");
  await relay.heartbeat(job, { state: { done: 1 } });
  await relay.heartbeat(job);
  assert.deepEqual((await relay.get("life", "1")).state, { done: 1 });
  await relay.heartbeat(job, { state: null });
  assert.equal((await relay.get("life", "1")).state, null);
  await relay.complete(job);
  assert.equal(await relay.exists("life", "1"), false);
  await relay.complete(job); // is no error
  await assert.rejects(relay.heartbeat(job), (err) => err instanceof RunLostError &&
    err.status === 404 && err.op === "relay heartbeat" && !err.uncertain);
  await assert.rejects(relay.get("life", "1"), NotFoundError);
});

test("JSON travels byte for byte, and integers of any size as bigints", async () => {
  const text = '{ "n": 12345678901234567890, "m": -9007199254740993, "d": 1.10, "s": "\\u0041/" }';
  await relay.enqueue([
    { queue: "bytes", id: "raw", timeout: 9, payload: new RawJSON(text) },
    { queue: "bytes", id: "big", timeout: 9, payload: { n: 2n ** 70n, at: new Date(0) } },
    { queue: "bytes", id: "none", timeout: 9 },
  ]);
  const raw = await relay.get("bytes", "raw");
  assert.equal(raw.payloadText, text);
  assert.deepEqual(raw.payload,
    { n: 12345678901234567890n, m: -9007199254740993n, d: 1.1, s: "A/" });
  const big = await relay.get("bytes", "big");
  assert.deepEqual(big.payload, { n: 2n ** 70n, at: "1970-01-01T00:00:00.000Z" });
  assert.equal((await relay.get("bytes", "none")).payload, null);
  assert.throws(() => new RawJSON("{"), SyntaxError);
});

test("names may be any text but those that fetch resolves", async () => {
  for (const name of ["a/b?c#d%2F", "ü 漢 🙂", "...", "x".repeat(1024), "'()*!~", "a\\b", "\u0001"]) {
    await relay.enqueue({ queue: name, id: name, timeout: 9, payload: 1 });
    assert.equal(await relay.exists(name, name), true, name);
    const [job] = await relay.claim(name);
    assert.equal(job.queue, name);
    await relay.complete(job);
    assert.equal(await relay.exists(name, name), false, name);
  }
  for (const name of ["", ".", "..", "\ud800", undefined]) {
    await assert.rejects(relay.exists("q", name), InvalidError);
  }
  assert.equal(await relay.exists("q", "x".repeat(1024)), false);
});

test("the modes of enqueue and requeue", async () => {
  const spec = { queue: "modes", id: "1", timeout: 9, payload: "old" };
  await relay.enqueue(spec);
  await assert.rejects(relay.enqueue([{ ...spec, id: "2" }, spec]), (err) =>
    err instanceof ConflictError && err.status === 409 && !err.uncertain &&
    /modes/.test(err.detail));
  assert.equal(await relay.exists("modes", "2"), false);
  await relay.enqueue({ ...spec, payload: "new" }, { mode: "ignore" });
  assert.equal((await relay.get("modes", "1")).payload, "old");
  const [lost] = await relay.claim("modes");
  await relay.enqueue({ ...spec, payload: "new" }, { mode: "replace" });
  await assert.rejects(relay.heartbeat(lost), RunLostError);

  const [job] = await relay.claim("modes");
  assert.equal(job.payload, "new");
  await relay.requeue(job, [{ ...job, payload: "again" }, { ...job, id: "2" }]);
  assert.equal((await relay.get("modes", "1")).payload, "again");
  const [one] = await relay.claim("modes");
  await relay.enqueue({ ...spec, id: "3" });
  await assert.rejects(relay.requeue(one, [{ ...spec, id: "3" }]), ConflictError);
  await relay.requeue(one, [{ ...spec, id: "3" }], { mode: "ignore" });
  await relay.delete("modes", "3");
  await relay.delete("modes", "3"); // is no error
  await relay.enqueue([]);
});

test("a job keeps its callback when its run requeues it", async () => {
  const callbackUrl = "http://127.0.0.1:1/told";
  await relay.enqueue({ queue: "told", id: "1", timeout: 9, callbackUrl });
  const [job] = await relay.claim("told");
  assert.equal(job.callbackUrl, callbackUrl);
  await relay.requeue(job, [job]);
  assert.equal((await relay.get("told", "1")).callbackUrl, callbackUrl);
});

test("next waits in the server, and is ended by its signal", async () => {
  assert.deepEqual(await relay.claim("nothing"), []);
  const waiting = relay.claim("later", { wait: 20 });
  await relay.enqueue({ queue: "later", id: "1", timeout: 9 });
  assert.equal((await waiting).length, 1);
  const stop = new AbortController();
  const aborted = relay.claim("nothing", { wait: 20, signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(aborted, (err) => err.name === "AbortedError" &&
    err.cause.message === "enough" && !err.retryable);
  await assert.rejects(relay.claim("nothing", { signal: AbortSignal.abort() }),
    (err) => err.name === "AbortedError" && !err.uncertain);
});

test("several runs are completed and kept alive in one request", async () => {
  await relay.enqueue(["1", "2", "3"].map((id) => ({ queue: "all", id, timeout: 9 })));
  const [a, b, c] = await relay.claim("all", { numJobs: 3 });
  assert.deepEqual(await relay.heartbeatAll([{ ...a, state: 7 }, { ...b, runId: c.runId }, c]),
    [true, false, true]);
  assert.equal((await relay.get("all", "1")).state, 7);
  assert.deepEqual(await relay.completeAll([a, b, b]), [true, true, false]);
  assert.deepEqual(await relay.completeAll([]), []);
  await assert.rejects(relay.completeAll([{ ...c, runId: "" }]), (err) =>
    err instanceof InvalidError && /run 0: run id is empty/.test(err.message));
  assert.equal(await relay.exists("all", "3"), true);
});

test("dead letters are listed page by page and replayed", async () => {
  await relay.enqueue(["1", "2"].map((id) =>
    ({ queue: "dead", id, timeout: 0, maxRetries: 0, payload: { id } })));
  const deadLetters = await until("there are dead letters", async () => {
    await relay.claim("dead", { numJobs: 2 });
    const found = await all(relay.deadLetters("dead", { pageSize: 1 }));
    return found.length === 2 && found;
  });
  const [deadLetter] = deadLetters;
  assert.deepEqual(deadLetter.payload, { id: deadLetter.jobId });
  assert.equal(deadLetter.queue, "dead");
  assert.equal(deadLetter.replayedAt, null);
  const job = await relay.replay("dead", deadLetter.id);
  assert.equal(job.id, deadLetter.jobId);
  await relay.delete("dead", job.id);
  await assert.rejects(relay.replay("dead", deadLetter.id), ConflictError);
  await relay.replay("dead", deadLetter.id, { again: true });
  await assert.rejects(relay.replay("dead", 999999), NotFoundError);
});

test("bad input is refused before anything is sent, or by the server", async () => {
  const spec = { queue: "bad", id: "1", timeout: 9 };
  const circle = [];
  circle.push(circle);
  for (const [wrong, message] of [
    [{ ...spec, queue: "" }, /job 0: queue is empty/],
    [{ ...spec, id: 7 }, /id is not a string/],
    [{ ...spec, timeout: "9" }, /timeout is not a number/],
    [{ ...spec, timeout: NaN }, /timeout is not a number/],
    [{ ...spec, payload: NaN }, /NaN is not JSON/],
    [{ ...spec, payload: circle }, /cycle/],
    [{ ...spec, payload: () => 1 }, /function is not JSON/],
    [{ ...spec, runAt: new Date("never") }, /runAt is not a time/],
    [{ ...spec, runAt: "soon" }, /400|422/],
    [{ ...spec, timeout: -1 }, /422/],
    [{ ...spec, maxRetries: 1e6 }, /422/],
  ]) {
    await assert.rejects(relay.enqueue(wrong), (err) => {
      assert.ok(err instanceof InvalidError, err);
      assert.match(err.message, message);
      return true;
    });
  }
  await assert.rejects(relay.enqueue(spec, { mode: "maybe" }), InvalidError);
  await assert.rejects(relay.claim("bad", { numJobs: 0 }), InvalidError);
  await assert.rejects(relay.claim("bad", { wait: "long" }), InvalidError);
  assert.equal(await relay.exists("bad", "1"), false);
});
