import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ConflictError, InvalidError, NotFoundError, UnauthorizedError } from "../dist/index.js";
import { Server, all, until } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let admin;
let client;
before(async () => {
  server = await Server.start();
  client = server.client();
  admin = (await server.operator()).admin().withActor("alice");
});
after(() => server.close());

/** The job of Relay with an id, as operators see it. */
async function jobOf(queue, id) {
  const [job] = await all(admin.jobs({ contract: "relay", queue, id }));
  return job ?? assert.fail(`there is no job ${id}`);
}

test("jobs are listed by filters, and shown with their bodies", async () => {
  await client.relay().enqueue(["1", "2", "3"].map((id) =>
    ({ queue: "list", id, timeout: 30, payload: { big: 1n << 60n } })));
  const contracts = await all(admin.contracts());
  const { states } = contracts.find(({ contract }) => contract === "relay");
  const jobs = await all(admin.jobs({ queue: "list", states, oldest: true }, { pageSize: 2 }));
  assert.deepEqual(jobs.map(({ id }) => id), ["1", "2", "3"]);
  await assertShape("AdminJob", jobs[0]);
  const numbers = jobs.slice(1).map(({ number }) => number);
  assert.equal((await all(admin.jobs({ numbers, createdFrom: new Date(0),
    createdBefore: "2999-01-01T00:00:00Z", phases: ["ready"] }))).length, 2);
  const detail = await admin.job(jobs[0].number);
  await assertShape("AdminJobDetail", detail);
  await assertShape("AdminJobLinks", detail.links);
  assert.deepEqual(detail.payload, { big: 1n << 60n });
  assert.equal(await admin.jobBody(jobs[0].number, "payload"), '{"big":1152921504606846976}');
  assert.deepEqual((await all(admin.jobs({ queue: "list", bodyContains: "1152921504606846976",
    finishedBefore: "2999-01-01T00:00:00Z" }))), []);
  const matching = await all(admin.jobs({ queue: "list", bodyContains: "115292150460684" }));
  assert.equal(matching.length, 3);
  assert.deepEqual(await all(admin.jobs({ queue: "list", errorContains: "disk" })), []);
  await assert.rejects(admin.jobBody(jobs[0].number, "result"), NotFoundError);
  await assert.rejects(admin.job(1n << 60n), NotFoundError);
  await assert.rejects(all(admin.jobs({ contract: "what" })), InvalidError);
});

test("why a job does not run, and what happened to it", async () => {
  await client.relay().enqueue({ queue: "why", id: "1", timeout: 30 });
  const { number } = await jobOf("why", "1");
  await admin.setQueue("relay", "why", { paused: true });
  const why = await until("the pause is in force", async () => {
    const found = await admin.why(number);
    return found.reasons.some(({ code }) => code === "queue_paused") && found;
  });
  await assertShape("AdminWhy", why);
  await assertShape("AdminReason", why.reasons[0]);
  assert.equal(why.summary, why.reasons[0].text);
  const timeline = await admin.timeline(number);
  await assertShape("AdminTimeline", timeline);
  await assertShape("AdminTimelineEntry", timeline.entries[0]);
});

test("operators retry what has failed, and submit", async () => {
  const state = await admin.submitJob({ contract: "taskflow", idempotencyKey: "k",
    request: { name: "n", queue: "acts", retry_policy: { max_attempts: 1 } } });
  await assertShape("AdminActionResult", state);
  const again = await admin.submitJob({ contract: "taskflow", idempotencyKey: "k",
    request: { name: "n", queue: "acts", retry_policy: { max_attempts: 1 } } });
  assert.equal(again.number, state.number);
  const api = client.workerAPI();
  const [run] = await api.claim({ contract: "taskflow", queues: ["acts"] }, { wait: 20 });
  await assert.rejects(admin.actOnJob(state.number, "retry"), (err) =>
    err instanceof ConflictError && err.code === "NOT_ALLOWED");
  await api.fail(run.runId, { error: "no", retryable: false });
  const { actions } = await admin.job(state.number);
  const action = ["retry", "rerun"].find((one) => actions.includes(one));
  const acted = await admin.actOnJob(state.number, action);
  await assertShape("AdminActionResult", acted);
  const [next] = await api.claim({ contract: "taskflow", queues: ["acts"] }, { wait: 20 });
  await api.complete(next.runId);
  await assert.rejects(admin.submitJob({ contract: "taskflow", request: {} }), InvalidError);
});

test("queues are listed, limited and reset", async () => {
  await client.relay().enqueue({ queue: "limits", id: "1", timeout: 30 });
  const queue = await admin.setQueue("relay", "limits", { maxRunning: 2, rateLimit: 5,
    ratePeriod: "1m" });
  await assertShape("AdminQueue", queue);
  assert.deepEqual([queue.maxRunning, queue.rateLimit, queue.ratePeriod, queue.paused],
    [2, 5, "1m", false]);
  const [listed] = await all(admin.queues({ contract: "relay", nameContains: "limits",
    order: "depth" }, { pageSize: 1 }));
  assert.equal(listed.queue, "limits");
  const reset = await admin.resetQueue("relay", "limits");
  await assertShape("AdminQueue", reset);
  assert.ok(!reset.rateLimit && !reset.maxRunning);
  const counts = await all(admin.counts({ by: "queue", contract: "relay", queue: "limits" }));
  await assertShape("AdminCount", counts[0]);
  assert.equal(counts[0].count, 1);
  await assert.rejects(admin.setQueue("relay", "limits", { maxRunning: -1 }), InvalidError);
  await assert.rejects(admin.setQueue("what", "limits", { paused: true }), NotFoundError);
});

test("dead letters are grouped, replayed and discarded", async () => {
  const relay = client.relay();
  await relay.enqueue(["1", "2"].map((id) => ({ queue: "dead", id, timeout: 0, maxRetries: 0 })));
  const deadLetters = await until("there are dead letters", async () => {
    await relay.claim("dead", { numJobs: 2 });
    const found = await all(admin.deadLetters({ contract: "relay", queue: "dead" },
      { pageSize: 1 }));
    return found.length === 2 && found;
  });
  await assertShape("AdminDeadLetter", deadLetters[0]);
  const groups = await all(admin.deadLetterGroups({ contract: "relay" }));
  await assertShape("AdminDeadLetterGroup", groups[0]);
  assert.equal(groups.find(({ queue }) => queue === "dead").count, 2);
  assert.equal((await admin.deadLetter(deadLetters[0].id)).jobId, deadLetters[0].jobId);
  assert.equal((await all(admin.deadLetters({ fingerprint: deadLetters[0].fingerprint,
    failedFrom: new Date(0), failedBefore: "2999-01-01T00:00:00Z" }))).length, 2);
  const job = await admin.replayDeadLetter(deadLetters[0].id);
  assert.equal(job.id, deadLetters[0].jobId);
  await assert.rejects(admin.replayDeadLetter(deadLetters[0].id), ConflictError);
  await relay.delete("dead", job.id);
  await admin.replayDeadLetter(deadLetters[0].id, { again: true });
  await admin.discardDeadLetter(deadLetters[1].id);
  await assert.rejects(admin.discardDeadLetter(deadLetters[1].id), NotFoundError);
});

test("workers and nodes are listed, workers drained", async () => {
  await client.workerAPI().claim({ contract: "taskflow", worker: "wörker" });
  const worker = await until("the worker is known", async () =>
    (await all(admin.workers())).find(({ name }) => name === "wörker"));
  await assertShape("AdminWorker", worker);
  await admin.drainWorker("wörker");
  await until("it is draining", async () =>
    (await all(admin.workers())).find(({ name }) => name === "wörker").draining);
  await admin.resumeWorker("wörker");
  await assert.rejects(admin.drainWorker("nobody"), NotFoundError);
  const [node] = await until("the node has written", async () => {
    const found = await all(admin.nodes());
    return found.length > 0 && found;
  });
  await assertShape("AdminNode", node);
  await assertShape("AdminNodeComponent", node.store);
  if (node.store.connections) await assertShape("AdminConnectionPool", node.store.connections);
  const health = await admin.health();
  await assertShape("AdminHealth", health);
  await assertShape("AdminComponent", health.components[0]);
  const contracts = await all(admin.contracts());
  await assertShape("AdminContract", contracts[0]);
  assert.ok(contracts.some(({ contract }) => contract === "relay"));
});

test("schedules are made, changed, run and deleted", async () => {
  const spec = { every: "1h", contract: "relay", startsAt: "2999-01-01T00:00:00Z",
    request: { queue: "hourly", id: "h", timeout: 30, payload: null } };
  const made = await admin.createSchedule("hourly", spec);
  await assertShape("AdminSchedule", made);
  await assert.rejects(admin.createSchedule("hourly", spec), ConflictError);
  const changed = await admin.setSchedule("hourly", { cron: "0 4 * * *",
    timeZone: "Europe/Berlin", overlap: "skip", catchUp: "none", jitter: "5s" });
  assert.deepEqual([changed.cron, changed.timeZone, changed.overlap, changed.catchUp],
    ["0 4 * * *", "Europe/Berlin", "skip", "none"]);
  assert.equal((await admin.schedule("hourly", { next: 3 })).nextTimes.length, 3);
  assert.equal((await admin.pauseSchedule("hourly")).paused, true);
  assert.equal((await admin.resumeSchedule("hourly")).paused, false);
  const job = await admin.runSchedule("hourly");
  await assertShape("AdminActionResult", job);
  assert.deepEqual(await all(admin.scheduleTicks("hourly")), []);
  assert.ok((await all(admin.schedules({ pageSize: 1 }))).some(({ name }) => name === "hourly"));
  await admin.deleteSchedule("hourly");
  await assert.rejects(admin.schedule("hourly"), NotFoundError);
  await assert.rejects(admin.createSchedule("bad", { every: "often" }), InvalidError);
  const tick = await admin.createSchedule("each", { ...spec, every: "1s",
    startsAt: new Date(0), contract: "taskflow", request: { name: "n", queue: "ticks" } });
  assert.equal(tick.startsAt, "1970-01-01T00:00:00Z");
  const [first] = await until("it has run", async () => {
    const ticks = await all(admin.scheduleTicks("each"));
    return ticks.length > 0 && ticks;
  });
  await assertShape("AdminScheduleTick", first);
  await admin.deleteSchedule("each");
});

test("the token of operators is needed, the name of the actor is kept", async () => {
  await assert.rejects(all(client.admin().jobs()), UnauthorizedError);
  assert.throws(() => admin.withActor("a\nb"), InvalidError);
});
