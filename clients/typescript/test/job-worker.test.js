import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ConflictError, DrainTimeoutError, InvalidError, JobError, JobRun, JobWorker, NotFoundError,
  Release, RunCanceledError, RunFinishedError, RunLostError, UnauthorizedError, final }
  from "../dist/index.js";
import { Server, aborted, deferred, faultyFetch, keptLog, until } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let api;
let tasks;
before(async () => {
  server = await Server.start({ "taskflow.lease": "3s" });
  api = server.client().workerAPI();
  tasks = server.client().taskFlow();
});
after(() => server.close());

const once = { maxAttempts: 1 };

/** Runs a worker until so many runs have ended, and returns the reasons of those. */
async function work(config, ends) {
  const stop = new AbortController();
  const reasons = [];
  await new JobWorker({ api, contract: "taskflow", pollInterval: 0.05, ...config,
    afterRun: (job, reason) => {
      reasons.push(reason);
      if (reasons.length === ends) stop.abort();
    } }).run({ signal: stop.signal });
  return reasons;
}

test("the calls of a run", async () => {
  const job = await tasks.submit({ name: "n", queue: "calls", payload: { a: 1n << 60n } });
  const [claimed] = await api.claim({ contract: "taskflow", queues: ["calls"], max: 5,
    worker: "me" });
  await assertShape("ClaimedJob", claimed);
  assert.deepEqual([claimed.id, claimed.attempt, claimed.lease, claimed.payload, claimed.state],
    [job.id, 1, 3, { a: 1n << 60n }, null]);
  assert.deepEqual(await api.claim({ contract: "taskflow", queues: ["calls"] }), []);
  const reply = await api.heartbeat(claimed.runId, { state: { half: true } });
  assert.equal(reply.cancel, false);
  await assertShape("HeartbeatReply", reply);
  await api.release(claimed.runId);
  const again = await api.claimJob("taskflow", job.id, { worker: "me" });
  assert.deepEqual([again.id, again.state, again.stateText], [job.id, { half: true },
    '{"half":true}']);
  await assert.rejects(api.claimJob("taskflow", job.id), ConflictError);
  await assert.rejects(api.claimJob("taskflow", "00000000-0000-4000-8000-000000000000"),
    NotFoundError);
  await assert.rejects(api.complete(claimed.runId), RunLostError);
  await api.complete(again.runId, { result: [1] });
  await assert.rejects(api.heartbeat(again.runId), RunLostError);
  assert.deepEqual((await tasks.get(job.id)).result, [1]);
  await assert.rejects(api.claim({ contract: "what" }), InvalidError);
  await assert.rejects(api.fail("", { error: "e", retryable: true }), InvalidError);
});

test("runs of several outcomes end in one request", async () => {
  const jobs = [];
  for (let i = 0; i < 4; i++) {
    jobs.push(await tasks.submit({ name: "n", queue: "finish", retry: once }));
  }
  const runs = await api.claim({ contract: "taskflow", queues: ["finish"], max: 4 });
  const results = await api.finish([
    { runId: runs[0].runId, result: { n: 1 } },
    { runId: runs[1].runId, failure: { error: "no", type: "net", retryable: false } },
    { runId: runs[2].runId, released: true },
    { runId: "none" },
  ]);
  assert.deepEqual(results.map(({ status }) => status), ["COMPLETED", "FAILED", "READY", ""]);
  for (const result of results) await assertShape("FinishResult", result);
  assert.ok(results[3].error instanceof RunLostError && !results[3].error.uncertain);
  assert.equal(results[0].error, null);
  assert.deepEqual(await api.finish([]), []);
  await assert.rejects(api.finish([{ runId: runs[3].runId, result: 1, released: true }]),
    /outcomes\[0\]: there is more than one/);
  await api.complete(runs[3].runId);
  const [released] = await api.claim({ contract: "taskflow", queues: ["finish"] });
  await api.complete(released.runId);
});

test("whatever a handler does, the server gets an outcome", async () => {
  const deep = JSON.parse("[".repeat(600) + "]".repeat(600));
  const handlers = {
    a_result: () => ({ ok: true }),
    no_result: () => {},
    an_error: () => { throw new TypeError("no"); },
    no_error: () => { throw undefined; },
    a_long_error: () => { throw new Error("ü".repeat(1 << 20)); },
    a_type: () => { throw new JobError("no", { type: "net" }); },
    a_bad_type: () => { throw new JobError("no", { type: "t".repeat(300) }); },
    a_final_error: () => { throw final(new Error("never")); },
    no_json: () => ({ n: NaN }),
    a_large_result: () => "x".repeat(5 << 20),
    a_deep_result: () => deep,
  };
  const expected = { a_result: "COMPLETED", no_result: "COMPLETED" };
  const jobs = {};
  for (const queue of Object.keys(handlers)) {
    jobs[queue] = await tasks.submit({ name: queue, queue, retry: once });
  }
  const reasons = await work({ handlers, concurrency: 4 }, Object.keys(handlers).length);
  assert.equal(reasons.filter((reason) => reason === undefined).length, 2);
  for (const [queue, { id }] of Object.entries(jobs)) {
    const job = await tasks.wait(id);
    assert.equal(job.status, expected[queue] ?? "FAILED", queue);
    assert.equal(job.lastError === null, job.status === "COMPLETED", queue);
    if (queue === "an_error") assert.equal(job.lastError.type, "TypeError");
    if (queue === "a_type") assert.equal(job.lastError.type, "net");
    if (queue === "no_json") assert.equal(job.lastError.type, "result");
    if (queue === "a_final_error") assert.equal(job.lastError.retryable, false);
  }
});

test("a failure is retried by the policy of its job, a release is not counted", async () => {
  const job = await tasks.submit({ name: "n", queue: "policy",
    retry: { maxAttempts: 2, strategy: "FIXED", baseDelay: 1 } });
  const attempts = [];
  await work({ handlers: { policy: async (run) => {
    attempts.push(run.job.attempt);
    if (attempts.length === 1) throw new Release("not now");
    if (attempts.length === 2) {
      await run.release();
      await assert.rejects(run.release(), RunFinishedError);
      return;
    }
    if (attempts.length === 3) throw new Error("no");
  } } }, 4);
  assert.equal(attempts.length, 4);
  const done = await tasks.get(job.id);
  assert.deepEqual([done.status, done.failedAttempts], ["COMPLETED", 1]);
});

test("a run that was lost when its handler ends it", async () => {
  await tasks.submit({ name: "n", queue: "late" });
  let cause;
  const [reason] = await work({ handlers: { late: async (run) => {
    const lost = new RunLostError({ op: "complete", detail: "MILLRACE_RUN_LOST" });
    await assert.rejects(run.finishWith(() => Promise.reject(lost)), RunLostError);
    cause = run.signal.reason;
    await assert.rejects(run.finishWith(() => assert.fail("called again")), RunLostError);
  } } }, 1);
  assert.ok(cause instanceof RunLostError);
  assert.ok(reason instanceof RunLostError);
});

test("handlers are chosen by queue, and wrapped", async () => {
  await tasks.submit({ name: "n", queue: "named" });
  await tasks.submit({ name: "n", queue: "other" });
  const seen = [];
  const note = (handler) => async (run) => {
    seen.push(`wrapped ${run.job.queue}`);
    return await handler(run);
  };
  await work({ middleware: [note], handlers: {
    named: (run) => void seen.push(`named ${run.job.queue}`),
    "": (run) => void seen.push(`rest ${run.job.queue}`),
  } }, 2);
  assert.deepEqual(seen.sort(), ["named named", "rest other", "wrapped named", "wrapped other"]);
});

test("short runs end in few requests, with every server", async () => {
  for (const batches of [true, false]) {
    for (let i = 0; i < 60; i++) await tasks.submit({ name: "n", queue: "short" });
    const faulty = faultyFetch(({ path }) =>
      !batches && path === "/worker/v1/outcomes" && new Response("404", { status: 404 }));
    const own = server.client({ fetch: faulty }).workerAPI();
    const reasons = await work({ api: own, concurrency: 60, handlers: { short: () => 1 } }, 60);
    assert.ok(reasons.every((reason) => reason === undefined));
    const singles = faulty.requests.filter(({ path }) => path.endsWith("/complete")).length;
    assert.ok(batches ? singles < 30 : singles === 60, `${singles} single requests`);
  }
});

test("a run that is lost or canceled is noticed", async () => {
  const job = await tasks.submit({ name: "n", queue: "lost" });
  const reasons = await work({ maxHeartbeatInterval: 0.05, handlers: { lost: async (run) => {
    await run.saveState({ half: true });
    await tasks.cancel(job.id);
    await aborted(run.signal);
    assert.ok(run.signal.reason instanceof RunLostError);
  } } }, 1);
  assert.ok(reasons[0] instanceof RunLostError);
});

test("a run that the server asks to end fails as canceled", async () => {
  const job = await tasks.submit({ name: "n", queue: "asked", retry: once });
  const faulty = faultyFetch(async ({ path }, pass) => {
    if (!path.endsWith("/heartbeat")) return undefined;
    const reply = await (await pass()).json();
    return Response.json({ ...reply, cancel: true });
  });
  await work({ api: server.client({ fetch: faulty }).workerAPI(), maxHeartbeatInterval: 0.05,
    handlers: { asked: async (run) => {
      await aborted(run.signal);
      assert.ok(run.signal.reason instanceof RunCanceledError);
      throw run.signal.reason;
    } } }, 1);
  assert.equal((await tasks.get(job.id)).lastError.type, "canceled");
});

test("after the drain timeout jobs are released", async () => {
  const job = await tasks.submit({ name: "n", queue: "drain" });
  const stop = new AbortController();
  await assert.rejects(new JobWorker({ api, contract: "taskflow", drainTimeout: 0,
    handlers: { drain: async (run) => {
      stop.abort();
      await aborted(run.signal);
      throw new Error("stopped");
    } } }).run({ signal: stop.signal }), DrainTimeoutError);
  const released = await tasks.get(job.id);
  assert.deepEqual([released.status, released.failedAttempts], ["READY", 0]);
});

test("a worker outlives kill -9 of its server, loses nothing and doubles nothing", async () => {
  const ids = [];
  for (let i = 0; i < 60; i++) ids.push((await tasks.submit({ name: `${i}`, queue: "crash" })).id);
  const log = keptLog();
  const runs = new Map();
  const stop = new AbortController();
  const goOn = deferred();
  let ended = 0;
  const worker = new JobWorker({ api, contract: "taskflow", concurrency: 10, logger: log,
    pollInterval: 0.05, handlers: { crash: async (run) => {
      runs.set(run.job.id, (runs.get(run.job.id) ?? 0) + 1);
      if (runs.size > 20) await goOn.promise;
      return runs.size;
    } }, afterRun: () => {
      if (++ended === ids.length) stop.abort();
    } });
  const working = worker.run({ signal: stop.signal });
  await until("it works", () => runs.size > 25);
  await server.kill();
  goOn.resolve();
  await until("the worker has noticed", () => log.lines.some(({ level }) => level === "warn"));
  await server.launch();
  await working;
  for (const id of ids) assert.equal((await tasks.get(id)).status, "COMPLETED");
  assert.deepEqual([...runs].filter(([, n]) => n !== 1), []);
});

test("runs of ForgeRun are started first", async () => {
  const own = await Server.start({}, "--no-workers");
  try {
    const forge = own.client().forgeRun();
    const key = await forge.createFirstApiKey(await forge.createClient());
    const mine = forge.withApiKey(key.apiKey);
    const { jobId } = await mine.submit({ type: "EXECUTE", kind: "SUCCESS_FAST" });
    const ownApi = own.client().workerAPI();
    const [claimed] = await ownApi.claim({ contract: "forgerun" }, { wait: 20 });
    await assert.rejects(ownApi.complete(claimed.runId), ConflictError);
    await ownApi.start(claimed.runId);
    await ownApi.complete(claimed.runId);
    assert.equal((await mine.wait(jobId)).outcome, "SUCCESS");
    const second = await mine.submit({ type: "EXECUTE", kind: "SUCCESS_FAST" });
    await work({ api: ownApi, contract: "forgerun", handlers: { "": () => {} } }, 1);
    assert.equal((await mine.wait(second.jobId)).state, "SUCCEEDED");
  } finally {
    await own.close();
  }
});

test("what is missing or wrong in a worker is said at once", async () => {
  assert.throws(() => new JobWorker({}), (err) => err instanceof InvalidError &&
    /api is required, contract is required, handlers are required/.test(err.message));
  for (const [config, said] of [
    [{ handlers: { a: undefined } }, /the handler of queue "a" is required/],
    [{ handlers: { a: 1 } }, /handler 1 cannot be called/],
    [{ handlers: { a: function* generator() {} } }, /handler generator is a generator/],
    [{ contract: "relay" }, /jobs of Relay are claimed by a Worker/],
    [{ api: server.client() }, /a Client has no jobs for a worker: pass client\.workerAPI\(\)/],
  ]) {
    const base = { api, contract: "taskflow", handlers: { a() {} } };
    assert.throws(() => new JobWorker({ ...base, ...config }),
      (err) => err instanceof InvalidError && said.test(err.message), String(said));
  }
  const run = new JobRun({ id: "1", payload: 7 });
  assert.equal(run.signal.aborted, false);
  assert.throws(() => run.setState(1), InvalidError);
  const own = await Server.start({ "worker.token": "secret" });
  try {
    await assert.rejects(own.client().workerAPI().claim({ contract: "taskflow" }),
      UnauthorizedError);
    await own.client({ token: "secret" }).workerAPI().claim({ contract: "taskflow" });
  } finally {
    await own.close();
  }
});
