// How the members of answers get their names here: those of the wire in camelCase, unless the Go
// SDK has another name for them.

import { JSONText, decode } from "./json.js";

/** Shape says how an object of the wire becomes one of this package. */
export interface Shape {
  /** The name here of members, by their names on the wire. */
  rename?: Record<string, string>;
  /** How values are read, by the name of their member on the wire. Null stays null. */
  read?: Record<string, (value: unknown) => unknown>;
  /** The values of members that the wire leaves out, by their names here. */
  absent?: Record<string, unknown>;
}

/** Makes a function that reads objects of a shape. */
export function shape<T>({ rename = {}, read = {}, absent = {} }: Shape = {}):
  (wire: unknown) => T {
  return (wire) => {
    const value: Record<string, unknown> = { ...absent };
    for (const [name, member] of Object.entries(objectOf(wire))) {
      const here = own(rename, name) ?? camelCase(name);
      if (member instanceof JSONText) {
        value[here] = decode(member.text);
        value[`${here}Text`] = member.text;
        continue;
      }
      const reader = own(read, name);
      value[here] = reader && member !== null ? reader(member) : member;
    }
    return value as T;
  };
}

/** Makes a function that reads arrays. */
export function listOf<T>(read: (wire: unknown) => T): (wire: unknown) => T[] {
  return (wire) => {
    if (!Array.isArray(wire)) throw new TypeError("a list is missing");
    return wire.map(read);
  };
}

/** The members of an object of the wire. */
export function objectOf(wire: unknown): Record<string, unknown> {
  if (typeof wire !== "object" || wire === null || Array.isArray(wire)) {
    throw new TypeError("an object is missing");
  }
  return wire as Record<string, unknown>;
}

/** A member of an object of the wire that must be a string. */
export function stringOf(wire: unknown, name: string): string {
  const value = own(objectOf(wire), name);
  if (typeof value !== "string") throw new TypeError(`${name} is missing`);
  return value;
}

function own<T>(object: Record<string, T>, name: string): T | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

function camelCase(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, initial: string) => initial.toUpperCase());
}
