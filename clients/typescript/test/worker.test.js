import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { DrainTimeoutError, InvalidError, Run, RunFinishedError, RunLostError, Worker }
  from "../dist/index.js";
import { Server, aborted, all, deferred, faultyFetch, keptLog, until } from "./support/server.js";

let server;
let relay;
before(async () => {
  server = await Server.start();
  relay = server.client().relay();
});
after(() => server.close());

const specs = (queue, n, more = {}) => Array.from({ length: n }, (_, i) =>
  ({ queue, id: String(i), timeout: 30, payload: { i }, ...more }));

/** Runs a worker until so many runs have ended, and returns their reasons by job id. */
async function work(config, ends) {
  const stop = new AbortController();
  const reasons = [];
  const worker = new Worker({ relay, pollInterval: 0.05, ...config, afterRun: (job, reason) => {
    reasons.push([job.id, reason]);
    if (reasons.length === ends) stop.abort();
  } });
  await worker.run({ signal: stop.signal });
  return reasons;
}

test("a worker runs each job once, so many at a time", async () => {
  await relay.enqueue(specs("many", 60));
  let now = 0;
  let maxRunning = 0;
  const seen = [];
  const reasons = await work({ queue: "many", concurrency: 7, handler: async (run) => {
    maxRunning = Math.max(maxRunning, ++now);
    await new Promise((resolve) => setTimeout(resolve, 2));
    seen.push(run.job.payload.i);
    now--;
  } }, 60);
  assert.deepEqual(seen.sort((a, b) => a - b), specs("many", 60).map((_, i) => i));
  assert.ok(reasons.every(([, reason]) => reason === undefined));
  assert.equal(maxRunning, 7);
  assert.deepEqual(await relay.claim("many"), []);
});

test("runs that end together share requests, with every server", async () => {
  for (const batches of [true, false]) {
    await relay.enqueue(specs("batches", 300));
    const faulty = faultyFetch(({ path }) =>
      !batches && path.endsWith("/completions") && new Response("404 page", { status: 404 }));
    const own = server.client({ fetch: faulty }).relay();
    await work({ relay: own, queue: "batches", concurrency: 100, handler: () => {} }, 300);
    assert.deepEqual(await relay.claim("batches"), []);
    const singles = faulty.requests.filter(({ method }) => method === "DELETE").length;
    const together = faulty.requests.filter(({ path }) => path.endsWith("/completions")).length;
    const counts = `${singles} singles, ${together} batches`;
    if (batches) assert.ok(together > 0 && singles < 100, counts);
    else assert.ok(singles === 300 && together >= 1 && together <= 4, counts);
  }
});

test("the state of a run that failed is where the next one begins", async () => {
  await relay.enqueue({ queue: "state", id: "1", timeout: 1, payload: 1 });
  const states = [];
  const log = keptLog();
  const reasons = await work({ queue: "state", logger: log, handler: async (run) => {
    states.push(run.job.state);
    if (states.length === 1) {
      run.setState({ step: 1 });
      throw new Error("the first");
    }
    if (states.length === 2) {
      await run.saveState({ step: 2 });
      run.setState({ step: 3 });
      throw "the second";
    }
    assert.throws(() => run.setState(() => 1), InvalidError);
  } }, 3);
  assert.deepEqual(states, [null, { step: 1 }, { step: 3 }]);
  assert.deepEqual(reasons.map(([, reason]) => reason && String(reason)),
    ["Error: the first", "Error: the second", undefined]);
  assert.equal(log.lines.filter(({ message }) => message.startsWith("handler failed")).length, 2);
});

test("heartbeats keep a run alive beyond its timeout, and store its progress", async () => {
  await relay.enqueue({ queue: "beats", id: "1", timeout: 1 });
  let runs = 0;
  await work({ queue: "beats", maxHeartbeatInterval: 0.1, handler: async (run) => {
    runs++;
    const since = (await relay.get("beats", "1")).updatedAt;
    run.setState({ percent: 50 });
    await until("progress is stored", async () => (await relay.get("beats", "1")).state);
    await until("more than a timeout has passed", async () => {
      const { updatedAt } = await relay.get("beats", "1");
      return Date.parse(updatedAt) - Date.parse(since) > 1200;
    });
    assert.equal(run.signal.aborted, false);
  } }, 1);
  assert.equal(runs, 1);
});

test("heartbeats that are due together share requests, with every server", async () => {
  for (const batches of [true, false]) {
    await relay.enqueue(specs("shared", 40));
    const faulty = faultyFetch(({ path }) =>
      !batches && path.endsWith("/heartbeats") && new Response("no", { status: 404 }));
    const own = server.client({ fetch: faulty }).relay();
    const count = (method, end) => faulty.requests.filter((request) =>
      request.method === method && request.path.endsWith(end)).length;
    const handled = deferred();
    const watching = until("there are heartbeats", () =>
      (batches ? count("POST", "/heartbeats") : count("PATCH", "")) >= 6);
    watching.then(handled.resolve, handled.reject);
    await work({ relay: own, queue: "shared", concurrency: 40, maxHeartbeatInterval: 0.1,
      handler: () => handled.promise }, 40);
    if (batches) assert.ok(count("PATCH", "") < 40, `${count("PATCH", "")} single heartbeats`);
    assert.deepEqual(await relay.claim("shared"), []);
  }
});

test("a run that is lost is noticed, and never completed", async () => {
  await relay.enqueue({ queue: "lost", id: "1", timeout: 60, payload: "old" });
  const first = deferred();
  const reasons = await work({ queue: "lost", maxHeartbeatInterval: 0.05, handler: async (run) => {
    if (run.job.payload === "new") return;
    await relay.enqueue({ ...run.job, payload: "new" }, { mode: "replace" });
    await aborted(run.signal);
    assert.ok(run.signal.reason instanceof RunLostError);
    assert.throws(() => run.setState(1), RunLostError);
    await assert.rejects(run.saveState(1), RunLostError);
    first.resolve();
  } }, 2);
  await first.promise;
  assert.ok(reasons[0][1] instanceof RunLostError);
  assert.equal(reasons[1][1], undefined);
});

test("a run whose heartbeats are refused for a whole timeout is lost", async () => {
  await relay.enqueue({ queue: "refused", id: "1", timeout: 1, maxRetries: 0 });
  const faulty = faultyFetch(({ method }) =>
    method === "PATCH" && new Response("who?", { status: 401 }));
  const own = server.client({ fetch: faulty }).relay();
  const reasons = await work({ relay: own, queue: "refused", handler: async (run) => {
    await aborted(run.signal);
  } }, 1);
  assert.ok(reasons[0][1] instanceof RunLostError);
  assert.equal(reasons[0][1].cause.status, 401);
});

test("a run that its end finds lost is a lost run", async () => {
  const count = 30;
  for (const ending of ["complete", "requeue"]) {
    await relay.enqueue(specs(ending, count));
    const log = keptLog();
    const reasons = await work({ queue: ending, concurrency: count, logger: log,
      handler: async (run) => {
        if (run.job.payload === "again") return;
        await relay.enqueue({ ...run.job, payload: "again" }, { mode: "replace" });
        if (ending === "complete") return;
        await run.requeue({ queue: ending, id: "stored", timeout: 60 });
      } }, 2 * count);
    const lost = reasons.filter(([, reason]) => reason !== undefined);
    assert.equal(lost.length, count);
    assert.ok(lost.every(([, reason]) => reason instanceof RunLostError && !reason.uncertain));
    const logged = (text) => log.lines.filter(({ message }) => message === text).length;
    assert.equal(logged("run lost; its outcome is dropped"), count);
    assert.equal(logged("job completed"), count);
    assert.equal(await relay.exists(ending, "stored"), false);
  }
});

test("operators and dead letters have the reason of a failure", async () => {
  await relay.enqueue({ queue: "reason", id: "1", timeout: 2, maxRetries: 0, state: { step: 1 } });
  const log = keptLog();
  await work({ queue: "reason", logger: log, handler: (run) => {
    run.setState({ step: 2 });
    throw new RangeError("no such mailbox");
  } }, 1);
  const { token } = await operatorToken();
  const admin = server.client({ token }).admin();
  const [job] = await all(admin.jobs({ contract: "relay", queue: "reason" }));
  const running = await admin.why(job.number);
  assert.match(running.summary, /has failed .*: no such mailbox\. No attempt is left/);
  await until("it is given up", async () => !(await relay.exists("reason", "1")));
  const [deadLetter] = await all(relay.deadLetters("reason"));
  assert.equal(deadLetter.error, "no such mailbox");
  assert.deepEqual(deadLetter.state, { step: 2 });
  const given = await admin.why(job.number);
  assert.match(given.summary, /Its error is RangeError: no such mailbox\./);
  const { entries } = await admin.timeline(job.number);
  assert.deepEqual(entries.filter(({ error }) => error).map(({ outcome, error }) =>
    [outcome, error]), [["failed", "no such mailbox"]]);
  assert.deepEqual(log.lines.filter(({ message }) => /not reported/.test(message)), []);
  assert.equal(log.lines[0].message, "waiting for jobs");
});

test("a run whose handler returned a generator has failed", async () => {
  await relay.enqueue({ queue: "generated", id: "1", timeout: 1, maxRetries: 0 });
  async function* generator() {}
  const log = keptLog();
  await work({ queue: "generated", logger: log, handler: () => generator() }, 1);
  await until("it is given up", async () => !(await relay.exists("generated", "1")));
  const [deadLetter] = await all(relay.deadLetters("generated"));
  assert.equal(deadLetter.error, "the handler returned a generator, which did not run");
});

test("a handler requeues its job", async () => {
  await relay.enqueue({ queue: "again", id: "1", timeout: 30, payload: 1 });
  const payloads = [];
  await work({ queue: "again", handler: async (run) => {
    payloads.push(run.job.payload);
    if (run.job.payload === 3) return;
    const next = { ...run.job, payload: run.job.payload + 1 };
    if (run.job.payload === 1) {
      await assert.rejects(run.requeue([next, next]), { name: "ConflictError" });
    }
    await run.requeue(next);
    await assert.rejects(run.requeue(next), RunFinishedError);
    assert.throws(() => run.setState(1), RunFinishedError);
  } }, 3);
  assert.deepEqual(payloads, [1, 2, 3]);
  assert.equal(await relay.exists("again", "1"), false);
});

test("a handler ends its run by a transaction of its own", async () => {
  await relay.enqueue({ queue: "own", id: "1", timeout: 3 });
  const counting = faultyFetch(() => false);
  const sent = () => counting.requests.filter(({ method }) => method !== "GET").length;
  let before = 0;
  const reasons = await work({ relay: server.client({ fetch: counting }).relay(), queue: "own",
    maxHeartbeatInterval: 0.05, handler: async (run) => {
      await assert.rejects(run.finishWith(() => {
        throw new RangeError("rolled back");
      }), RangeError);
      await run.saveState({ the_run: "goes on" });
      await run.finishWith(async () => {
        before = sent();
        await new Promise((resolve) => setTimeout(resolve, 300)); // six heartbeats
        await relay.complete(run.job); // in the place of millrace.complete
      });
      await new Promise((resolve) => setTimeout(resolve, 300));
      await assert.rejects(run.finishWith(() => assert.fail("called again")), RunFinishedError);
    } }, 1);
  assert.equal(sent(), before);
  assert.deepEqual(reasons, [["1", undefined]]);
  assert.equal(await relay.exists("own", "1"), false);
});

test("middleware wraps the handler, the first is the outermost", async () => {
  await relay.enqueue({ queue: "wrapped", id: "1", timeout: 30 });
  const order = [];
  const note = (name) => (handler) => async (run) => {
    order.push(name);
    await handler(run);
    order.push(`/${name}`);
  };
  await work({ queue: "wrapped", middleware: [note("a"), note("b")],
    handler: () => void order.push("handler") }, 1);
  assert.deepEqual(order, ["a", "b", "handler", "/b", "/a"]);
});

test("a stop lets handlers finish", async () => {
  await relay.enqueue(specs("drain", 3));
  const stop = new AbortController();
  const began = deferred();
  const goOn = deferred();
  const worker = new Worker({ relay, queue: "drain", concurrency: 2, handler: async () => {
    began.resolve();
    await goOn.promise;
  } });
  const running = worker.run({ signal: stop.signal });
  await began.promise;
  stop.abort();
  goOn.resolve();
  await running;
  assert.equal((await relay.claim("drain", { numJobs: 3 })).length, 1);
});

test("after the drain timeout, or a kill, the signals of handlers are aborted", async () => {
  for (const how of ["timeout", "kill"]) {
    await relay.enqueue({ queue: how, id: "1", timeout: 30 });
    const stop = new AbortController();
    const kill = new AbortController();
    const seen = deferred();
    const worker = new Worker({ relay, queue: how, kill: kill.signal,
      drainTimeout: how === "timeout" ? 0 : 60,
      handler: async (run) => {
        stop.abort();
        if (how === "kill") kill.abort(new Error("now"));
        await aborted(run.signal);
        seen.resolve(run.signal.reason);
      } });
    await assert.rejects(worker.run({ signal: stop.signal }), DrainTimeoutError);
    const reason = await seen.promise;
    assert.ok(reason instanceof DrainTimeoutError);
    if (how === "kill") assert.equal(reason.cause.message, "now");
    assert.equal(await relay.exists(how, "1"), false); // its handler has returned
  }
});

test("a worker that an operator drains ends by itself", async () => {
  const { token } = await operatorToken();
  const began = deferred();
  const goOn = deferred();
  await relay.enqueue({ queue: "drained", id: "1", timeout: 30 });
  const worker = new Worker({ relay, queue: "drained", name: "drained worker", pollInterval: 0.05,
    concurrency: 2, pollWait: 1, handler: async () => {
      began.resolve();
      await goOn.promise;
    } });
  const running = worker.run();
  await began.promise;
  const drain = `${server.baseURL}/admin/v1/workers/drained%20worker/drain`;
  const drained = await fetch(drain,
    { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  assert.equal(drained.status, 200);
  await until("the next poll is told so", async () => {
    const { headers } = await fetch(`${server.baseURL}/v2/queues/drained/jobs`,
      { headers: { "Millrace-Worker": "drained worker" } });
    return headers.get("Millrace-Drain") === "true";
  });
  goOn.resolve();
  await running;
  assert.equal(await relay.exists("drained", "1"), false);
  assert.deepEqual(await relay.claim("drained"), []);
});

async function operatorToken() {
  const { readFile } = await import("node:fs/promises");
  return { token: (await readFile(`${server.data}/operator.token`, "utf8")).trim() };
}

test("what is missing or wrong in a worker is said at once", () => {
  assert.throws(() => new Worker({}), (err) => err instanceof InvalidError &&
    /relay is required, queue is required, handler is required/.test(err.message));
  const config = { relay, queue: "q", handler: () => {} };
  for (const wrong of [{ concurrency: 0 }, { concurrency: 1.5 }, { pollInterval: -1 },
    { maxHeartbeatInterval: NaN }, { drainTimeout: -1 }, { pollWait: "1" }]) {
    assert.throws(() => new Worker({ ...config, ...wrong }), InvalidError, JSON.stringify(wrong));
  }
  for (const [wrong, said] of [
    [{ relay: server.client() }, /a Client has no jobs for a worker: pass client\.relay\(\)/],
    [{ relay: "http://localhost" }, /a String has no jobs for a worker: pass client\.relay\(\)/],
    [{ handler: "send" }, /handler send cannot be called/],
    [{ handler: function* send() {} }, /handler send is a generator: a handler is a plain or an a/],
    [{ handler: async function* send() {} }, /handler send is a generator/],
    [{ handler: (run, done) => done() }, /handler handler does not take one argument, the run/],
  ]) {
    assert.throws(() => new Worker({ ...config, ...wrong }), (err) => err instanceof InvalidError &&
      said.test(err.message), String(said));
  }
  new Worker({ ...config, handler: async (run) => run });
  new Worker({ ...config, handler: console.log });
  const run = new Run({ queue: "q", id: "1", payload: 7 });
  assert.equal(run.job.payload, 7);
  assert.equal(run.signal.aborted, false);
  assert.throws(() => run.setState(1), InvalidError);
});
