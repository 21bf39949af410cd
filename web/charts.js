//! Graphs over time with uPlot, in the colours of the page, with their latest figures as text for those who do not see them.

import { h, say } from "./dom.js";
import uPlot from "./vendor/uPlot.js";

/** A line; `fraction` when its axis has values between whole numbers.
 * @typedef {{name: string, colour: string, show: (value: number) => string, fraction?: boolean}} Line */

const HEIGHT = 170;

/** @param {string} name */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A graph of several lines. `update` takes times in seconds and one list of values for each line. */
export class Chart {
  /** @param {string} title @param {Line[]} lines */
  constructor(title, lines) {
    this.title = title;
    this.lines = lines;
    /** @type {any} */
    this.plot = null;
    /** @type {(number | null)[][]} */
    this.data = [[], ...lines.map(() => [])];
    this.place = h("div", { class: "plot", role: "img", "aria-label": title });
    this.summary = h("p", { class: "summary" });
    this.root = h("figure", {}, h("figcaption", {}, title), this.place, this.summary);
    this.resize = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: HEIGHT }));
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => { this.plot?.destroy(); this.plot = null; if (this.data[0].length) this.draw(); };
    this.scheme.addEventListener("change", this.redraw);
    this.resize.observe(this.root);
  }

  width() {
    return Math.max(200, this.root.clientWidth);
  }

  draw() {
    if (!this.root.isConnected) return;
    if (this.plot) {
      this.plot.setSize({ width: this.width(), height: HEIGHT });
      return this.plot.setData(this.data);
    }
    const axis = { stroke: css("--text"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui" };
    const { show, fraction } = this.lines[0];
    const tick = (/** @type {number} */ value) => (fraction || Number.isInteger(value) ? show(value) : "");
    this.plot = new uPlot({
      width: this.width(), height: HEIGHT, legend: { show: false }, cursor: { y: false },
      scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ _low, /** @type {number} */ high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [axis, { ...axis, size: 74, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(tick) }],
      series: [{}, ...this.lines.map((line) => ({ label: line.name, stroke: css(line.colour), width: 2, points: { show: false } }))],
    }, this.data, this.place);
  }

  /** @param {number[]} times @param {(number | null)[][]} values */
  update(times, values) {
    this.data = [times, ...values];
    this.place.hidden = !times.length;
    if (times.length) this.draw();
    const latest = this.lines.map((line, at) => {
      const value = values[at]?.at(-1);
      return [line, value === null || value === undefined ? "–" : line.show(value)];
    });
    const text = latest.map(([line, value]) => `${/** @type {Line} */ (line).name} ${value}`).join(", ");
    if (this.summary.childElementCount !== latest.length) {
      this.summary.replaceChildren(...latest.map(([line]) => h("span", { class: /** @type {Line} */ (line).colour.slice(2) })));
    }
    latest.forEach(([line, value], at) => say(this.summary.children[at], `${/** @type {Line} */ (line).name} ${value}`));
    this.place.setAttribute("aria-label", `${this.title}: ${times.length ? `latest ${text}` : "no figures yet"}`);
  }

  end() {
    this.resize.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    this.plot?.destroy();
  }
}
