// Compares what the client makes of an answer with the interface that it says it is.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";

const src = new URL("../../src/", import.meta.url);
let interfaces;

/** The members of all interfaces by name, as the sources have them. */
async function load() {
  const found = new Map();
  for (const name of await readdir(src)) {
    const text = await readFile(new URL(name, src), "utf8");
    const pattern = /^export interface (\w+)(?:<[^>]*>)?(?: extends (\w+))?[^{]*\{\n([^]*?)^\}/gm;
    for (const [, type, base, body] of text.matchAll(pattern)) {
      const members = [...body.matchAll(/^ {2}(\w+)(\??):/gm)].map(([, member, optional]) =>
        ({ member, optional: optional === "?" }));
      found.set(type, { base, members });
    }
  }
  return found;
}

function membersOf(type) {
  const { base, members } = interfaces.get(type) ?? assert.fail(`there is no interface ${type}`);
  return base ? [...membersOf(base), ...members] : members;
}

/**
 * Fails unless a value has all members of an interface, and no other. undefined is no value of an
 * answer.
 */
export async function assertShape(type, value) {
  interfaces ??= await load();
  const members = membersOf(type);
  const all = members.map(({ member }) => member);
  const needed = members.filter(({ optional }) => !optional).map(({ member }) => member);
  const own = Object.keys(value);
  assert.deepEqual(own.filter((name) => !all.includes(name)), [], `unknown members of ${type}`);
  assert.deepEqual(needed.filter((name) => value[name] === undefined), [],
    `missing members of ${type}`);
}
