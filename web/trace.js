//! What a disk is asked for: a trace of all its requests, begun here by operators, with histograms of latency and size.

import { choice, empty, fill, h, say, table } from "./dom.js";
import { doubling, rows, short } from "./trace_model.js";
import { get, post } from "./transport.js";
import { bytes, count, duration, percent, time } from "./units.js";

/** @typedef {import("./types").VolumeTrace} VolumeTrace @typedef {import("./types").TraceClass} TraceClass */

const EVERY_MS = 2000;
const LENGTHS = [["10", "10 seconds"], ["60", "1 minute"], ["600", "10 minutes"], ["3600", "1 hour"]];

/** @param {string} title @param {[number, number, number][]} found @param {(bound: number) => string} name */
function histogram(title, found, name) {
  const most = [1, 2].map((which) => found.reduce((sum, row) => sum + row[which], 0));
  const cell = (/** @type {number} */ many, /** @type {number} */ whole) => h("span", {}, h("meter", { min: 0, max: Math.max(1, whole), value: many, "aria-hidden": "true" }), ` ${count(many)} (${percent(many, whole)})`);
  return h("div", {}, h("h3", {}, title), table(title, [title, "Reads", "Writes"], found.map(([bound, reads, writes]) => [name(bound), cell(reads, most[0]), cell(writes, most[1])])));
}

/** @param {string} name @param {TraceClass} one @param {number} seconds */
const figures = (name, one, seconds) => [name, count(one.requests), `${(one.requests / Math.max(seconds, 0.001)).toFixed(1)}/s`, bytes(one.bytes),
  one.requests ? bytes(one.bytes / one.requests) : "–", one.completed ? short((1e6 * one.latency_seconds) / one.completed) : "–", percent(one.sequential, one.distances), count(one.errors)];

/** @param {NonNullable<VolumeTrace["recording"]>} recording */
function shown({ devices, seconds, started }) {
  return devices.map(({ name, all: { reads, writes } }) => h("div", {},
    h("p", {}, `${name}, ${duration(Math.max(1, seconds))} from ${time(started)}:`),
    table(`Requests of ${name}`, ["Kind", "#Requests", "#Rate", "#Bytes", "#Mean size", "#Mean latency", "#Sequential", "#Errors"], [figures("Reads", reads, seconds), figures("Writes", writes, seconds)]),
    h("div", { class: "charts" },
      histogram("Latency", rows(reads.latency, writes.latency, doubling), (bound) => (bound === Infinity ? "longer" : `below ${short(bound)}`)),
      histogram("Size", rows(reads.sizes, writes.sizes, (upto) => upto ?? Infinity), (bound) => (bound === Infinity ? "larger" : `up to ${bytes(bound)}`)))));
}

/** The trace of the volume that is chosen. @param {boolean} operator */
export function trace(operator) {
  const [told, list] = [h("p", { role: "status" }), h("div")];
  /** @type {string | null} */
  let volume = null;
  let [over, seconds, drawn] = [false, "60", ""];
  const path = () => `/v1/volumes/${encodeURIComponent(volume ?? "")}/trace`;
  async function act(/** @type {string} */ method) {
    try {
      await post(path(), method === "POST" ? { seconds: Number(seconds) } : undefined, method);
    } catch (problem) {
      say(told, `Refused: ${/** @type {Error} */ (problem).message}.`);
      return;
    }
    await tell();
  }
  const begin = h("button", { onclick: () => act("POST") }, "Trace");
  const end = h("button", { onclick: () => act("DELETE") }, "End the trace");
  async function tell() {
    const asked = volume;
    if (!asked) return;
    try {
      /** @type {VolumeTrace} */
      const found = await get(path());
      if (asked !== volume || over) return;
      [begin.disabled, end.disabled] = [found.running, !found.running];
      const now = JSON.stringify(found);
      if (now === drawn) return;
      drawn = now;
      say(told, found.running && found.ends ? `Every request is counted until ${time(found.ends)}.` : found.trouble ? `The trace failed: ${found.trouble}` : "");
      fill(list, ...(found.recording ? shown(found.recording) : [empty(found.running ? "The first figures come in a second." : "No trace has been made since the service started.", "Counting costs a little processor time with each request, so that it is done when asked for.")]));
    } catch { /* the banner tells */ }
  }
  const timer = setInterval(tell, EVERY_MS);
  const bar = operator && h("div", { class: "bar" }, choice("Count for", /** @type {[string, string][]} */ (LENGTHS), seconds, (value) => { seconds = value; }), begin, end);
  return {
    root: h("div", {}, bar, told, list),
    /** @param {string | null} id */
    choose(id) {
      [volume, drawn] = [id, ""];
      tell();
    },
    end() {
      over = true;
      clearInterval(timer);
    },
  };
}
