// A server of Millrace as a process of its own, for the tests.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "../../dist/index.js";

/** The program: MILLRACE_BIN, or millrace of the PATH. */
export const binary = process.env.MILLRACE_BIN || "millrace";

const servers = new Set();
process.once("exit", () => {
  for (const server of servers) server.killNow();
});

/** Waits until fn returns something true, and returns that. It fails after so many seconds. */
export async function until(what, fn, seconds = 30) {
  for (const end = performance.now() + seconds * 1000; ;) {
    const value = await fn();
    if (value) return value;
    if (performance.now() > end) throw new Error(`after ${seconds} s still not: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Waits until a signal is aborted. */
export async function aborted(signal) {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
}

/** A promise with its functions. */
export function deferred() {
  const self = {};
  self.promise = new Promise((resolve, reject) => Object.assign(self, { resolve, reject }));
  return self;
}

/** A port of this machine that nothing listens on. */
export async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  const { port } = listener.address();
  await new Promise((resolve) => listener.close(resolve));
  return port;
}

export class Server {
  #child;
  #log = "";

  /** Starts a server on an empty directory. settings are those of --set, flags others. */
  static async start(settings = {}, ...flags) {
    const server = new Server();
    server.flags = flags;
    server.dir = await mkdtemp(join(tmpdir(), "millrace-client-"));
    server.port = await freePort();
    server.baseURL = `http://127.0.0.1:${server.port}`;
    server.settings = settings;
    servers.add(server);
    await server.launch();
    return server;
  }

  /** Starts the process, and waits until it listens. */
  async launch() {
    const settings = { listen: `127.0.0.1:${this.port}`, data_dir: this.data, ...this.settings };
    const args = Object.entries(settings).flatMap(([key, value]) => ["--set", `${key}=${value}`]);
    const child = spawn(binary, ["serve", ...this.flags, ...args],
      { cwd: this.dir, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.exited = new Promise((resolve) => child.once("exit", resolve));
    const listens = deferred();
    child.once("error", listens.reject);
    child.once("exit", () => listens.reject(new Error(`the server has ended: ${this.#log}`)));
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        this.#log += text;
        if (text.includes("listening on http")) listens.resolve();
      });
    }
    await listens.promise;
  }

  get data() {
    return join(this.dir, "data");
  }

  /** Kills the process with SIGKILL, and waits until it is gone. */
  async kill() {
    this.killNow();
    await this.exited;
  }

  killNow() {
    this.#child?.kill("SIGKILL");
  }

  /** Kills the process and removes its data. */
  async close() {
    await this.kill();
    servers.delete(this);
    await rm(this.dir, { recursive: true, force: true });
  }

  client(config = {}) {
    return new Client({ baseURL: this.baseURL, ...config });
  }

  /** A client with the operator's token. */
  async operator(config = {}) {
    const token = (await readFile(join(this.data, "operator.token"), "utf8")).trim();
    return this.client({ token, ...config });
  }
}

/**
 * A fetch that passes requests on, unless a fault takes them. Each fault gets method, path and a
 * function that passes the request on; the first that returns something decides.
 */
export function faultyFetch(...faults) {
  const requests = [];
  const faulty = async (url, init) => {
    const { pathname } = new URL(url);
    requests.push({ method: init.method, path: pathname, init });
    for (const fault of faults) {
      const answer = await fault({ method: init.method, path: pathname, init },
        () => fetch(url, init));
      if (answer) return answer;
    }
    return await fetch(url, init);
  };
  return Object.assign(faulty, { requests });
}

/** A logger that keeps its lines. */
export function keptLog() {
  const lines = [];
  const log = (level) => (message, fields) => lines.push({ level, message, ...fields });
  return { lines, debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
}

/** All items of an iterator. */
export async function all(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}
