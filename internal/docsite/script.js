// @ts-check
// The script of the documentation: copying code, the language that was chosen, the key /. Every page
// works without it.
"use strict";

/** @type {<T extends HTMLElement>(selector: string) => T[]} */
const all = (selector) => Array.from(document.querySelectorAll(selector));

// A button on each block of code copies it.
for (const block of all(".code")) {
  const pre = block.querySelector("pre");
  if (!pre || !navigator.clipboard) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(pre.textContent || "");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

// A language that is chosen in one group of tabs is chosen in all, here and on the next pages.
const chosenKey = "millrace-docs-language";
/** @type {HTMLInputElement[]} */
const tabs = all(".languages > input");

/** Chooses a language where there is a tab for it. @param {string} name */
function choose(name) {
  for (const tab of tabs) if (tab.value === name) tab.checked = true;
}

/** The language that was chosen earlier; empty where nothing is kept. */
function chosen() {
  try {
    return localStorage.getItem(chosenKey) || "";
  } catch {
    return "";
  }
}

choose(chosen());
for (const tab of tabs) {
  tab.addEventListener("change", () => {
    const before = tab.getBoundingClientRect().top;
    choose(tab.value);
    scrollBy(0, tab.getBoundingClientRect().top - before); // tabs above may have another height
    try {
      localStorage.setItem(chosenKey, tab.value);
    } catch { /* it counts for this page alone */ }
  });
}

// The navigation shows where one is, and / goes to the search.
const list = document.querySelector(".side nav"), current = list?.querySelector("[aria-current]");
if (list && current) {
  const at = current.getBoundingClientRect(), around = list.getBoundingClientRect();
  if (at.bottom > around.bottom) list.scrollTop += at.top - around.top - around.height / 3;
}
document.addEventListener("keydown", (event) => {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector(".find input"));
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key !== "/" || !field || target.matches("input, textarea, select")) return;
  event.preventDefault();
  field.focus();
  field.select();
});
// Narrow windows show what is on a page when it is asked for.
if (matchMedia("(max-width: 1150px)").matches) {
  for (const one of all(".content > details")) one.removeAttribute("open");
}
