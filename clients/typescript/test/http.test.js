import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { AbortedError, Client, ConflictError, InvalidError, MillraceError, NotFoundError,
  NotMillraceError, RetryableError, UnauthorizedError } from "../dist/index.js";
import { freePort } from "./support/server.js";

const job = { queue: "q", id: "1", timeout: 9 };

/** A client whose requests get these answers in turn, the last one again and again. */
function scripted(answers, config = {}) {
  const requests = [];
  const fetch = async (url, init) => {
    requests.push({ url, ...init });
    const answer = answers[Math.min(requests.length, answers.length) - 1];
    return typeof answer === "function" ? await answer(init) : answer.clone();
  };
  const client = new Client({ baseURL: "http://server/base/", fetch,
    retry: { baseDelay: 0.001, maxDelay: 0.002 }, ...config });
  return { relay: client.relay(), requests };
}

const answer = (status, body = null, headers = {}) => new Response(body, { status, headers });
const connectionFailed = (code) => () => {
  throw new TypeError("fetch failed", { cause: Object.assign(new Error("x"), { code }) });
};

test("a try is repeated where that may help", async () => {
  for (const [what, first] of Object.entries({
    "429": answer(429), "502": answer(502), "503": answer(503), "504": answer(504),
    "no connection": connectionFailed("ECONNREFUSED"),
    "a lost answer": connectionFailed("ECONNRESET"),
  })) {
    const { relay, requests } = scripted([first, first, answer(202)]);
    await relay.enqueue(job);
    assert.equal(requests.length, 3, what);
  }
  for (const status of [200, 302, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 500]) {
    const { relay, requests } = scripted([answer(status)]);
    await assert.rejects(relay.enqueue(job), (err) => err instanceof MillraceError &&
      err.status === status && !err.retryable);
    assert.equal(requests.length, 1, String(status));
  }
});

test("the tries are bounded by the policy, and by Retry-After", async () => {
  const three = scripted([answer(503)], { retry: { maxTries: 3, baseDelay: 0.001 } });
  await assert.rejects(three.relay.enqueue(job), (err) => err instanceof RetryableError &&
    err.uncertain && !/taken effect/.test(err.message));
  assert.equal(three.requests.length, 3);
  const late = scripted([answer(429, null, { "Retry-After": "61" })]);
  await assert.rejects(late.relay.enqueue(job), (err) => err.retryAfter === 61);
  assert.equal(late.requests.length, 1);
  const dated = scripted([answer(429, null, { "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
    "Retry-After": "Thu, 01 Jan 2026 00:02:00 GMT" })]);
  await assert.rejects(dated.relay.enqueue(job), (err) => err.retryAfter === 120);
  for (const wrong of [{ maxTries: 0 }, { maxTries: 1.5 }]) {
    assert.throws(() => new Client({ baseURL: "http://x", retry: wrong }), InvalidError);
  }
});

test("a pause is never shorter than Retry-After", async (t) => {
  const pauses = [];
  const { setTimeout } = globalThis;
  t.mock.method(globalThis, "setTimeout", (fn, ms) => {
    const isPause = ms >= 20_000 && ms < 30_000; // the request timeout is 30 s
    if (isPause) pauses.push(ms);
    return setTimeout(fn, isPause ? 0 : ms);
  });
  const { relay, requests } = scripted([answer(429, null, { "Retry-After": "20" }), answer(202)]);
  await relay.enqueue(job);
  assert.equal(requests.length, 2);
  assert.equal(pauses.length, 1);
});

test("an error says whether a try may have taken effect", async () => {
  for (const [first, uncertain] of [
    [connectionFailed("ECONNREFUSED"), false], [connectionFailed("ENOTFOUND"), false],
    [connectionFailed("ECONNRESET"), true], [connectionFailed("UND_ERR_SOCKET"), true],
    [answer(429), false], [answer(503), true]]) {
    const { relay } = scripted([first, answer(409, "exists")]);
    await assert.rejects(relay.enqueue(job), (err) => err instanceof ConflictError &&
      err.uncertain === uncertain && /taken effect/.test(err.message) === uncertain);
    const reads = scripted([first, answer(404)]);
    await assert.rejects(reads.relay.get("q", "1"), (err) => err instanceof NotFoundError &&
      !err.uncertain);
  }
});

test("an error without a connection asks whether the server runs", async () => {
  const port = await freePort();
  const { relay } = scripted([() => fetch(`http://127.0.0.1:${port}`)], { retry: { maxTries: 1 } });
  await assert.rejects(relay.enqueue(job), (err) => err instanceof RetryableError &&
    /ECONNREFUSED.*; is the server running\? `millrace serve` starts one$/.test(err.message));
});

test("what cannot be repeated is tried again only while no try can have taken effect", async () => {
  const again = { again: true };
  const refused = scripted([connectionFailed("ECONNREFUSED"), answer(404)]);
  await assert.rejects(refused.relay.replay("q", 1, again), NotFoundError);
  assert.equal(refused.requests.length, 2);
  const lost = scripted([connectionFailed("ECONNRESET"), answer(404)]);
  await assert.rejects(lost.relay.replay("q", 1, again), (err) => err instanceof RetryableError &&
    err.uncertain);
  assert.equal(lost.requests.length, 1);
});

test("a certificate that is wrong is not tried again", async () => {
  for (const code of ["CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT",
    "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "ERR_TLS_CERT_ALTNAME_INVALID",
    "ERR_SSL_WRONG_VERSION_NUMBER"]) {
    const { relay, requests } = scripted([connectionFailed(code)]);
    await assert.rejects(relay.enqueue(job), (err) => !err.retryable && !err.uncertain);
    assert.equal(requests.length, 1, code);
  }
});

test("errors have what the server says", async () => {
  const problem = { type: "about:blank", title: "No", detail: "Not now", code: "RFA_X",
    instance: "r1" };
  const json = (body, type) => answer(409, JSON.stringify(body), { "Content-Type": type });
  const rejects = async (response, check) => {
    const { relay } = scripted([response]);
    await assert.rejects(relay.enqueue(job), (err) => {
      assert.equal(err.op, "relay enqueue");
      check(err);
      return true;
    });
  };
  await rejects(json(problem, "application/problem+json; charset=utf-8"), (err) => {
    assert.deepEqual([err.code, err.detail, err.instance], ["RFA_X", "Not now", "r1"]);
    assert.equal(err.message, "relay enqueue: 409: RFA_X: Not now (request r1)");
  });
  await rejects(json({ error: { code: "C", message: "m" } }, "application/json"),
    (err) => assert.deepEqual([err.code, err.detail], ["C", "m"]));
  await rejects(json({ code: "C", message: "m", details: { cycle_path: ["a", "b"],
    jobs: { a: "b" } } }, "application/json"), (err) => {
    assert.deepEqual([err.name, err.cycle, err.copies], ["CycleError", ["a", "b"], { a: "b" }]);
  });
  await rejects(answer(422, " why \n", { "X-Request-Id": "r2" }),
    (err) => assert.deepEqual([err.detail, err.instance], ["why", "r2"]));
  await rejects(answer(422, "x".repeat(1 << 20)), (err) => assert.equal(err.detail.length, 16384));
  await rejects(answer(401, "no"), (err) => assert.ok(err instanceof UnauthorizedError));
  await rejects(answer(404, "404 page not found\n"), (err) =>
    assert.ok(err instanceof NotMillraceError && /not a Millrace server/.test(err.message)));
  await rejects(answer(200, "<html>Welcome"), (err) => assert.ok(err instanceof NotMillraceError));
});

test("an answer that is not what was asked for is an error", async () => {
  for (const [body, check] of [
    ["<!doctype html>", (err) => err instanceof NotMillraceError],
    ["{", (err) => err.uncertain], ["{}", (err) => err.uncertain],
    ['[{"queue":"q","id":"1","timeout":1}]', (err) => /no run id/.test(err.message)],
    ["[1]", (err) => err.uncertain], [`[${" ".repeat(200)}]`, (err) => /larger than 100/.test(err)],
  ]) {
    const { relay } = scripted([answer(200, body)], { maxResponseBytes: 100 });
    await assert.rejects(relay.claim("q"), (err) =>
      err instanceof MillraceError && check(err), body);
  }
  const { relay } = scripted([answer(200, '[{"id":"1","run_id":"other","known":true}]')]);
  await assert.rejects(relay.completeAll([{ queue: "q", id: "1", runId: "r" }]), /another run/);
});

test("a try is bounded in time, and a call by its signal", async () => {
  const hangs = ({ signal }) => new Promise((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason)));
  const slow = scripted([hangs], { requestTimeout: 0.01,
    retry: { maxTries: 2, baseDelay: 0.001 } });
  await assert.rejects(slow.relay.enqueue(job), (err) => err instanceof RetryableError &&
    err.uncertain && /no answer within 0.01 s/.test(err.message));
  assert.equal(slow.requests.length, 2);
  const stop = new AbortController();
  const aborted = scripted([hangs]).relay.enqueue(job, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(aborted, (err) => err instanceof AbortedError && err.uncertain);
  const pausing = scripted([answer(429, null, { "Retry-After": "50" })]);
  const waiting = pausing.relay.enqueue(job, { signal: AbortSignal.timeout(20) });
  await assert.rejects(waiting, (err) => err instanceof AbortedError && err.status === 429);
});

test("many calls with one signal cause no warning", async () => {
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning));
  const { signal } = new AbortController();
  const { relay } = scripted([answer(202)]);
  await Promise.all(Array.from({ length: 50 }, () => relay.enqueue(job, { signal })));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, []);
});

test("requests have the address, token and headers of the client", async () => {
  const { relay, requests } = scripted([answer(202)], { token: "t", userAgent: "me" });
  await relay.enqueue(job);
  const { url, headers, redirect } = requests[0];
  assert.equal(url, "http://server/base/v2/queues/jobs");
  assert.deepEqual(Object.fromEntries(headers), { "authorization": "Bearer t",
    "content-type": "application/json", "user-agent": "me" });
  assert.equal(redirect, "manual");
});

test("the user agent has the version of the package", async () => {
  const { relay, requests } = scripted([answer(202)]);
  await relay.enqueue(job);
  const text = await readFile(new URL("../package.json", import.meta.url), "utf8");
  assert.equal(requests[0].headers.get("user-agent"),
    `millrace-typescript/${JSON.parse(text).version}`);
});

test("a client needs a good configuration", () => {
  for (const baseURL of [undefined, "", "server", "ftp://server", "http://", "http://s/?a=1",
    "http://s/#f", "http://u:p@s"]) {
    assert.throws(() => new Client({ baseURL }), InvalidError, String(baseURL));
  }
  for (const wrong of [{ requestTimeout: 0 }, { requestTimeout: -1 }, { maxResponseBytes: 0 },
    { token: "a\nb" }, { userAgent: "a\u0000" }]) {
    assert.throws(() => new Client({ baseURL: "http://s", ...wrong }), InvalidError,
      JSON.stringify(wrong));
  }
});
