//! Schedule: the hours of the week in which something happens or rests, as a grid. Owns the grid; the windows are written to the file.

import { Config, otherwise, said, sections, shown } from "./config.js";
import { choice, empty, fill, h, say } from "./dom.js";
import { minutes, windows } from "./windows.js";

const NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
/** Other settings of passes stand beside their windows. */
const BESIDE = /^pass(?!_windows)/;

/** A week of 7 × 24 hours. Arrow keys choose an hour, Space turns it, Shift with arrows goes on in the same way; by pointer a drag does.
 * @param {string} name @param {string[]} start @param {boolean} fixed @param {(now: string[]) => void} changed */
export function grid(name, start, fixed, changed) {
  const covered = minutes(start);
  let [chosen, painting] = [0, /** @type {number | null} */ (null)];
  /** @type {HTMLElement[]} */
  const cells = [];
  const of = (/** @type {number} */ at) => covered.subarray(at * 60, at * 60 + 60);
  function tell(/** @type {number} */ at) {
    const part = of(at).reduce((sum, one) => sum + one, 0);
    const [day, hour] = [Math.floor(at / 24), at % 24];
    cells[at].className = part === 60 ? "on" : part ? "part" : "";
    cells[at].setAttribute("aria-selected", String(part > 0));
    cells[at].setAttribute("aria-label", `${NAMES[day]} ${hour} to ${hour + 1}: ${part === 60 ? "yes" : part ? "partly" : "no"}`);
  }
  function set(/** @type {number} */ at, /** @type {number} */ value) {
    if (fixed) return;
    of(at).fill(value);
    tell(at);
    changed(windows(covered));
  }
  function choose(/** @type {number} */ at) {
    cells[chosen].tabIndex = -1;
    chosen = at;
    cells[chosen].tabIndex = 0;
  }
  const rows = NAMES.map((day, row) => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, day.slice(0, 3)), ...HOURS.map((hour) => {
    const at = row * 24 + hour;
    cells[at] = h("td", { role: "gridcell", tabindex: at ? -1 : 0, "data-at": at });
    return cells[at];
  })));
  HOURS.forEach((hour) => NAMES.forEach((_, row) => tell(row * 24 + hour)));
  const under = (/** @type {Event} */ event) => {
    const at = /** @type {HTMLElement} */ (event.target).dataset.at;
    return at === undefined ? null : Number(at);
  };
  const stop = () => { painting = null; };
  return h("div", { class: "scroll" }, h("table", { role: "grid", class: "week", "aria-label": name, "aria-readonly": fixed || null,
    onpointerdown: (/** @type {PointerEvent} */ event) => {
      const at = under(event);
      if (at === null) return;
      /** @type {Element} */ (event.target).releasePointerCapture?.(event.pointerId);
      choose(at);
      painting = of(at).every((one) => one) ? 0 : 1;
      set(at, painting);
    },
    onpointerover: (/** @type {PointerEvent} */ event) => {
      const at = under(event);
      if (at !== null && painting !== null && event.buttons) set(at, painting);
    },
    onpointerup: stop, onpointerleave: stop,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const [row, hour] = [Math.floor(chosen / 24), chosen % 24];
      /** @type {Record<string, [number, number]>} */
      const to = { ArrowLeft: [row, hour - 1], ArrowRight: [row, hour + 1], ArrowUp: [row - 1, hour], ArrowDown: [row + 1, hour], Home: [row, 0], End: [row, 23] };
      const next = to[event.key];
      if (next && next[0] >= 0 && next[0] < 7 && next[1] >= 0 && next[1] < 24) {
        const same = of(chosen).every((one) => one) ? 1 : 0;
        choose(next[0] * 24 + next[1]);
        cells[chosen].focus();
        if (event.shiftKey) set(chosen, same);
      } else if (event.key === " " || event.key === "Enter") set(chosen, of(chosen).every((one) => one) ? 0 : 1);
      else if (!next) return;
      event.preventDefault();
    } },
  h("thead", {}, h("tr", { role: "row" }, h("td"), ...HOURS.map((hour) => h("th", { scope: "col", role: "columnheader" }, String(hour))))), h("tbody", {}, ...rows)));
}

/** @type {Record<string, string>} */
const TITLES = { mending_rests: "Mending and scans rest", pass_windows: "Passes of whole volumes may run" };

/** @type {import("./types").Page} */
export const schedule = {
  name: "schedule",
  title: "Schedule",
  show(root, { role }) {
    if (role === "guest") {
      root.append(empty("The configuration names files.", "Viewers and operators see it."));
      return {};
    }
    const config = new Config();
    let section = "defaults";
    const [chooser, told, body] = [h("div", { class: "bar" }), h("p", { role: "status" }), h("div")];
    root.append(chooser, told, body);
    function draw() {
      const { file } = config;
      if (!file) return;
      fill(chooser, choice("For", sections(file), section, (name) => { section = name; draw(); }));
      fill(body, ...file.volume_keys.filter((key) => key.kind === "windows").flatMap((key) => {
        const fixed = !key.may_change;
        const own = /** @type {string[] | undefined} */ (said(file, section, key.key));
        let now = own ?? /** @type {string[]} */ (otherwise(file, section, key)) ?? [];
        const words = h("p", { "aria-live": "polite" });
        const tell = () => say(words, now.length ? `${now.join("; ")}.` : "At no time.");
        tell();
        const change = async (/** @type {string[] | null} */ value) => { if (await config.change([{ section, key: key.key, value }], told)) draw(); };
        const beside = key.key === "pass_windows" ? file.volume_keys.filter((one) => BESIDE.test(one.key)) : [];
        return [h("h2", {}, TITLES[key.key] ?? key.key), h("p", {}, `${key.meaning} Times are those of this machine.`),
          beside.length ? h("p", {}, `${beside.map((one) => `${one.key}: ${shown(said(file, section, one.key) ?? otherwise(file, section, one))}`).join(", ")}. `, h("a", { href: "#settings" }, "Change them")) : null,
          grid(TITLES[key.key] ?? key.key, now, fixed, (next) => { now = next; tell(); }), words,
          fixed ? null : h("div", { class: "bar" }, h("button", { class: "main", "aria-label": `Save: ${key.key}`, onclick: () => change(now) }, "Save"),
            own && h("button", { "aria-label": `As by default: ${key.key}`, onclick: () => change(null) }, "As by default"))];
      }).filter(Boolean));
    }
    config.read().then(draw, (problem) => fill(body, empty(`The configuration cannot be read: ${problem.message}.`, problem.hint)));
    return {};
  },
};
