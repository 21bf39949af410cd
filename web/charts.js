//! Graphs over time as SVG, with the figures of the latest moment, or of the one under the pointer, as text. Owns their axes.

import { fill, h, say } from "./dom.js";

/** A line; `fraction` when its axis has values between whole numbers, `binary` when they are bytes.
 * @typedef {{name: string, colour: string, show: (value: number) => string, fraction?: boolean, binary?: boolean}} Line */

const [HEIGHT, LEFT, BOTTOM, TOP] = [170, 74, 20, 8];
const TICKS = 4;
/** Distances of times on the axis, in seconds. */
const STEPS = [60, 120, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 30 * 86400, 91 * 86400];
const DAY = 86400;

/** @param {string} tag @param {Record<string, unknown>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The distance of ticks on an axis from 0 to `most`: 1, 2 or 5 times a power of ten, or a power of two. Pure.
 * @param {number} most @param {boolean} fraction @param {boolean} binary */
export function step(most, fraction, binary) {
  const raw = most / TICKS;
  if (binary) return 2 ** Math.max(0, Math.ceil(Math.log2(raw)));
  const power = 10 ** Math.floor(Math.log10(raw));
  const nice = (/** @type {number[]} */ ([1, 2, 5, 10]).find((one) => one * power >= raw) ?? 10) * power;
  return fraction ? nice : Math.max(1, nice);
}

/** @param {number} at seconds @param {number} distance */
const moment = (at, distance) => new Date(at * 1000).toLocaleString(undefined, distance >= DAY ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" });

/** A graph of several lines. `update` takes times in seconds and one list of values for each line. */
export class Chart {
  /** @param {string} title @param {Line[]} lines */
  constructor(title, lines) {
    this.title = title;
    this.lines = lines;
    /** @type {number[]} */
    this.times = [];
    /** @type {(number | null)[][]} */
    this.values = lines.map(() => []);
    /** The point under the pointer. @type {number | null} */
    this.chosen = null;
    this.place = h("div", { class: "plot", role: "img", "aria-label": title, onpointermove: (/** @type {PointerEvent} */ event) => this.point(event),
      onpointerleave: () => { this.chosen = null; this.draw(); } });
    this.summary = h("p", { class: "summary" }, ...lines.map((line) => h("span", { class: line.colour })), h("span", { class: "quiet" }));
    this.root = h("figure", {}, h("figcaption", {}, title), this.place, this.summary);
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(this.root);
  }

  width() {
    return Math.max(200, this.root.clientWidth);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const share = (event.clientX - this.place.getBoundingClientRect().left - LEFT) / (this.width() - LEFT);
    const [first, last] = [this.times[0], this.times.at(-1) ?? 0];
    const at = first + Math.min(1, Math.max(0, share)) * (last - first);
    this.chosen = this.times.reduce((best, time, index) => (Math.abs(time - at) < Math.abs(this.times[best] - at) ? index : best), 0);
    this.draw();
  }

  draw() {
    const { times, values, lines } = this;
    this.tell();
    this.place.hidden = !times.length;
    if (!times.length || !this.root.isConnected) return;
    const [width, height] = [this.width(), HEIGHT - BOTTOM];
    const [first, last] = [times[0], Math.max(times[0] + 1, times.at(-1) ?? 0)];
    const high = values.flat().reduce((/** @type {number} */ most, one) => Math.max(most, one ?? 0), 0) || 1;
    const distance = step(high, Boolean(lines[0].fraction), Boolean(lines[0].binary));
    const top = high * 1.05;
    const x = (/** @type {number} */ time) => LEFT + ((time - first) / (last - first)) * (width - LEFT - 2);
    const y = (/** @type {number} */ value) => height - (value / top) * (height - TOP);
    const picture = svg("svg", { width, height: HEIGHT, "aria-hidden": true });
    for (let value = 0; value <= top; value += distance) {
      picture.append(svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, lines[0].show(value)));
    }
    const apart = STEPS.find((one) => (last - first) / one <= (width - LEFT) / 80) ?? STEPS[STEPS.length - 1];
    // Whole hours and days are those of the clock on the wall.
    const zone = new Date(last * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((first - zone) / apart) * apart + zone; time <= last; time += apart) {
      picture.append(svg("line", { class: "grid", x1: x(time), x2: x(time), y1: height, y2: height + 4 }),
        svg("text", { x: Math.min(x(time), width - 22), y: HEIGHT - 4, "text-anchor": "middle" }, moment(time, apart)));
    }
    lines.forEach((line, number) => {
      // A line is interrupted where a value is missing.
      let pen = "M";
      const path = times.map((time, at) => {
        const value = values[number][at] ?? null;
        const to = value === null ? "" : `${pen}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = value === null ? "M" : "L";
        return to;
      });
      picture.append(svg("path", { class: `line ${line.colour}`, d: path.join("") }));
    });
    if (this.chosen !== null) picture.append(svg("line", { class: "grid", x1: x(times[this.chosen]), x2: x(times[this.chosen]), y1: TOP, y2: height }));
    fill(this.place, picture);
  }

  tell() {
    const { times, values, lines, chosen } = this;
    const at = chosen === null || chosen >= times.length ? times.length - 1 : chosen;
    const texts = lines.map((line, number) => {
      const value = values[number][at];
      return `${line.name} ${value === null || value === undefined ? "–" : line.show(value)}`;
    });
    texts.forEach((text, number) => say(this.summary.children[number], text));
    say(this.summary.lastElementChild, chosen === null || !times.length ? "" : `at ${new Date(times[at] * 1000).toLocaleString()}`);
    this.place.setAttribute("aria-label", `${this.title}: ${times.length ? `latest ${texts.join(", ")}` : "no figures yet"}`);
  }

  /** @param {number[]} times @param {(number | null)[][]} values */
  update(times, values) {
    [this.times, this.values] = [times, values];
    this.draw();
  }

  end() {
    this.resize.disconnect();
  }
}
