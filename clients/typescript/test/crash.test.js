import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Worker } from "../dist/index.js";
import { Server, deferred, keptLog, until } from "./support/server.js";

let server;
before(async () => {
  server = await Server.start();
});
after(() => server.close());

test("a worker outlives kill -9 of its server, loses nothing and doubles nothing", async () => {
  const relay = server.client().relay();
  const ids = Array.from({ length: 400 }, (_, i) => String(i));
  // A job that was claimed in an answer which the kill has cut off comes back after its timeout.
  await relay.enqueue(ids.map((id) => ({ queue: "crash", id, timeout: 15, payload: { id } })));

  const log = keptLog();
  const runs = new Map();
  const ended = [];
  const stop = new AbortController();
  let gate = deferred();
  const worker = new Worker({ relay, queue: "crash", concurrency: 20, logger: log,
    pollInterval: 0.05,
    handler: async (run) => {
      runs.set(run.job.id, (runs.get(run.job.id) ?? 0) + 1);
      if (runs.size % 100 === 50) await gate.promise; // handlers run in the outage
    },
    afterRun: (job, reason) => {
      ended.push([job.id, reason]);
      if (ended.length === ids.length) stop.abort();
    } });
  const working = worker.run({ signal: stop.signal });

  for (let crash = 1; crash <= 3; crash++) {
    await until("it works", () => runs.size >= crash * 100 - 40);
    await server.kill();
    gate.resolve(); // these end while there is no server
    await until("the worker has noticed", () =>
      log.lines.filter(({ level }) => level === "warn").length >= crash);
    gate = deferred();
    if (crash === 3) gate.resolve();
    await server.launch();
    await until("the worker has seen that it is back", () =>
      log.lines.filter(({ message }) => message === "the server answers again").length >= crash);
  }
  await working;

  // The answer to a completion may be cut off, too.
  assert.deepEqual(ended.filter(([, reason]) => reason && !reason.uncertain), []);
  assert.deepEqual(ended.map(([id]) => id).sort(), [...ids].sort());
  assert.deepEqual([...runs].filter(([, n]) => n !== 1), []);
  assert.deepEqual(await relay.claim("crash"), []);
});
