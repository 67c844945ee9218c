import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { crc32, deflateSync } from "node:zlib";
import { ConflictError, InvalidError, NotFoundError, RetryableError } from "../dist/index.js";
import { Server, all, faultyFetch, until } from "./support/server.js";
import { assertShape } from "./support/shape.js";

let server;
let images;
before(async () => {
  server = await Server.start({ "images.max_attempts": "1" });
  images = server.client().images();
});
after(() => server.close());

/** The CRC-32 of bytes, for the versions of Node.js that do not have it. */
function checksum(bytes) {
  if (crc32) return crc32(bytes);
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

/** A picture of one color, as a PNG. */
function png(width, height) {
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)];
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(checksum(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2], 8); // eight bits of red, green and blue
  const rows = Buffer.alloc((width * 3 + 1) * height, 0);
  return new Uint8Array(Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", header), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]));
}

const bytesOf = async (stream) => new Uint8Array(await new Response(stream).arrayBuffer());

test("a picture from upload to its variants, and its deletion", async () => {
  const body = png(400, 200);
  const receipt = await images.upload({ body, name: "A.PNG", sizes: [100, 50], userId: "ü" });
  await assertShape("ImageReceipt", receipt);
  const same = await images.upload({ body, type: "image/png",
    idempotencyKey: receipt.idempotencyKey });
  assert.equal(same.fileId, receipt.fileId);
  const file = await images.wait(receipt.fileId);
  await assertShape("ImageFile", file);
  await assertShape("ImageVariant", file.variants[0]);
  assert.deepEqual([file.status, file.type, file.width, file.height, file.bytes],
    ["ready", "image/png", 400, 200, body.length]);
  assert.deepEqual(file.variants.map(({ width, height }) => [width, height]),
    [[50, 25], [100, 50]]);
  assert.deepEqual(await bytesOf(await images.content(file.id)), body);
  const variant = await bytesOf(await images.variant(file.id, 100));
  assert.equal(variant.length, file.variants[1].bytes);
  await (await images.content(file.id)).cancel();
  await assert.rejects(images.variant(file.id, 77), (err) => err instanceof NotFoundError &&
    err.code === "VARIANT_NOT_FOUND");

  const callbackUrl = "http://127.0.0.1:1/told?a=1&b=2";
  const more = await images.submitJob("process_file", file.id, { sizes: [20], callbackUrl });
  assert.equal(more.callbackUrl, callbackUrl);
  await assertShape("ImageJob", more);
  const done = await images.waitJob(more.id);
  assert.deepEqual([done.status, done.userId], ["completed", "ü"]);
  assert.equal((await images.file(file.id)).variants.length, 3);
  assert.equal((await images.job(more.id)).id, more.id);
  assert.equal(await images.republishMessage(more.id), "completed");
  const jobs = await all(images.jobs({ type: "process_file", status: "completed", pageSize: 1 }));
  assert.ok(jobs.length >= 2);
  await assert.rejects(images.cancelJob(more.id), ConflictError);

  const jobId = await images.delete(file.id);
  await images.waitJob(jobId);
  await assert.rejects(images.content(file.id), (err) => err instanceof NotFoundError &&
    err.status === 410 && err.code === "FILE_DELETED");
});

test("a picture may be a blob, a stream or an iterable", async () => {
  const body = png(10, 10);
  const half = [body.subarray(0, 20), body.subarray(20)];
  async function* parts() {
    yield* half;
  }
  for (const up of [
    { body: new Blob([body], { type: "image/png" }) },
    { body: new Blob(half).stream(), type: "image/png" },
    { body: parts(), name: "x.png" },
  ]) {
    const { fileId } = await images.upload({ ...up, sizes: [5] });
    assert.deepEqual(await bytesOf(await images.content(fileId)), body);
  }
});

test("an upload is repeated where its body can be sent again", async () => {
  const body = png(10, 10);
  const failing = () => {
    let failures = 0;
    return faultyFetch(({ method }) => {
      if (method !== "POST" || failures++ > 0) return undefined;
      return new Response("no", { status: 503 });
    });
  };
  const client = (fetch) => server.client({ fetch, retry: { baseDelay: 0.001 } }).images();
  const bytes = failing();
  await client(bytes).upload({ body, type: "image/png" });
  assert.equal(bytes.requests.length, 2);
  const streamed = failing();
  await assert.rejects(client(streamed).upload({ body: new Blob([body]).stream(), name: "x.png" }),
    (err) => err instanceof RetryableError && err.idempotencyKey !== "");
  assert.equal(streamed.requests.length, 1);
});

test("an upload that makes no progress is ended, one that does is not", async () => {
  const body = png(10, 10);
  async function* slowly() {
    for (const byte of body.subarray(0, 8)) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      yield Uint8Array.of(byte);
    }
    yield body.subarray(8);
  }
  const slow = server.client({ requestTimeout: 0.5 }).images();
  await slow.upload({ body: slowly(), name: "x.png" });
  async function* never() {
    yield body.subarray(0, 8);
    await new Promise(() => {});
  }
  await assert.rejects(slow.upload({ body: never(), name: "x.png" }), (err) =>
    err instanceof RetryableError && /no answer within/.test(err.message));
});

test("jobs that were given up are dead letters, and are replayed", async () => {
  const cut = png(400, 400).subarray(0, 60);
  const { fileId, jobId } = await images.upload({ body: cut, type: "image/png" });
  assert.equal((await images.wait(fileId)).status, "failed");
  const job = await images.waitJob(jobId);
  assert.ok(job.lastError && job.lastErrorType);
  const deadLetter = await until("there is a dead letter", async () =>
    (await all(images.deadLetters({ pageSize: 1 }))).find((found) => found.jobId === jobId));
  await assertShape("ImageDeadLetter", deadLetter);
  const again = await images.replay(jobId);
  assert.notEqual(again.id, jobId);
  assert.equal((await images.waitJob(again.id)).status, "failed");
});

test("bad input changes nothing", async () => {
  await assert.rejects(images.upload({ body: png(1, 1), name: "x.txt" }), (err) =>
    err instanceof InvalidError && err.code === "UNSUPPORTED_IMAGE_TYPE");
  await assert.rejects(images.upload({ body: png(1, 1), name: "x.png", sizes: [0] }), InvalidError);
  await assert.rejects(images.upload({ body: "text", name: "x.png" }), InvalidError);
  await assert.rejects(images.upload({ name: "x.png" }), InvalidError);
  await assert.rejects(images.upload({ body: png(1, 1), name: "x.png", userId: "a\n" }),
    InvalidError);
  await assert.rejects(images.file("none"), NotFoundError);
  await assert.rejects(images.submitJob("what", "none"), InvalidError);
  await assert.rejects(images.replay("none"), NotFoundError);
});
