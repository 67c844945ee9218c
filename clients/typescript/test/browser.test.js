// The package in a browser: Chromium, if it is there.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Server, deferred, until } from "./support/server.js";

const chromium = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium",
  "/usr/bin/chromium-browser"].find(existsSync);

const page = `<!doctype html><script type="module">
import { Client, Worker, verifyWebhook } from "/dist/index.js";
const results = {};
try {
  const client = new Client({ baseURL: location.origin });
  const relay = client.relay();
  await relay.enqueue({ queue: "page", id: "1", timeout: 30, payload: { n: 1n << 60n } });
  const stop = new AbortController();
  await new Worker({ relay, queue: "page", handler: async (run) => {
    results.payload = run.job.payloadText;
    await run.saveState({ half: true });
  }, afterRun: (job, reason) => {
    results.reason = String(reason);
    stop.abort();
  } }).run({ signal: stop.signal });
  results.left = (await relay.claim("page")).length;
  results.error = await relay.get("page", "1").catch((err) => err.name);
  results.webhook = await verifyWebhook(["whsec_AAAA"], new Headers(), "").catch((err) => err.name);
} catch (err) {
  results.failure = String(err.stack ?? err);
}
await fetch("/result", { method: "POST", body: JSON.stringify(results) });
</script>`;

/** A site that serves the page and the package, and passes all other requests on to a server. */
async function startSite(server, result) {
  const site = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://site");
    if (pathname === "/page") {
      response.writeHead(200, { "Content-Type": "text/html" }).end(page);
    } else if (pathname.startsWith("/dist/")) {
      const text = await readFile(new URL(`..${pathname}`, import.meta.url)).catch(() => "");
      response.writeHead(text ? 200 : 404, { "Content-Type": "text/javascript" }).end(text);
    } else if (pathname === "/result") {
      let text = "";
      for await (const part of request.setEncoding("utf8")) text += part;
      response.end();
      result.resolve(JSON.parse(text));
    } else {
      const { method, headers, url } = request;
      request.pipe(httpRequest(server.baseURL + url, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      }));
    }
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => site.once("listening", resolve));
  return site;
}

test("a page enqueues and works", async (t) => {
  if (!chromium) {
    assert.notEqual(process.env.MILLRACE_TEST_REQUIRE, "1", "there is no Chromium");
    return t.skip("there is no Chromium");
  }
  const server = await Server.start();
  const result = deferred();
  const site = await startSite(server, result);
  const profile = await mkdtemp(join(tmpdir(), "millrace-chromium-"));
  const browser = spawn(chromium, ["--headless", "--no-sandbox", "--disable-gpu",
    "--disable-dev-shm-usage", "--no-first-run", `--user-data-dir=${profile}`,
    "--remote-debugging-port=0", `http://127.0.0.1:${site.address().port}/page`],
  { stdio: "ignore", detached: true });
  try {
    let results;
    result.promise.then((value) => (results = value));
    await until("the page has ended", () => results, 60);
    assert.deepEqual(results, { payload: '{"n":1152921504606846976}', reason: "undefined", left: 0,
      error: "NotFoundError", webhook: "InvalidWebhookError" });
  } finally {
    const gone = new Promise((resolve) => browser.once("exit", resolve));
    process.kill(-browser.pid, "SIGKILL");
    await gone;
    site.close();
    site.closeAllConnections();
    await server.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  }
});
