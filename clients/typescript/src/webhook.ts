import { decode } from "./json.js";
import { shape } from "./shape.js";
import type { ForgeRunEventName, ForgeRunWorkKind, ForgeRunState } from "./forgerun-wire.js";

/**
 * A request to a webhook has no valid signature, or an old one. The receiver should answer it with
 * a 4xx and ignore it.
 */
export class InvalidWebhookError extends Error {
  override readonly name: string = "InvalidWebhookError";
}

/**
 * How far the time of a signature may be from now, in either direction, in seconds, as in Standard
 * Webhooks.
 */
export const webhookTolerance = 300;

/**
 * The body of a request to a webhook or callback: one state change of a job. That of a callback of
 * another contract, or of a webhook of operators, has a type and data in the place of what is about
 * ForgeRun's jobs.
 */
export interface ForgeRunWebhookEvent {
  /**
   * The same in every try and every replay of a delivery, so that a receiver can ignore events it
   * has seen. It is also the webhook-id header.
   */
  eventId: string;
  jobId: string;
  name: ForgeRunEventName;
  /** Null for the first event. */
  prev: ForgeRunState | null;
  next: ForgeRunState;
  /** When the state changed. */
  occurredAt: string;
  scenario: ForgeRunWorkKind;
  /** reason and final are as in {@link ForgeRunEvent}. */
  reason: string | null;
  final: boolean;
  /**
   * The type of the event, such as "taskflow.job.completed"; null for an event of a client of
   * ForgeRun.
   */
  type: string | null;
  /** What the event says about the job, with its members as on the wire; null without a type. */
  data: any;
  /** When this request was signed (webhook-timestamp). */
  signedAt: Date;
}

/** The headers of a request: those of fetch, of Node.js, or any object. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | string[] | undefined>>;

/** A body as it is on the wire. timestamp is in the place of occurredAt, with a type. */
type Body = Omit<ForgeRunWebhookEvent, "signedAt"> & { timestamp?: string };

const members = shape<Body>({
  rename: { event_name: "name", prev_state: "prev", next_state: "next" },
  absent: { reason: null, final: false, type: null, data: null },
});

/**
 * Checks that a request was signed with one of the secrets within {@link webhookTolerance} of now,
 * by the rules of Standard Webhooks 1.0, and returns its event. secrets are those in use,
 * "whsec_…": one, or two while the receiver changes from one to the next. body is the whole body of
 * the request, byte for byte.
 *
 * Errors: InvalidWebhookError; another error when the body has a valid signature but is no event,
 * or when a secret is malformed.
 */
export async function verifyWebhook(secrets: readonly string[], headers: WebhookHeaders,
  body: Uint8Array | string, now: Date = new Date()): Promise<ForgeRunWebhookEvent> {
  const id = headerOf(headers, "webhook-id");
  const stamp = headerOf(headers, "webhook-timestamp");
  if (!id || !/^[+-]?[0-9]{1,15}$/.test(stamp)) {
    throw new InvalidWebhookError("webhook-id or webhook-timestamp is missing or malformed");
  }
  const signedAt = new Date(Number(stamp) * 1000);
  const off = Math.abs(now.getTime() - signedAt.getTime());
  if (!(off <= webhookTolerance * 1000)) {
    throw new InvalidWebhookError(`signed at ${stamp}, which is too far from now`);
  }
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const message = joined(`${id}.${stamp}.`, body);
  if (!(await isSigned(secrets, message, headerOf(headers, "webhook-signature")))) {
    throw new InvalidWebhookError("the request has no valid signature");
  }
  const { timestamp, ...event } = members(decode(text));
  return { ...event, eventId: id, occurredAt: timestamp ?? event.occurredAt, signedAt };
}

/** Reports whether one of the signatures of a header was made with one of the secrets. */
async function isSigned(secrets: readonly string[], message: Uint8Array<ArrayBuffer>,
  header: string): Promise<boolean> {
  let genuine = false;
  for (const secret of secrets) {
    const bytes = fromBase64(secret.replace(/^whsec_/, ""));
    if (!bytes?.length) throw new TypeError('a webhook secret is not "whsec_" and base64');
    const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" },
      false, ["verify"]);
    for (const signature of header.split(/\s+/)) {
      // Of several headers a comma stands between the signatures.
      const [, text] = /^v1,(.*?),?$/.exec(signature) ?? [];
      const given = text ? fromBase64(text) : undefined;
      // verify compares in constant time.
      if (given && await crypto.subtle.verify("HMAC", key, given, message)) genuine = true;
    }
  }
  return genuine;
}

function headerOf(headers: WebhookHeaders, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  for (const [own, value] of Object.entries(headers)) {
    if (own.toLowerCase() === name) return Array.isArray(value) ? value.join(" ") : value ?? "";
  }
  return "";
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  const isBase64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text);
  return isBase64 ? Uint8Array.from(atob(text), (char) => char.charCodeAt(0)) : undefined;
}

function joined(head: string, body: Uint8Array | string): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  const first = encoder.encode(head);
  const second = typeof body === "string" ? encoder.encode(body) : body;
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
