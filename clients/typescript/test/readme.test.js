// Executes what README.md shows: each block, in its order, in a folder of a new user.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { access, cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server, binary, freePort, until } from "./support/server.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const run = promisify(execFile);
let server;
let folder;
before(async () => {
  server = await Server.start();
  folder = await mkdtemp(join(tmpdir(), "millrace-readme-"));
  await symlink(join(root, "..", ".."), join(folder, "millrace"));
});
after(async () => {
  await server.close();
  await rm(folder, { recursive: true, force: true });
});

/** The blocks of the README with their languages. */
async function blocks() {
  const port = await freePort();
  const text = (await readFile(join(root, "README.md"), "utf8"))
    .replaceAll("9090", String(port));
  return [...text.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, code]) =>
    ({ language, code: code.replaceAll("127.0.0.1:8080", `127.0.0.1:${server.port}`) }));
}

/** The lines that the comments of a program say it prints. */
function expected(code) {
  return [...code.matchAll(/console\.log\(.*\)[;,] \/\/ (.*)$/gm)].map(([, line]) => line);
}

const app = () => join(folder, "my-app");
const options = () => ({ cwd: app(), timeout: 60_000 });

/** Runs a program until it has printed something, and stops it with a signal. */
async function runUntil(file, text) {
  const child = spawn(process.execPath, [file], options());
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => (output += data));
  }
  const exited = new Promise((resolve) => child.once("exit", resolve));
  try {
    await until(`${file} prints ${text}: ${output}`, () => output.includes(text));
  } finally {
    child.kill("SIGTERM");
  }
  assert.equal(await exited, 0, output);
}

test("every block of the README does what it says", async (t) => {
  const names = [];
  for (const { language, code } of await blocks()) {
    if (language === "sh") {
      await t.test(code.split("\n")[0], () => runShell(code));
      continue;
    }
    const [, name] = /^\/\/ (\w+\.m[jt]s)\n/.exec(code) ?? [];
    assert.ok(name, `a block has no file name:\n${code}`);
    await writeFile(join(app(), name), code);
    names.push(name);
    if (name === "enqueue.mjs" || name === "worker.mjs") continue; // the commands below run them
    if (name.endsWith(".mjs")) await t.test(name, () => runProgram(name, code));
  }
  await t.test("the types of all blocks are right", () => checkTypes(names));
  for (const name of names.filter((one) => one.endsWith(".mts"))) {
    const code = await readFile(join(app(), name), "utf8");
    await t.test(name, () => runProgram(`compiled/${name.replace(/mts$/, "mjs")}`, code));
  }
});

/** Checks the types of programs, as the editor of a user does, and compiles those of TypeScript. */
async function checkTypes(names) {
  const node = `declare const process: any;
    declare module "node:http" { export const createServer: any; }
    declare module "node:stream/consumers" { export const buffer: any; }
    declare module "node:fs/promises" { export const readFile: any; export const writeFile: any; }
  `;
  await writeFile(join(app(), "node.d.ts"), node);
  await run("tsc", ["--outDir", "compiled", "--strict", "--noImplicitAny", "false", "--allowJs",
    "--checkJs", "--target", "es2022", "--lib", "es2024,esnext,dom,dom.asynciterable", "--module",
    "nodenext", "node.d.ts", ...names], options()).catch((err) => assert.fail(err.stdout));
}

async function runProgram(name, code) {
  const { stdout } = await run(process.execPath, [name], options());
  const lines = expected(code);
  if (lines.length > 0) assert.deepEqual(stdout.trimEnd().split("\n"), lines);
  if (name === "relay.mjs") {
    assert.deepEqual(stdout.trim().split("\n").sort(),
      ["june there is nothing to report", "may done", "may out of paper"]);
  }
}

/** Runs the build in a copy of the sources, as other tests use what was built of these. */
async function buildCopy(command) {
  const copy = join(folder, "copy");
  for (const name of ["package.json", "tsconfig.json", "src"]) {
    await cp(join(root, name), join(copy, "clients", "typescript", name), { recursive: true });
  }
  await run("npm", command.split(" ").slice(1), { cwd: copy, timeout: 300_000 });
  await access(join(copy, "clients", "typescript", "dist", "index.js"));
}

/** Runs the commands of a block. The compiler is there already, and so is the server. */
async function runShell(code) {
  const pkg = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  for (const command of code.trim().split("\n")) {
    switch (command) {
      case "millrace serve":
        await run(binary, ["version"]);
        break;
      case "npm --prefix clients/typescript install":
        assert.deepEqual(Object.keys(pkg.devDependencies), ["typescript"]);
        break;
      case "npm --prefix clients/typescript run build":
        await buildCopy(command);
        break;
      case "node enqueue.mjs":
        await runProgram("enqueue.mjs", await readFile(join(app(), "enqueue.mjs"), "utf8"));
        break;
      case `npm install --save-dev typescript@${pkg.devDependencies.typescript}`:
        break; // which is the one that runs the tests
      case "npx tsc --module nodenext --target es2022 --strict --outDir compiled typed.mts":
        await run("tsc", command.split(" ").slice(2), options());
        break;
      case "node compiled/typed.mjs":
        await runProgram("compiled/typed.mjs", await readFile(join(app(), "typed.mts"), "utf8"));
        break;
      case "node worker.mjs":
        await runUntil("worker.mjs", "a mail to a@example.org");
        break;
      case "mkdir ../my-app && cd ../my-app":
        await run("mkdir", [app()]);
        await symlink(server.data, join(app(), "millrace-data"));
        break;
      case "npm install ../millrace/clients/typescript":
        await run("npm", ["install", "--offline", "--no-audit", "--no-fund",
          "../millrace/clients/typescript"], options());
        break;
      default:
        assert.fail(`no test runs ${command}`);
    }
  }
}
