// What holds for all sources: browsers can load them, and they keep to the style of the project.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

const root = new URL("..", import.meta.url);

async function files(folder) {
  const names = await readdir(new URL(folder, root), { recursive: true });
  return await Promise.all(names.filter((name) => /\.(js|ts)$/.test(name)).map(async (name) =>
    ({ name: `${folder}${name}`, text: await readFile(new URL(folder + name, root), "utf8") })));
}

const imports = /^(?:import|export)\b[^;]*?\bfrom\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/gm;
const imported = (text) => [...text.matchAll(imports)].map(([, from, inCode]) => from ?? inCode);

test("no module imports anything but modules of this package", async () => {
  for (const { name, text } of [...await files("src/"), ...await files("dist/")]) {
    for (const path of imported(text)) {
      assert.ok(path.startsWith("./"), `${name} imports ${path}`);
    }
    const code = text.replace(/\/\*[^]*?\*\/|\/\/.*/g, "");
    assert.doesNotMatch(code, /\brequire\(|\bBuffer\b|\b__dirname\b/, name);
  }
});

test("the package has no dependency", async () => {
  const pkg = JSON.parse(await readFile(new URL("package.json", root), "utf8"));
  assert.equal(pkg.dependencies, undefined);
  assert.equal(pkg.type, "module");
  assert.deepEqual(Object.keys(pkg.devDependencies), ["typescript"]);
  assert.match(pkg.devDependencies.typescript, /^\d+\.\d+\.\d+$/);
});

test("lines and files are short", async () => {
  for (const { name, text } of [...await files("src/"), ...await files("test/")]) {
    const lines = text.split("\n");
    assert.ok(lines.length <= (name.startsWith("src/") ? 500 : 800), `${name} is too long`);
    lines.forEach((line, i) =>
      assert.ok([...line].length <= 100, `${name}:${i + 1} is too long`));
    assert.ok(text.endsWith("\n") && !/[ \t]\n/.test(text), `${name} has spaces at an end`);
  }
});

test("all that is exported has a comment", async () => {
  for (const { name, text } of await files("src/")) {
    const lines = text.split("\n");
    lines.forEach((line, i) => {
      if (!/^export (?!type \{|\{|\*)/.test(line) || /^export .* from /.test(line)) return;
      const before = lines[i - 1].trim();
      assert.ok(before.endsWith("*/") || before.startsWith("//"),
        `${name}:${i + 1} has no comment: ${line}`);
    });
  }
});
