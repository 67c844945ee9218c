import { Admin } from "./admin.js";
import { invalid } from "./error.js";
import { FetchBox } from "./fetchbox.js";
import { ForgeRun } from "./forgerun.js";
import { Http, checked } from "./http.js";
import { Images } from "./images.js";
import { checkHeader } from "./path.js";
import { Relay } from "./relay.js";
import { Backoff, type Retry } from "./retry.js";
import { TaskFlow } from "./taskflow.js";
import { version } from "./version.js";
import { WorkerAPI } from "./worker-api.js";

/** The address of a server and how to reach it. All durations are in seconds. */
export interface Config {
  /**
   * The server's address, such as "https://jobs.example.org" or, behind a proxy,
   * "https://example.org/millrace". A URL with a query or a fragment is refused.
   */
  baseURL: string;
  /** Sent as a bearer token with every request. */
  token?: string;
  /** Sends the requests; without it the fetch of the platform. */
  fetch?: typeof fetch;
  /**
   * Sent with every request, where the platform allows it; without one it is "millrace-typescript/"
   * and the version.
   */
  userAgent?: string;
  /**
   * Limits one try, from connecting to the last byte of the answer. A long poll gets the time it
   * asked the server to wait on top. To bound a whole call, which may take several tries, use its
   * signal. The default is 30.
   */
  requestTimeout?: number;
  /**
   * Limits the body of an answer, after decompression. It must be large enough for the payloads and
   * states of all jobs that one claim asks for: jobs in an answer that is too large are claimed and
   * return only after their timeout. The default is 256 MiB.
   */
  maxResponseBytes?: number;
  /** How often failed tries are repeated, and after which pauses. */
  retry?: Retry;
}

/** Client sends requests to one Millrace server, for all contracts. */
export class Client {
  readonly #http: Http;

  /** Checks the config. It does not connect. Its error is an InvalidError. */
  constructor(config: Config) {
    const { retry = {} } = config;
    this.#http = new Http({
      baseURL: parseBase(config.baseURL),
      token: headerValue("token", config.token ?? ""),
      userAgent: headerValue("userAgent", config.userAgent ?? `millrace-typescript/${version}`),
      fetch: config.fetch ?? fetch,
      requestTimeout: positive("requestTimeout", config.requestTimeout ?? 30),
      maxResponseBytes: positive("maxResponseBytes", config.maxResponseBytes ?? 256 << 20),
      maxTries: notZero("maxTries", retry.maxTries ?? 6),
      backoff: new Backoff(retry),
    });
  }

  /** The Relay contract: queues for workers of your own. */
  relay(): Relay {
    return new Relay(this.#http);
  }

  /** The TaskFlow contract: jobs that depend on one another. */
  taskFlow(): TaskFlow {
    return new TaskFlow(this.#http);
  }

  /**
   * The ForgeRun contract: simulated jobs with schedules, reports and webhooks. Its API key is the
   * client's token, unless {@link ForgeRun.withApiKey} sets another.
   */
  forgeRun(): ForgeRun {
    return new ForgeRun(this.#http);
  }

  /** The FetchBox contract: downloads of what a manifest lists. */
  fetchBox(): FetchBox {
    return new FetchBox(this.#http);
  }

  /** The Images contract: variants of uploaded pictures. */
  images(): Images {
    return new Images(this.#http);
  }

  /** The worker API: execution of the jobs of all contracts but Relay. */
  workerAPI(): WorkerAPI {
    return new WorkerAPI(this.#http);
  }

  /** What operators see and change, over all contracts. The token is the operator's. */
  admin(): Admin {
    return new Admin(this.#http);
  }
}

/** Checks a base URL and drops the slashes at its end. */
function parseBase(raw: unknown): string {
  const refuse = (problem: string) => invalid("new client", problem);
  if (typeof raw !== "string") throw refuse("the base URL is required");
  if (!/^https?:\/\//i.test(raw)) {
    throw refuse(`base URL ${JSON.stringify(raw)} does not start with http:// or https://`);
  }
  if (!URL.canParse(raw)) throw refuse(`base URL ${JSON.stringify(raw)} is not a URL`);
  const url = new URL(raw);
  if (/[?#]/.test(raw)) throw refuse("base URL has a query or a fragment");
  if (url.username || url.password) throw refuse("base URL has a password; use token");
  return url.href.replace(/\/+$/, "");
}

function positive(what: string, value: number): number {
  if (!(value > 0)) throw invalid("new client", `${what} is not above zero`);
  return value;
}

function notZero(what: string, value: number): number {
  if (!Number.isSafeInteger(value) || value === 0) {
    throw invalid("new client", `${what} is not a whole number other than zero`);
  }
  return value;
}

function headerValue(what: string, value: string): string {
  return checked("new client", () => {
    checkHeader(what, value);
    return value;
  });
}
