import { randomText } from "./random.js";

/** What this package uses of Node.js, where it is there. */
interface NodeProcess {
  pid?: number;
  env?: Record<string, string | undefined>;
  getBuiltinModule?(name: "node:os"): { hostname(): string };
}

/**
 * Identifies this process among those of all hosts, as host name and process id. A browser, which
 * has neither, gets a random name.
 */
export function processName(): string {
  const { process } = globalThis as { process?: NodeProcess };
  if (process?.pid === undefined) return `browser:${randomText()}`;
  const host = process.getBuiltinModule?.("node:os").hostname() ?? process.env?.HOSTNAME;
  return `${host ?? "unknown"}:${process.pid}`;
}
