//! Activity: what prevention and mending do each second, and who uses the disk.

import { Chart } from "./charts.js";
import { choice, empty, fill, h } from "./dom.js";
import { jobs } from "./jobs.js";
import { trace } from "./trace.js";
import { get } from "./transport.js";
import { bytes, count } from "./units.js";

/** @typedef {import("./types").Status} Status */

const LOAD_EVERY_MS = 5000;
/** @param {number} value */
const perSecond = (value) => `${value < 10 && value ? value.toFixed(1) : count(value)}/s`;
/** @param {number} value */
const bytesPerSecond = (value) => `${bytes(value)}/s`;

/** What grew between two states, in a second. @param {import("./types").State["past"]} past @param {(status: Status) => number} of */
function rates(past, of) {
  return past.slice(1).map(({ at, status }, before) => {
    const earlier = past[before];
    const grown = of(status) - of(earlier.status);
    // A service that has been restarted counts from nothing again.
    return grown < 0 ? null : grown / Math.max(0.2, at - earlier.at);
  });
}

/** @param {(volume: import("./types").Volume) => number} of @returns {(status: Status) => number} */
const sum = (of) => (status) => status.volumes.reduce((all, volume) => all + of(volume), 0);

/** @type {import("./types").Page} */
export const activity = {
  name: "activity",
  title: "Activity",
  show(root, { role }) {
    const prevention = new Chart("Prevention: fragments in a second", [
      { name: "prevented", colour: "first", show: perSecond, fraction: true }, { name: "slipped", colour: "second", show: perSecond, fraction: true }]);
    const mending = new Chart("Mending: written in a second", [{ name: "written", colour: "first", show: bytesPerSecond, binary: true }]);
    const queue = new Chart("Files that wait to be mended", [{ name: "waiting", colour: "first", show: count }]);
    const signals = new Chart("Signals of the kernel in a second", [{ name: "signals", colour: "first", show: perSecond, fraction: true }]);
    const load = new Chart("Load of the disk, bytes in a second", [
      { name: "Longrun", colour: "first", show: bytesPerSecond, binary: true }, { name: "other processes", colour: "second", show: bytesPerSecond, binary: true }]);
    const outside = new Chart("Small reads, times their usual duration (more than 1: users outside this machine)", [
      { name: "duration", colour: "third", show: (value) => `${value.toFixed(1)} ×`, fraction: true }]);
    const charts = [prevention, mending, queue, signals, load, outside];
    const chooser = h("div", { class: "bar" });
    const note = h("div");
    const list = role === "guest" ? null : jobs(false);
    const requests = role === "guest" ? null : trace(role === "operator");
    if (list) root.append(h("h2", {}, "Passes"), list.root);
    root.append(h("h2", {}, "The last ten minutes"), h("div", { class: "charts" }, prevention.root, mending.root, queue.root, signals.root),
      h("h2", {}, "The last hour of a disk"), chooser, note, h("div", { class: "charts" }, load.root, outside.root));
    if (requests) root.append(h("h2", {}, "Requests of this disk"), requests.root);
    /** @type {string | null} */
    let volume = null;
    let known = "";
    async function tellLoad() {
      if (!volume) return;
      const asked = volume;
      try {
        const { points } = await get(`/v1/volumes/${encodeURIComponent(asked)}/load`);
        if (asked !== volume) return;
        fill(note, !points.length && empty("No load has been recorded yet: points come every 5 s."));
        const each = (/** @type {(point: any) => number | null} */ of) => points.map(of);
        const times = points.map((/** @type {any} */ point) => Date.parse(point.at) / 1000);
        load.update(times, [each((p) => p.own_bytes / p.seconds), each((p) => Math.max(0, p.read_bytes + p.written_bytes - p.own_bytes) / p.seconds)]);
        outside.update(times, [each((p) => (p.probes?.usual_us ? p.probes.recent_us / p.probes.usual_us : null))]);
      } catch { /* the banner tells */ }
    }
    const timer = setInterval(tellLoad, LOAD_EVERY_MS);
    return {
      update({ status, past }) {
        if (!status) return;
        const volumes = status.volumes.filter((one) => one.enabled);
        const ids = volumes.map((one) => one.id).join();
        if (ids !== known) {
          known = ids;
          if (!volumes.some((one) => one.id === volume)) volume = volumes[0]?.id ?? null;
          fill(chooser, volumes.length ? choice("Volume", volumes.map((one) => [one.id, one.mount]), volume ?? "", (id) => { volume = id; tellLoad(); requests?.choose(id); })
            : empty("No volume is enabled."));
          tellLoad();
          requests?.choose(volume);
        }
        const times = past.slice(1).map(({ at }) => at);
        prevention.update(times, [rates(past, sum((v) => v.prevented.fragments)), rates(past, sum((v) => v.prevented.slipped))]);
        mending.update(times, [rates(past, sum((v) => v.mended.moved_bytes))]);
        queue.update(times, [past.slice(1).map((one) => one.status.mending.queued)]);
        signals.update(times, [rates(past, (one) => one.sensor?.signals ?? 0)]);
      },
      end() {
        clearInterval(timer);
        list?.end();
        requests?.end();
        charts.forEach((chart) => chart.end());
      },
    };
  },
};
