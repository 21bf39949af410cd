//! Making elements. Owns the only way by which text gets into the page: as text, never as HTML.

/**
 * An element. Properties that begin with "on" are listeners; `class` and everything else are attributes.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replaces the children of `parent`. @param {Element} parent @param {...(Node | string | null | false)} children */
export function fill(parent, ...children) {
  parent.replaceChildren(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== false)));
}

/** Sets a text only when it changes, so that screen readers are not told twice. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * A table that scrolls by itself where it is too wide, and becomes a list of cards on narrow screens.
 * @param {string} caption
 * @param {string[]} heads names of columns; a leading "#" marks figures, aligned right
 * @param {(Node | string | number | null)[][]} rows
 */
export function table(caption, heads, rows) {
  const names = heads.map((head) => head.replace(/^#/, ""));
  const kind = (/** @type {number} */ at) => (heads[at]?.startsWith("#") ? "figure" : null);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, ...names.map((name, at) => h("th", { scope: "col", class: kind(at) }, name)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {},
        ...row.map((cell, at) => h(at ? "td" : "th", { class: kind(at), "data-name": names[at], scope: at ? null : "row" }, cell)))))));
}

/** A choice of one among several. @param {string} label @param {[string, string][]} options value and text
 * @param {string} chosen @param {(value: string) => void} changed */
export function choice(label, options, chosen, changed) {
  const select = h("select", { onchange: () => changed(select.value) },
    ...options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return h("label", {}, label, " ", select);
}

/** Nothing to show, and why. @param {string} text @param {string} [hint] */
export function empty(text, hint) {
  return h("p", { class: "empty" }, text, hint ? h("br") : null, hint ?? null);
}

/** Asks before something is done; true when the user agrees. @param {string} question @param {string} act
 * @returns {Promise<boolean>} */
export function confirmed(question, act) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": question, onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      h("p", {}, question),
      h("div", { class: "bar" },
        h("button", { class: "main", onclick: () => dialog.close("yes") }, act),
        h("button", { autofocus: true, onclick: () => dialog.close("no") }, "Cancel")));
    document.body.append(dialog);
    dialog.showModal();
  });
}
