// Submits n jobs with a library of Node.js, works them, and prints how long it took:
// node queue.mjs MODULES LIBRARY URL N CLIENTS BODY
import { createRequire } from 'node:module';

const [modules, library, url, count, parallel, body] = process.argv.slice(2);
const n = Number(count), clients = Number(parallel);
const load = createRequire(modules + '/');
const seen = new Uint8Array(n);
let remaining = n, finish;
const finished = new Promise((resolve) => { finish = resolve; });

function worked(num) {
  if (seen[num] !== 0) throw new Error(`job ${num} was worked twice or never submitted`);
  seen[num] = 1;
  if (--remaining === 0) finish();
}

// crowd runs op for 0..n-1, so many at a time.
async function crowd(op) {
  let next = 0;
  await Promise.all(Array.from({ length: Math.min(clients, n) }, async () => {
    while (next < n) await op(next++);
  }));
}

async function timed(op) {
  const started = performance.now();
  await op();
  return performance.now() - started;
}

const systems = {
  async bullmq() {
    const { Queue, Worker } = load('bullmq');
    const { hostname, port } = new URL(url);
    const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
    const name = `bench-${process.pid}`;
    const queue = new Queue(name, { connection });
    await queue.waitUntilReady();
    const submit = await timed(() => crowd((num) =>
      queue.add('bench', { num, body }, { removeOnComplete: true })));
    const worker = new Worker(name, async () => {}, { connection, concurrency: clients,
      autorun: false });
    await worker.waitUntilReady();
    worker.on('completed', (job) => worked(job.data.num));
    const work = await timed(() => { worker.run(); return finished; });
    await worker.close();
    await queue.obliterate({ force: true });
    await queue.close();
    return [submit, work];
  },
  async 'pg-boss'() {
    const loaded = load('pg-boss');
    const PgBoss = loaded.PgBoss ?? loaded.default ?? loaded;
    const boss = new PgBoss({ connectionString: url, max: Math.min(clients, 32),
      supervise: false, schedule: false });
    boss.on('error', (err) => { throw err; });
    await boss.start();
    await boss.createQueue('bench');
    const submit = await timed(() => crowd((num) => boss.send('bench', { num, body })));
    const work = await timed(() => Promise.all(Array.from({ length: clients }, async () => {
      while (remaining > 0) {
        for (const job of await boss.fetch('bench') ?? []) {
          await boss.complete('bench', job.id);
          worked(job.data.num);
        }
      }
    })));
    await boss.stop({ graceful: false });
    return [submit, work];
  },
  async 'graphile-worker'() {
    const { makeWorkerUtils, run, Logger } = load('graphile-worker');
    const logger = new Logger(() => () => {});
    const options = { connectionString: url, logger, maxPoolSize: Math.min(clients, 32) };
    const utils = await makeWorkerUtils(options);
    await utils.migrate();
    const submit = await timed(() => crowd((num) => utils.addJob('bench', { num, body })));
    const work = await timed(async () => {
      const runner = await run({ ...options, concurrency: clients, noHandleSignals: true,
        pollInterval: 100, taskList: { bench: async ({ num }) => worked(num) } });
      await finished;
      await runner.stop(); // waits until the last jobs are recorded
    });
    const left = await utils.withPgClient((pg) =>
      pg.query('select count(*)::int as n from graphile_worker.jobs'));
    if (left.rows[0].n !== 0) throw new Error(`${left.rows[0].n} jobs are left`);
    await utils.release();
    return [submit, work];
  },
};

const [submit, work] = await systems[library]();
if (remaining !== 0) throw new Error(`${remaining} jobs were not worked`);
const report = JSON.stringify({ submit_ms: submit, work_ms: work });
process.stdout.write(report + '\n', () => process.exit(0));
