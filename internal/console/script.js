// @ts-check
// The script of the console: newer parts of the page, keys and copying. Every page works without it.
"use strict";

/** How long after a part was shown a newer one is asked for, in milliseconds. */
const interval = 3000;

/** @type {(selector: string, root?: ParentNode) => HTMLElement[]} */
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

// Live parts. Each element with data-live is exchanged for the one of the same name of a newer page,
// unless somebody points at it, has marked something in it or works in it.
let paused = false;
/** @type {HTMLElement | null} */
const state = document.querySelector("[data-live-state]");

/** Shows whether parts are live. @param {string} text @param {string} name */
function showState(text, name) {
  if (!state) return;
  state.hidden = false;
  state.className = "live " + name;
  const label = state.querySelector("[data-live-text]");
  if (label) label.textContent = text;
}

/** Reports whether a part is in use. @param {HTMLElement} part */
function isUsed(part) {
  const chosen = document.getSelection();
  return part.matches(":hover") || part.contains(document.activeElement) ||
    part.querySelector("input:checked, details[open], dialog[open]") !== null ||
    (chosen !== null && !chosen.isCollapsed && part.contains(chosen.anchorNode));
}

/** Shows the newer parts of a page that was read again. */
async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (answer.status === 401) { location.reload(); return; }
  if (!answer.ok) throw new Error(String(answer.status));
  const newer = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of all("[data-live]")) {
    const name = part.getAttribute("data-live") || "";
    const next = newer.querySelector(`[data-live="${CSS.escape(name)}"]`);
    if (next && !isUsed(part) && part.innerHTML !== next.innerHTML) part.innerHTML = next.innerHTML;
  }
}

/** Refreshes until the page is left. */
async function live() {
  if (!document.querySelector("[data-live]")) return;
  showState("live", "");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, interval));
    if (paused || document.hidden) continue;
    try {
      await refresh();
      if (!paused) showState("live", "");
    } catch {
      showState("the server does not answer", "lost");
    }
  }
}

document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const pause = target.closest("[data-live-pause]");
  if (pause) {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    showState(paused ? "paused" : "live", paused ? "paused" : "");
  }
  const copy = target.closest("[data-copy]");
  if (copy) {
    const from = document.getElementById(copy.getAttribute("data-copy") || "");
    navigator.clipboard.writeText(from ? from.textContent || "" : "").then(() => {
      copy.textContent = "Copied";
    }, () => { copy.textContent = "Not permitted"; });
  }
});

// Keys.
/** Moves the focus by rows. @param {number} by */
function move(by) {
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
  "/": () => { const field = all("[data-filter]")[0]; if (field) { field.focus(); /** @type {HTMLInputElement} */ (field).select(); } },
  j: () => move(1),
  k: () => move(-1),
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

// Graphs. Without this they scroll.
/** Lets a graph be dragged and zoomed. @param {HTMLElement} frame */
function graph(frame) {
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

for (const frame of all("[data-graph]")) graph(frame);
for (const row of all("[data-zooms]")) row.hidden = false;
for (const button of all("[data-copy]")) button.hidden = false;
live();
