// @ts-check
// The script of the console: live parts, keys, copying and graphs. Every page works without it.
"use strict";

/** @type {(selector: string, root?: ParentNode) => HTMLElement[]} */
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

const main = /** @type {HTMLElement} */ (document.querySelector("main"));

// Live parts. The server sends what changes. When it concerns the page, the page is read again, and
// each element with data-live is exchanged for the newer one of the same name. What somebody points
// at, works in or has marked stays until he leaves it. What main says with data-refresh, in seconds, is
// how often the page may be read: the more watch, the more seldom.
/** How often what no event reports is read, in milliseconds. */
const idleRefresh = 10_000;
let paused = false, changed = false, reading = false;
/** When the page was read, how long that readTime, and until when no stream is asked for. */
let readAt = performance.now(), readTime = 0, retryAt = 0;
/** How far the clock of the server is ahead. */
let clockOffset = 0;
/** @type {EventSource | null} */
let events = null;
/** Newer parts that wait until nobody uses the older ones. @type {Map<HTMLElement, string>} */
const pending = new Map();

/** Shows whether parts are live. @param {string} text @param {string} name */
function showState(text, name) {
  const state = all("[data-live-state]")[0];
  if (!state) return;
  state.hidden = false;
  state.className = "live " + name;
  const label = all("[data-live-text]", state)[0];
  if (label && label.textContent !== text) label.textContent = text;
}

/** Reports whether a part is in use. @param {HTMLElement} part */
function isInUse(part) {
  const chosen = document.getSelection();
  return part.matches(":hover") || part.contains(document.activeElement) ||
    part.querySelector("input:checked, dialog[open], .confirm[open]") !== null ||
    (chosen !== null && !chosen.isCollapsed && part.contains(chosen.anchorNode));
}

/** Exchanges the parts that nobody uses. */
function applyPending() {
  if (paused) return;
  for (const [part, html] of pending) {
    if (isInUse(part)) continue;
    const open = all("details", part).map((one) => one.hasAttribute("open"));
    part.innerHTML = html;
    all("details", part).forEach((one, i) => one.toggleAttribute("open", open[i]));
    pending.delete(part);
  }
}

/** Reads a page. @param {string} url */
async function load(url) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

/** Reads the page again. */
async function readPage() {
  const page = await load(location.href);
  Object.assign(main.dataset, page.querySelector("main")?.dataset);
  setClock();
  for (const part of all("[data-live]")) {
    const name = part.getAttribute("data-live") || "";
    const next = page.querySelector(`[data-live="${CSS.escape(name)}"]`);
    if (next && part.innerHTML !== next.innerHTML) pending.set(part, next.innerHTML);
    else pending.delete(part);
  }
  applyPending();
}

/** Reads the page again if that is due, and shows how long ago things were. */
async function update() {
  if (paused || reading || document.hidden) return;
  applyPending();
  showTimes();
  const age = performance.now() - readAt;
  const pause = Math.max(1000 * Number(main.dataset.refresh), 10 * readTime);
  if (age < (changed ? pause : Math.max(pause, idleRefresh))) return;
  const began = performance.now();
  reading = true;
  changed = false;
  try {
    await readPage();
    if (!paused) showState("live", "");
    connect();
  } catch {
    changed = true;
    showState("the server does not answer", "lost");
  }
  readAt = performance.now();
  readTime = readAt - began;
  reading = false;
}

/** Listens to what changes. The browser connects again by itself unless it is refused. */
function connect() {
  if (events || paused || document.hidden || performance.now() < retryAt) return;
  const { number, queue, bulk } = main.dataset;
  const stream = new EventSource("/admin/v1/events" + (number ? "?number=" + number : ""));
  /** @param {string} kind @param {(data: any) => boolean} concerns */
  const on = (kind, concerns) => stream.addEventListener(kind, (event) => {
    changed = changed || concerns(JSON.parse(/** @type {MessageEvent} */ (event).data));
  });
  on("counts", ({ queues }) => !bulk && queues.some(
    (/** @type {{ contract: string, queue: string }} */ q) =>
      `${q.contract}/${q.queue}`.startsWith(queue || "")));
  on("job", () => true);
  on("bulk", ({ bulk_id }) => bulk === "any" || bulk === bulk_id);
  stream.onerror = () => {
    changed = true; // reading the page shows whether server and session still exist
    if (stream.readyState === EventSource.CLOSED) disconnect();
  };
  events = stream;
}

/** Stops listening. */
function disconnect() {
  events?.close();
  events = null;
  retryAt = performance.now() + idleRefresh;
}

/** Listens while the page is seen and not paused. */
function reconnect() {
  if (paused || document.hidden) { disconnect(); return; }
  retryAt = 0;
  changed = true;
  connect();
}

/** Takes the time of the server, which the page has. */
function setClock() { clockOffset = Date.parse(main.dataset.now || "") - Date.now() || 0; }

/** Says how far a time is from now, as the server does. @param {number} seconds */
function relative(seconds) {
  const length = Math.abs(seconds);
  if (length < 1) return "now";
  const text = length < 60 ? Math.floor(length) + " s" : length < 3600 ? Math.floor(length / 60) + " min" :
    length < 48 * 3600 ? Math.floor(length / 3600) + " h" : Math.floor(length / 86400) + " d";
  return seconds > 0 ? "in " + text : text + " ago";
}

/** Shows how long ago things were. */
function showTimes() {
  for (const time of all("time[datetime]")) {
    const at = Date.parse(time.getAttribute("datetime") || "");
    const text = relative((at - Date.now() - clockOffset) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

/** Begins, where a page has live parts. */
function startLive() {
  setClock();
  if (!document.querySelector("[data-live]")) return;
  showState("live", "");
  connect();
  setInterval(update, 500);
  document.addEventListener("visibilitychange", reconnect);
  document.addEventListener("pointerover", applyPending);
}

document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const pause = target.closest("[data-live-pause]");
  if (pause) {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    showState(paused ? "paused" : "live", paused ? "paused" : "");
    reconnect();
  }
  const copy = target.closest("[data-copy]");
  if (copy) {
    const from = document.getElementById(copy.getAttribute("data-copy") || "");
    navigator.clipboard.writeText(from ? from.textContent || "" : "").then(() => {
      copy.textContent = "Copied";
    }, () => { copy.textContent = "Not permitted"; });
  }
});

document.addEventListener("change", (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (!box.matches("[data-mark-all]")) return;
  for (const mark of all("[name=mark]")) /** @type {HTMLInputElement} */ (mark).checked = box.checked;
});

// Keys.
/** Moves the focus by rows. @param {number} by */
function moveFocus(by) {
  const rows = all("[data-row]");
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const to = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  if (!to) return;
  to.tabIndex = -1;
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}

/** The row that has the focus. */
const row = () => document.activeElement && document.activeElement.closest("[data-row]");

/** What keys do. @type {Record<string, () => void>} */
const keys = {
  "/": () => { const field = all("[data-filter]")[0]; field?.focus(); if (field instanceof HTMLInputElement) field.select(); },
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  x: () => { const box = row()?.querySelector("input[type=checkbox]"); if (box) /** @type {HTMLElement} */ (box).click(); },
  "?": () => /** @type {HTMLDialogElement | null} */ (document.getElementById("keys"))?.showModal(),
  Enter: () => /** @type {HTMLElement | null | undefined} */ (row()?.querySelector("a"))?.click(),
};

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  if (event.key === "Enter" && !target.matches("[data-row]")) return;
  if (target.closest("input, select, textarea, dialog")) {
    if (!(event.key === "x" && target.matches("input[type=checkbox]"))) return;
  }
  event.preventDefault();
  keys[event.key]();
});

// Searches of texts. The server ends a page of one soon. This adds the rows of the next pages, one at
// a time, until there are as many as a page has, all was searched, or somebody stops it.
/** How often the status, which screen readers announce, is updated, in milliseconds. */
const statusInterval = 5_000;

/** Goes on with a search. @param {HTMLElement} note the element that reports it */
function enableSearch(note) {
  const [to, state, status] = all("span", note), [button] = all("button", note);
  const link = /** @type {HTMLAnchorElement} */ (document.querySelector("a[rel=next]"));
  const limit = new URL(link.href).searchParams.get("limit");
  const count = () => all("[data-found] tbody tr").length;
  let wanted = false, going = false, statusAt = 0;

  /** Says what the search does. @param {string} text @param {string} [next] what the button does */
  const show = (text, next) => {
    const found = count();
    state.textContent = (found ? found + " found. " : "") + text;
    if (!next && button === document.activeElement) note.focus();
    button.hidden = !next;
    button.textContent = next || "";
    if (going && performance.now() - statusAt < statusInterval) return;
    statusAt = performance.now();
    status.textContent = to.textContent + " " + state.textContent;
  };

  /** Adds the rows of the next page. */
  const step = async () => {
    const url = new URL(link.href), before = count();
    url.searchParams.set("limit", String(Number(note.dataset.limit) - before));
    const page = await load(url.href);
    for (const part of all("[data-found]")) {
      const next = page.querySelector(`[data-found="${part.dataset.found}"]`);
      if (!next) continue;
      if (before) part.querySelector("tbody")?.append(...all("tbody tr", next));
      else if (part.innerHTML !== next.innerHTML) part.innerHTML = next.innerHTML;
    }
    if (count() > before) for (const box of all("[data-mark-all]")) /** @type {HTMLInputElement} */ (box).checked = false;
    const search = all("[data-search]", page)[0], next = page.querySelector("a[rel=next]");
    if (next) {
      const after = new URL(next.getAttribute("href") || "", link.href);
      if (limit) after.searchParams.set("limit", limit); else after.searchParams.delete("limit");
      link.href = after.href;
    } else link.remove();
    if (search) {
      note.dataset.pause = search.dataset.pause;
      to.innerHTML = all("span", search)[0].innerHTML;
      return;
    }
    wanted = going = false;
    to.textContent = "";
    show(next ? "The page is full, and the next one goes on." : "All was searched.");
  };

  /** Searches until that has an end. */
  const run = async () => {
    wanted = true;
    if (going) return;
    going = true;
    statusAt = -statusInterval;
    while (wanted) {
      show("It goes on by itself.", "Stop");
      await new Promise((passed) => setTimeout(passed, Number(note.dataset.pause)));
      if (!wanted) break;
      try {
        await step();
      } catch {
        wanted = going = false;
        show("The server does not answer.", "Go on");
      }
    }
    if (!going) return;
    going = false;
    show("It was stopped.", "Go on");
  };
  button.addEventListener("click", () => {
    if (!wanted) { run(); return; }
    wanted = false;
    show("It was stopped.", "Go on");
  });
  const stopHidden = () => { if (document.hidden) wanted = false; };
  document.addEventListener("visibilitychange", stopHidden);
  run();
  stopHidden();
}

// Graphs. Without this they scroll.
/** Lets a graph be dragged and zoomed. @param {HTMLElement} frame */
function enableGraph(frame) {
  let zoom = 1;
  /** Zooms; the point x, y of the frame stays where it is. @param {number} to */
  const zoomTo = (to, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
    const next = Math.min(3, Math.max(0.02, to));
    const left = (frame.scrollLeft + x) * next / zoom - x, top = (frame.scrollTop + y) * next / zoom - y;
    zoom = next;
    frame.style.setProperty("--zoom", String(zoom));
    frame.scrollTo(left, top);
  };
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => {
    const by = button.getAttribute("data-zoom");
    zoomTo(by === "fit" ? Math.min(1, zoom * frame.clientWidth / frame.scrollWidth,
      zoom * frame.clientHeight / frame.scrollHeight) : zoom * Number(by));
  });
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = frame.getBoundingClientRect();
    zoomTo(zoom * Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let moved = false;
  frame.addEventListener("dragstart", (event) => event.preventDefault());
  frame.addEventListener("pointerdown", () => { moved = false; frame.classList.remove("moved"); });
  frame.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "mouse" || !(event.buttons & 1)) return;
    moved = moved || Math.hypot(event.movementX, event.movementY) > 1;
    if (!moved) return;
    frame.setPointerCapture(event.pointerId);
    frame.classList.add("moved");
    frame.scrollBy(-event.movementX, -event.movementY);
  });
  frame.addEventListener("pointerup", () => frame.classList.remove("moved"));
  frame.addEventListener("click", (event) => { if (moved) event.preventDefault(); }, true);
  const box = frame.getBoundingClientRect(), job = frame.querySelector("[aria-current]")?.getBoundingClientRect();
  if (job) frame.scrollTo(job.left - box.left + (job.width - box.width) / 2, job.top - box.top + (job.height - box.height) / 2);
}

for (const frame of all("[data-graph]")) enableGraph(frame);
for (const note of all("[data-search]")) enableSearch(note);
document.querySelector(".side [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
for (const row of all("[data-zooms]")) row.hidden = false;
for (const button of all("[data-copy]")) button.hidden = false;
startLive();
