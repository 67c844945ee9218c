import type { CallOptions } from "./abort.js";
import { isFinal } from "./final.js";
import { forgeRunAPIKey, forgeRunActionResult, forgeRunCreatedWebhook, forgeRunDelivery,
  forgeRunIssuedAPIKey, forgeRunJob, forgeRunReceipt, forgeRunReport, forgeRunWebhook,
  forgeRunWebhookTest, type ForgeRunAPIKey, type ForgeRunActionResult,
  type ForgeRunCreatedWebhook, type ForgeRunDelivery, type ForgeRunEventName,
  type ForgeRunIssuedAPIKey, type ForgeRunJob, type ForgeRunReceipt,
  type ForgeRunDeliveryReplayFilter, type ForgeRunDeliveryReplayResult, type ForgeRunReport,
  type ForgeRunSpec, type ForgeRunState, type ForgeRunWebhook, type ForgeRunWebhookTest }
  from "./forgerun-wire.js";
import { checked, queryOf, timeText, type Call, type Http } from "./http.js";
import { encode } from "./json.js";
import { pages, type ListOptions } from "./pages.js";
import { checkSegment, pathOf } from "./path.js";
import { randomText } from "./random.js";
import { objectOf, stringOf } from "./shape.js";
import { keyHeader } from "./taskflow.js";
import { watch } from "./watch.js";

/** The options of calls that create something. */
export interface OnceOptions extends CallOptions {
  /** Sent with the call; without it a random one, so that a repeat does nothing twice. */
  idempotencyKey?: string;
}

/** A call without what all calls of ForgeRun have in common. */
type ForgeCall = Omit<Call, "path" | "accept"> & { accept?: readonly number[] };

/**
 * ForgeRun is version 1 of the ForgeRun contract, for one client of it, identified by its API key:
 * simulated jobs with schedules, reports and webhooks. Every error is a {@link MillraceError} whose
 * code, when the server answered, begins with RFA_.
 *
 * Calls that create something send an idempotency key, a random one when the caller passes none. So
 * a repeat after a lost answer does nothing twice.
 */
export class ForgeRun {
  readonly #http: Http;
  readonly #key: string; // empty means the client's token

  /** @internal */
  constructor(http: Http, key = "") {
    this.#http = http;
    this.#key = key;
  }

  /** The contract with another API key than the client's token. */
  withApiKey(apiKey: string): ForgeRun {
    return new ForgeRun(this.#http, apiKey);
  }

  /**
   * Stores a job. When it returns the job survives a crash of the server.
   *
   * Errors: InvalidError; UnauthorizedError; ConflictError with the code
   * RFA_EXEC_IDEMPOTENCY_CONFLICT when a different job was submitted under the same key;
   * RetryableError when the server's queue is full or this client exceeds a limit.
   *
   * Repeating under the same idempotency key returns the same job. It is repeated so after lost
   * answers; when that is given up, the error has the key.
   */
  async submit(spec: ForgeRunSpec, options: CallOptions = {}): Promise<ForgeRunReceipt> {
    const op = "forgerun submit";
    const idempotencyKey = spec.idempotencyKey || randomText();
    const body = checked(op, () => encode({
      type: spec.type,
      work_kind: spec.kind || undefined,
      execution_at: spec.executionAt && timeText("executionAt", spec.executionAt),
      callback: spec.callback || undefined,
      idempotency_key: idempotencyKey,
    }));
    const receipt = await this.#json(["jobs"], { op, method: "POST", body, accept: [202],
      idempotencyKey, signal: options.signal }, forgeRunReceipt);
    return { ...receipt, idempotencyKey };
  }

  /**
   * Reads a job of this client.
   *
   * Errors: NotFoundError; UnauthorizedError, with the code RFA_AUTH_FORBIDDEN for a job of another
   * client. Repeating is safe.
   */
  async get(jobId: string, options: CallOptions = {}): Promise<ForgeRunJob> {
    return await this.#read("forgerun get", ["jobs", jobId], options, forgeRunJob);
  }

  /**
   * Reads the report of a job that has finished.
   *
   * Errors: NotFoundError, also for a job that has not ended; UnauthorizedError. Repeating is safe.
   */
  async report(jobId: string, options: CallOptions = {}): Promise<ForgeRunReport> {
    return await this.#read("forgerun report", ["jobs", jobId, "report"], options, forgeRunReport);
  }

  /**
   * Cancels a job that has not ended, and returns its state. A job that ended in between with
   * another outcome stays as it is.
   *
   * Errors: NotFoundError; UnauthorizedError; ConflictError. Repeating is safe.
   */
  async cancel(jobId: string, options: CallOptions = {}): Promise<ForgeRunActionResult> {
    return await this.#post("forgerun cancel", ["jobs", jobId, "cancel"], options,
      forgeRunActionResult);
  }

  /**
   * Makes a failed job run once more, after a delay that grows with each retry.
   *
   * Errors: ConflictError when the job has not failed or its retries are used up; NotFoundError;
   * UnauthorizedError.
   *
   * Repeating before the retried run has ended returns the job's state. A repeat after that run has
   * failed too is another retry.
   */
  async retry(jobId: string, options: CallOptions = {}): Promise<ForgeRunActionResult> {
    return await this.#post("forgerun retry", ["jobs", jobId, "retry"], options,
      forgeRunActionResult);
  }

  /**
   * Iterates over the jobs of this client. It ends with the first error. With a state, a job that
   * changes its state meanwhile may be missed.
   */
  async *jobs(options: { state?: ForgeRunState } & ListOptions = {}):
    AsyncGenerator<ForgeRunJob, void, undefined> {
    yield* this.#list("forgerun jobs", ["jobs"], options, forgeRunJob, { state: options.state });
  }

  /**
   * Polls a job until it has finished, and returns it. It polls after growing pauses of up to two
   * seconds, and continues while the server is unavailable or limits requests. A failed job has
   * finished, even when it can be retried.
   *
   * Errors: those of {@link ForgeRun.get} except RetryableError; AbortedError.
   */
  async wait(jobId: string, options: CallOptions = {}): Promise<ForgeRunJob> {
    return await watch("forgerun wait", options.signal, () => this.get(jobId, options),
      ({ state }) => isFinal(state));
  }

  /**
   * Creates a client of ForgeRun and returns its id, a UUID. It sends no API key. An idempotency
   * key should be random, because all callers of the server share one scope of keys; the server
   * remembers it for 24 h.
   *
   * Repeating under the same key returns the same client.
   */
  async createClient(options: OnceOptions = {}): Promise<string> {
    return await this.#json(["clients"], { op: "forgerun create client", method: "POST",
      header: { ...keyHeader(options.idempotencyKey), Authorization: null }, accept: [201],
      signal: options.signal }, (wire) => stringOf(wire, "client_id"));
  }

  /**
   * Creates the first key of a client that never had one. It sends no API key.
   *
   * Errors: UnauthorizedError when the client has had a key, even if that was made by an earlier
   * try of this call (the error is uncertain then): the secret is lost with the answer, and another
   * client must be created. NotFoundError.
   */
  async createFirstApiKey(clientId: string,
    options: CallOptions = {}): Promise<ForgeRunIssuedAPIKey> {
    return await this.#issue("forgerun create first API key", clientId, { rotate: false },
      { ...keyHeader(undefined), Authorization: null }, options);
  }

  /**
   * Creates a key of this client. While the client has an active key and rotate is not set, the
   * metadata of that key is returned without a secret. With rotate a new key is made and the
   * present one revoked.
   *
   * Errors: UnauthorizedError; NotFoundError.
   *
   * Repeating: with rotate, a try that took effect has revoked the key that its repeat uses. The
   * repeat fails with an UnauthorizedError that is uncertain, the new secret is lost with the
   * answer, and an operator must recover the client.
   */
  async createApiKey(clientId: string,
    options: { rotate?: boolean } & OnceOptions = {}): Promise<ForgeRunIssuedAPIKey> {
    return await this.#issue("forgerun create API key", clientId,
      { rotate: options.rotate ?? false },
      keyHeader(options.idempotencyKey), options);
  }

  async #issue(op: string, clientId: string, body: object, header: Record<string, string | null>,
    options: CallOptions): Promise<ForgeRunIssuedAPIKey> {
    return await this.#json(["clients", clientId, "keys"], { op, method: "POST", header,
      body: encode(body), accept: [201, 200], signal: options.signal }, forgeRunIssuedAPIKey);
  }

  /**
   * Replaces the key of this contract by a new one. The old key may have expired but not been
   * revoked, and is refused from then on.
   *
   * Errors: UnauthorizedError; ConflictError when there is nothing to renew. Repeating is as with
   * rotate, see {@link ForgeRun.createApiKey}.
   */
  async renewApiKey(clientId: string, options: CallOptions = {}): Promise<ForgeRunIssuedAPIKey> {
    return await this.#json(["clients", clientId, "keys", "renew"], { op: "forgerun renew API key",
      method: "POST", header: keyHeader(undefined), body: "{}", signal: options.signal },
    forgeRunIssuedAPIKey);
  }

  /**
   * Revokes a key of this client: the next request with it is refused. A key may revoke itself,
   * after which only an operator can help. Revoking a key again is no error.
   *
   * Errors: NotFoundError; UnauthorizedError, also for a key of another client, and for a repeat
   * after a lost answer when the key revoked itself.
   */
  async revokeApiKey(clientId: string, keyId: string, options: CallOptions = {}): Promise<void> {
    const op = "forgerun revoke API key";
    const body = checked(op, () => encode({ key_id: keyId }));
    await this.#json(["clients", clientId, "keys", "revoke"], { op, method: "POST", body,
      signal: options.signal }, () => {});
  }

  /**
   * Iterates over the keys of this client, the revoked ones too while the server keeps them. It
   * ends with the first error.
   */
  async *apiKeys(clientId: string,
    options: ListOptions = {}): AsyncGenerator<ForgeRunAPIKey, void, undefined> {
    yield* this.#list("forgerun API keys", ["clients", clientId, "keys"], options, forgeRunAPIKey);
  }

  /**
   * Subscribes a URL to events of all jobs of this client. {@link forgeRunEvents} are the events
   * there are.
   *
   * Errors: InvalidError; ConflictError when the same URL and events are registered already.
   *
   * Repeating under the same idempotency key returns the same webhook without its secret.
   */
  async createWebhook(url: string, events: readonly ForgeRunEventName[],
    options: OnceOptions = {}): Promise<ForgeRunCreatedWebhook> {
    const op = "forgerun create webhook";
    const body = checked(op, () => encode({ url, events }));
    return await this.#json(["webhooks"], { op, method: "POST", body, accept: [201],
      header: keyHeader(options.idempotencyKey), signal: options.signal }, forgeRunCreatedWebhook);
  }

  /** Iterates over the webhooks of this client. It ends with the first error. */
  async *webhooks(options: ListOptions = {}): AsyncGenerator<ForgeRunWebhook, void, undefined> {
    yield* this.#list("forgerun webhooks", ["webhooks"], options, forgeRunWebhook);
  }

  /**
   * Deletes a webhook. No delivery to it starts afterwards.
   *
   * Errors: NotFoundError, which is uncertain on a repeat after a lost answer, because the earlier
   * try may have deleted it.
   */
  async deleteWebhook(webhookId: string, options: CallOptions = {}): Promise<void> {
    await this.#json(["webhooks", webhookId], { op: "forgerun delete webhook", method: "DELETE",
      signal: options.signal }, () => {});
  }

  /**
   * Makes and returns a new secret. For 24 h requests are signed with both secrets, so that the
   * receiver has time to change.
   *
   * Errors: NotFoundError. Repeating makes yet another secret.
   */
  async rotateWebhookSecret(webhookId: string, options: CallOptions = {}): Promise<string> {
    return await this.#post("forgerun rotate webhook secret",
      ["webhooks", webhookId, "rotate-secret"], options, (wire) => stringOf(wire, "secret"));
  }

  /**
   * Resumes the deliveries to a disabled webhook.
   *
   * Errors: NotFoundError. Repeating is safe.
   */
  async enableWebhook(webhookId: string, options: CallOptions = {}): Promise<ForgeRunWebhook> {
    return await this.#post("forgerun enable webhook", ["webhooks", webhookId, "enable"], options,
      forgeRunWebhook);
  }

  /**
   * Sends an event named "millrace.test" to a webhook now, signed as every other, and returns what
   * came back. That the receiver fails is no error. A disabled webhook gets it too, and it decides
   * nothing about the webhook.
   *
   * Errors: NotFoundError. A repeat sends another event.
   */
  async testWebhook(webhookId: string, options: CallOptions = {}): Promise<ForgeRunWebhookTest> {
    return await this.#post("forgerun test webhook", ["webhooks", webhookId, "test"], options,
      forgeRunWebhookTest);
  }

  /** Iterates over the deliveries of a webhook. It ends with the first error. */
  async *deliveries(webhookId: string,
    options: ListOptions = {}): AsyncGenerator<ForgeRunDelivery, void, undefined> {
    yield* this.#list("forgerun deliveries", ["webhooks", webhookId, "deliveries"], options,
      forgeRunDelivery);
  }

  /**
   * Delivers an event to a webhook once more, whatever the status of the delivery is.
   *
   * Errors: NotFoundError. Repeating may deliver it yet again.
   */
  async replayDelivery(webhookId: string, deliveryId: string,
    options: CallOptions = {}): Promise<ForgeRunDelivery> {
    return await this.#post("forgerun replay delivery",
      ["webhooks", webhookId, "deliveries", deliveryId, "replay"], options, forgeRunDelivery);
  }

  /**
   * Makes deliveries of a webhook once more, the oldest first, with as many requests as that needs.
   * A delivery is replayed by it once at most, however often it is called; what fails again is a
   * delivery of its own.
   *
   * Errors: NotFoundError; ConflictError while the webhook is disabled. Repeating is safe.
   */
  async replayDeliveries(webhookId: string, filter: ForgeRunDeliveryReplayFilter = {},
    options: CallOptions = {}): Promise<ForgeRunDeliveryReplayResult> {
    const op = "forgerun replay deliveries";
    const { from, to, status: state } = filter;
    const result = { replayed: 0, skipped: 0 };
    for (let cursor: unknown; ;) {
      const body = checked(op, () => encode({ state, cursor, from: from && timeText("from", from),
        to: to && timeText("to", to) }));
      const got = await this.#json(["webhooks", webhookId, "replay"], { op, method: "POST", body,
        signal: options.signal }, objectOf);
      result.replayed += Number(got.replayed);
      result.skipped += Number(got.skipped);
      cursor = got.next_cursor;
      if (!cursor) return result;
    }
  }

  async #read<T>(op: string, path: string[], { signal }: CallOptions,
    read: (wire: unknown) => T): Promise<T> {
    return await this.#json(path, { op, method: "GET", readOnly: true, signal }, read);
  }

  async #post<T>(op: string, path: string[], { signal }: CallOptions,
    read: (wire: unknown) => T): Promise<T> {
    return await this.#json(path, { op, method: "POST", accept: [200, 201, 202], signal }, read);
  }

  async *#list<T>(op: string, path: string[], { pageSize, signal }: ListOptions,
    read: (wire: unknown) => T,
    query: Record<string, string | undefined> = {}): AsyncGenerator<T, void, undefined> {
    const call = this.#call(path, { op, method: "GET", readOnly: true, query: queryOf(query),
      signal });
    yield* pages(this.#http, call, read, pageSize);
  }

  async #json<T>(path: string[], call: ForgeCall, read: (wire: unknown) => T): Promise<T> {
    return await this.#http.json(this.#call(path, call), read);
  }

  /** Makes a call of a path, each segment of which may be any text, with the API key. */
  #call(segments: string[], call: ForgeCall): Call {
    const path = checked(call.op, () => {
      for (const segment of segments) checkSegment("an id", segment);
      return pathOf("/v1", ...segments);
    });
    const header = this.#key ? { Authorization: `Bearer ${this.#key}`, ...call.header }
      : call.header ?? {};
    return { accept: [200], ...call, path, header };
  }
}
