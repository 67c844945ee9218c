import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { ConflictError, InvalidError, InvalidWebhookError, NotFoundError, UnauthorizedError,
  forgeRunEvents, isFinal, verifyWebhook } from "../dist/index.js";
import { Server, all, until } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let anyone;
let forge;
let clientId;
let receiver;
const received = []; // of the receiver of webhooks
let answerWith = 204;
const callbackSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";
before(async () => {
  server = await Server.start({ "forgerun.duration_scale": "0.01", "forgerun.backoff_base": "10ms",
    "webhook.backoff_base": "10ms", "webhook.max_tries": "1",
    "taskflow.callback_secret": callbackSecret });
  anyone = server.client().forgeRun();
  clientId = await anyone.createClient();
  const key = await anyone.createFirstApiKey(clientId);
  await assertShape("ForgeRunIssuedAPIKey", key);
  assert.match(key.callbackSecret, /^whsec_/);
  forge = anyone.withApiKey(key.apiKey);
  receiver = createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part)).on("end", () => {
      received.push({ headers: request.headers, body: Buffer.concat(parts) });
      response.writeHead(answerWith).end();
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => receiver.once("listening", resolve));
});
after(async () => {
  receiver.close();
  receiver.closeAllConnections();
  await server.close();
});
const hook = (path) => `http://127.0.0.1:${receiver.address().port}/${path}`;

test("a job from submit to its report", async () => {
  const receipt = await forge.submit({ type: "EXECUTE", kind: "SUCCESS_FAST" });
  await assertShape("ForgeRunReceipt", receipt);
  const job = await forge.wait(receipt.jobId);
  await assertShape("ForgeRunJob", job);
  await assertShape("ForgeRunDefinition", job.definition);
  assert.deepEqual([job.state, job.outcome, job.kind], ["SUCCEEDED", "SUCCESS", "SUCCESS_FAST"]);
  assert.ok(isFinal(job.state) && !isFinal("RUNNING"));
  const report = await forge.report(receipt.jobId);
  await assertShape("ForgeRunReport", report);
  await assertShape("ForgeRunEvent", report.events[0]);
  assert.deepEqual(report.events.map(({ name }) => name), ["job_created", "job_queued",
    "job_assigned", "job_started", "job_succeeded"]);
  const same = await forge.submit({ type: "EXECUTE", kind: "SUCCESS_FAST",
    idempotencyKey: receipt.idempotencyKey });
  assert.equal(same.jobId, receipt.jobId);
  await assert.rejects(forge.submit({ type: "EXECUTE", kind: "SUCCESS_SLOW",
    idempotencyKey: receipt.idempotencyKey }), (err) => err instanceof ConflictError &&
    err.code === "RFA_EXEC_IDEMPOTENCY_CONFLICT" && err.instance !== "" &&
    err.idempotencyKey === receipt.idempotencyKey);
});

test("a job is retried, another one canceled", async () => {
  const { jobId } = await forge.submit({ type: "EXECUTE", kind: "RETRY_ON_FAIL" });
  const failed = await forge.wait(jobId);
  await assertShape("ForgeRunFailure", failed.failure);
  await assertShape("ForgeRunActionResult", await forge.retry(jobId));
  await until("the retry has succeeded", async () =>
    (await forge.get(jobId)).state === "SUCCEEDED");
  await assert.rejects(forge.retry(jobId), ConflictError);
  const later = await forge.submit({ type: "DEFERRED", executionAt: new Date(Date.now() + 3.6e6) });
  await assertShape("ForgeRunActionResult", await forge.cancel(later.jobId));
  assert.equal((await forge.wait(later.jobId)).outcome, "CANCELED");
  assert.equal((await forge.report(later.jobId)).startedAt, null);
});

test("jobs are listed by state, page by page", async () => {
  for (let i = 0; i < 3; i++) {
    await forge.submit({ type: "DEFERRED", executionAt: "2999-01-01T00:00:00.000001Z" });
  }
  const jobs = await all(forge.jobs({ state: "CREATED", pageSize: 1 }));
  assert.equal(jobs.length, 3);
  assert.equal(jobs[0].executionAt, "2999-01-01T00:00:00.000001Z");
  assert.ok((await all(forge.jobs())).length > 3);
});

test("keys are issued, rotated, renewed and revoked", async () => {
  const own = await anyone.createClient({ idempotencyKey: "a client" });
  assert.equal(await anyone.createClient({ idempotencyKey: "a client" }), own);
  const first = await anyone.createFirstApiKey(own);
  await assert.rejects(anyone.createFirstApiKey(own), UnauthorizedError);
  const mine = anyone.withApiKey(first.apiKey);
  assert.equal((await mine.createApiKey(own)).apiKey, null);
  const rotated = await mine.createApiKey(own, { rotate: true });
  await assert.rejects(mine.get("x"), UnauthorizedError);
  const renewed = await anyone.withApiKey(rotated.apiKey).renewApiKey(own);
  const now = anyone.withApiKey(renewed.apiKey);
  const keys = await all(now.apiKeys(own));
  assert.equal(keys.length, 3);
  await assertShape("ForgeRunAPIKey", keys[0]);
  await assert.rejects(now.revokeApiKey(own, "00000000-0000-4000-8000-000000000000"),
    NotFoundError);
  await now.revokeApiKey(own, renewed.id);
  await assert.rejects(all(now.apiKeys(own)), UnauthorizedError);
});

test("a callback of another contract is verified", async () => {
  const client = server.client();
  const callback = { url: hook("callback") };
  const made = await client.taskFlow().submit({ name: "told", queue: "told", callback });
  const [run] = await client.workerAPI().claim({ contract: "taskflow", queues: ["told"] });
  await client.workerAPI().complete(run.runId, { result: { sent_to: 2 } });
  const { headers, body } = await until("the callback has come", () =>
    received.find((request) => request.body.includes(made.id)));
  const event = await verifyWebhook([callbackSecret], headers, body);
  assert.equal(event.type, "taskflow.job.completed");
  assert.equal(event.data.id, made.id);
  assert.deepEqual(event.data.result, { sent_to: 2 });
  assert.equal(event.eventId, headers["webhook-id"]);
  assert.ok(event.occurredAt >= made.createdAt);
});

test("webhooks are signed, verified and replayed", async () => {
  const webhook = await forge.createWebhook(hook("events"), forgeRunEvents);
  await assertShape("ForgeRunCreatedWebhook", webhook);
  await assert.rejects(forge.createWebhook(hook("events"), forgeRunEvents), ConflictError);
  const { jobId } = await forge.submit({ type: "EXECUTE", kind: "SUCCESS_FAST" });
  await forge.wait(jobId);
  const ofJob = await until("all events have come", () => {
    const found = received.filter(({ body }) => body.includes(jobId));
    return found.length >= 5 && found;
  });
  for (const { headers, body } of ofJob) {
    const event = await verifyWebhook([webhook.secret], headers, body);
    await assertShape("ForgeRunWebhookEvent", event);
    assert.equal(event.jobId, jobId);
  }
  await verifyAll(webhook.secret, ofJob[0]);

  const deliveries = await until("the deliveries are recorded", async () => {
    const found = await all(forge.deliveries(webhook.id, { pageSize: 2 }));
    return found.length >= 5 && found.every(({ status }) => status === "delivered") && found;
  });
  await assertShape("ForgeRunDelivery", deliveries[0]);
  await assertShape("ForgeRunDeliveryAttempt", deliveries[0].attempts[0]);
  const before = received.length;
  await forge.replayDelivery(webhook.id, deliveries[0].id);
  await until("it is delivered again", () => received.length > before);
  const tested = await forge.testWebhook(webhook.id);
  await assertShape("ForgeRunWebhookTest", tested);
  assert.equal(tested.statusCode, 204);
  const secret = await forge.rotateWebhookSecret(webhook.id);
  await forge.testWebhook(webhook.id);
  await verifyWebhook([webhook.secret], received.at(-1).headers, received.at(-1).body);
  await verifyWebhook([secret], received.at(-1).headers, received.at(-1).body);
  await forge.deleteWebhook(webhook.id);
  await assert.rejects(forge.deleteWebhook(webhook.id), NotFoundError);
});

/** Checks what is not genuine about a request that is. */
async function verifyAll(secret, { headers, body }) {
  const other = `whsec_${btoa("x".repeat(32))}`;
  const at = new Date(Number(headers["webhook-timestamp"]) * 1000);
  const minutes = (n) => new Date(at.getTime() + n * 60_000);
  await verifyWebhook([other, secret], new Headers(headers), body.toString(), minutes(5));
  const two = { ...headers, "webhook-signature": `v1,AAAA, ${headers["webhook-signature"]}` };
  await verifyWebhook([secret], two, body);
  for (const [what, secrets, changed, bytes, now] of [
    ["another secret", [other], headers, body, at],
    ["another body", [secret], headers, `${body} `, at],
    ["another id", [secret], { ...headers, "webhook-id": "x" }, body, at],
    ["no id", [secret], { ...headers, "webhook-id": undefined }, body, at],
    ["no time", [secret], { ...headers, "webhook-timestamp": "now" }, body, at],
    ["an old time", [secret], headers, body, minutes(5.1)],
    ["a time to come", [secret], headers, body, minutes(-5.1)],
    ["no signature", [secret], { ...headers, "webhook-signature": "" }, body, at],
    ["another version", [secret], { ...headers,
      "webhook-signature": headers["webhook-signature"].replace("v1", "v2") }, body, at],
  ]) {
    await assert.rejects(verifyWebhook(secrets, changed, bytes, now), InvalidWebhookError, what);
  }
  await assert.rejects(verifyWebhook(["whsec_?"], headers, body, at), TypeError);
}

test("deliveries that were given up are made once more", async () => {
  answerWith = 500;
  const webhook = await forge.createWebhook(hook("later"), ["job_created"]);
  await forge.submit({ type: "EXECUTE", kind: "SUCCESS_FAST" });
  await until("it is given up", async () => {
    const [delivery] = await all(forge.deliveries(webhook.id));
    return delivery?.status === "exhausted";
  });
  answerWith = 204;
  await forge.enableWebhook(webhook.id);
  const [listed] = (await all(forge.webhooks())).filter(({ id }) => id === webhook.id);
  await assertShape("ForgeRunWebhook", listed);
  const filter = { from: new Date(0), to: new Date(Date.now() + 60_000) };
  assert.deepEqual(await forge.replayDeliveries(webhook.id, filter), { replayed: 1, skipped: 0 });
  assert.deepEqual(await forge.replayDeliveries(webhook.id), { replayed: 0, skipped: 1 });
});

test("bad input changes nothing", async () => {
  for (const wrong of [{}, { type: "WHAT" }, { type: "DEFERRED" },
    { type: "EXECUTE", kind: "WHAT" }, { type: "EXECUTE", executionAt: "2001-01-01T00:00:00Z" },
    { type: "EXECUTE", executionAt: new Date(NaN) }, { type: "EXECUTE", callback: "no URL" }]) {
    await assert.rejects(forge.submit(wrong), InvalidError, JSON.stringify(wrong));
  }
  await assert.rejects(forge.createWebhook("no URL", ["job_failed"]), InvalidError);
  await assert.rejects(forge.get("none"), NotFoundError);
  await assert.rejects(anyone.get("none"), UnauthorizedError);
  await assert.rejects(anyone.withApiKey("mr_wrong").get("none"), UnauthorizedError);
});
