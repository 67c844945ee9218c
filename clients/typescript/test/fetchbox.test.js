import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { AbortedError, ConflictError, InvalidError, JobWorker, NotFoundError, RawJSON,
  RetryableError, UnauthorizedError } from "../dist/index.js";
import { Server, all, faultyFetch, until } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let box;
let site;
let broken = true;
before(async () => {
  server = await Server.start({ "fetchbox.tries": "1", "fetchbox.backoff_base": "10ms" });
  box = server.client().fetchBox();
  site = createServer((request, response) => {
    response.writeHead(request.url.startsWith("/broken") && broken ? 404 : 200).end(request.url);
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => site.once("listening", resolve));
});
after(async () => {
  site.close();
  site.closeAllConnections();
  await server.close();
});
const url = (path) => `http://127.0.0.1:${site.address().port}/${path}`;
const manifest = (...paths) => ({ metadata: { n: 1n << 60n }, attributes: { a: 1 },
  resources: paths.map((path, i) => ({ id: `${i}`, url: url(path), tags: { path } })) });

/** The log of a job that has completed. */
async function wholeLog(jobId) {
  return await until("the log is complete", async () => {
    const entries = await all(box.logs(jobId));
    return entries.at(-1)?.message === "the job is completed" && entries;
  });
}

test("a manifest is submitted, followed and waited for", async () => {
  const receipt = await box.submit({ type: "default", tenant: "tenänt",
    manifest: manifest("a", "b") });
  await assertShape("FetchBoxReceipt", receipt);
  assert.equal(receipt.resources, 2);
  const job = await box.wait(receipt.jobId);
  await assertShape("FetchBoxJob", job);
  await assertShape("FetchBoxLogPosition", job.logStart);
  assert.deepEqual([job.status, job.total, job.completed, job.failed, job.tenant],
    ["completed", 2, 2, 0, "tenänt"]);
  const entries = await wholeLog(receipt.jobId);
  await assertShape("FetchBoxLogEntry", entries[0]);
  const rest = await all(box.logs(receipt.jobId, { since: BigInt(entries[0].offset) + 1n }));
  assert.deepEqual(rest, entries.slice(1));
  const again = await box.submit({ type: "default", tenant: "tenänt", manifest: manifest("a"),
    idempotencyKey: receipt.idempotencyKey });
  assert.equal(again.jobId, receipt.jobId);
  const listed = await all(box.jobs({ status: "completed", pageSize: 1 }));
  assert.ok(listed.some(({ id }) => id === receipt.jobId));
});

test("a large manifest is compressed, a RawJSON is sent as it is", async () => {
  const faulty = faultyFetch();
  const own = server.client({ fetch: faulty }).fetchBox();
  const large = { resources: Array.from({ length: 300 }, (_, i) =>
    ({ id: `${i}`, url: url(`large/${i}`), tags: { text: "x".repeat(60) } })) };
  const receipt = await own.submit({ type: "default", manifest: large });
  assert.equal(receipt.resources, 300);
  const [{ init }] = faulty.requests;
  assert.equal(init.headers.get("Content-Encoding"), "gzip");
  assert.ok(init.body.length < 16384);
  const raw = new RawJSON(`{"manifest_version":"v1","metadata":{},"resources":[{"id":"1","url":"${
    url("raw")}"}]}`);
  assert.equal((await own.submit({ type: "default", manifest: raw })).resources, 1);
  assert.equal(new TextDecoder().decode(faulty.requests[1].init.body), raw.text);
  assert.equal((await box.wait(receipt.jobId)).status, "completed");
});

test("a log is followed across broken connections, each entry once", async () => {
  const { jobId } = await box.submit({ type: "default", manifest: manifest("c", "d", "e") });
  await box.wait(jobId);
  const whole = await wholeLog(jobId);
  let requests = 0;
  const faulty = faultyFetch(async ({ path }, pass) => {
    if (!path.endsWith("/logs") || ++requests > 3) return undefined;
    const response = await pass();
    const { value } = await response.body.getReader().read();
    const cut = value.subarray(0, Math.floor(value.length / 2)); // in the middle of a line
    let sent = false;
    return new Response(new ReadableStream({ pull: (controller) => {
      if (sent) return controller.error(new Error("the connection broke"));
      sent = true;
      return controller.enqueue(cut);
    } }));
  });
  const own = server.client({ fetch: faulty, retry: { baseDelay: 0.001 } }).fetchBox();
  const stop = new AbortController();
  const entries = [];
  await assert.rejects(async () => {
    for await (const entry of own.logs(jobId, { follow: true, signal: stop.signal })) {
      entries.push(entry);
      if (entries.length === whole.length) stop.abort();
    }
  }, AbortedError);
  assert.deepEqual(entries, whole);
  for await (const entry of box.logs(jobId, { follow: true })) {
    assert.equal(entry.offset, whole[0].offset);
    break; // ends the request
  }
});

test("a log gives up when its tries are used up", async () => {
  const refused = faultyFetch(() => new Response("no", { status: 503 }));
  const own = server.client({ fetch: refused, retry: { maxTries: 3, baseDelay: 0.001 } });
  await assert.rejects(all(own.fetchBox().logs("x", { follow: true })), RetryableError);
  assert.equal(refused.requests.length, 3);
  await assert.rejects(all(box.logs("none")), NotFoundError);
});

test("downloads that were given up are dead letters, and are replayed", async () => {
  const callbackUrl = url("told");
  const { jobId } = await box.submit({ type: "default", manifest: manifest("broken"),
    callbackUrl });
  const failed = await box.wait(jobId);
  assert.deepEqual([failed.status, failed.callbackUrl], ["failed", callbackUrl]);
  await assertShape("FetchBoxFailure", failed.lastError);
  const deadLetter = await until("there is a dead letter", async () =>
    (await all(box.deadLetters({ pageSize: 1 }))).find(({ task }) => task.job_id === jobId));
  await assertShape("FetchBoxDeadLetter", deadLetter);
  assert.equal(JSON.parse(deadLetter.taskText).url, url("broken"));
  broken = false;
  const replay = await box.replay(deadLetter.offset);
  await assertShape("FetchBoxReplay", replay);
  await until("it has succeeded", async () => (await box.job(jobId)).status === "completed");
  await assert.rejects(box.replay(deadLetter.offset), ConflictError);
  await assert.rejects(box.replay(999999), NotFoundError);
});

test("the failed downloads of a job are retried, open ones are canceled", async () => {
  broken = true;
  const { jobId } = await box.submit({ type: "default", manifest: manifest("broken/again") });
  assert.equal((await box.wait(jobId)).status, "failed");
  await assert.rejects(box.cancel(jobId), ConflictError);
  broken = false;
  const again = await box.retry(jobId);
  await assertShape("FetchBoxJob", again);
  assert.equal((await box.wait(jobId)).status, "completed");
  await assert.rejects(box.retry(jobId), ConflictError);
  await assert.rejects(box.cancel("none"), NotFoundError);
});

test("the health of the parts, and tokens of operators", async () => {
  const health = await box.health();
  await assertShape("FetchBoxHealth", health);
  await assertShape("FetchBoxComponent", health.components.ledger);
  const own = await Server.start({ "fetchbox.token": "client", "operator.token": "o".repeat(32) });
  try {
    const locked = own.client({ token: "client" }).fetchBox();
    await locked.submit({ type: "default", manifest: manifest("f") });
    await assert.rejects(all(locked.jobs()), UnauthorizedError);
    assert.equal((await all(locked.withOperatorToken("o".repeat(32)).jobs())).length, 1);
  } finally {
    await own.close();
  }
});

test("a job worker downloads in place of the server", async () => {
  const own = await Server.start({}, "--no-workers");
  try {
    const { jobId } = await own.client().fetchBox().submit({ type: "default",
      manifest: manifest("g") });
    const stop = new AbortController();
    await new JobWorker({ api: own.client().workerAPI(), contract: "fetchbox",
      handlers: { default: (run) => assert.equal(run.job.payload.url, url("g")) },
      afterRun: () => stop.abort() }).run({ signal: stop.signal });
    assert.equal((await own.client().fetchBox().job(jobId)).completed, 1);
  } finally {
    await own.close();
  }
});

test("bad input changes nothing", async () => {
  await assert.rejects(box.submit({ type: "what", manifest: manifest("a") }), (err) =>
    err instanceof InvalidError && err.status === 403 && err.code === "UNSUPPORTED_JOB_TYPE");
  for (const [wrong, message] of [
    [{ manifest: manifest("a") }, /job type is not a string/],
    [{ type: "a\nb", manifest: manifest("a") }, /cannot be sent in a header/],
    [{ type: "default", manifest: { resources: [{ id: "1" }] } }, /resource 0: url/],
    [{ type: "default", manifest: { resources: [null] } }, /resource 0: id/],
    [{ type: "default", manifest: { resources: 1 } }, /not a list/],
    [{ type: "default", manifest: { resources: [] } }, /400|422/],
    [{ type: "default", manifest: [] }, /400|422/],
  ]) {
    await assert.rejects(box.submit(wrong), (err) => err instanceof InvalidError &&
      assert.match(err.message, message) === undefined);
  }
  await assert.rejects(box.job("none"), NotFoundError);
});
