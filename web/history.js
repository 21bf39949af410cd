//! History: what the ledger has of the last days to years, the benefit or that there is none, and the report to take away.

import { Chart } from "./charts.js";
import { choice, empty, fill, h, table } from "./dom.js";
import { get } from "./transport.js";
import { bytes, count, duration, time } from "./units.js";

/** Days. @type {[string, string][]} */
const PERIODS = [["1", "a day"], ["7", "a week"], ["30", "a month"], ["91", "three months"], ["365", "a year"], ["730", "two years"]];

/** @type {[string, string, (value: number) => string][]} */
const TOTALS = [
  ["fragments-prevented", "Fragments prevented", count],
  ["fragments-slipped", "Fragments that slipped", count],
  ["files-mended", "Files mended", count],
  ["fragments-mended", "Fragments mended", count],
  ["bytes-moved", "Written for mending", bytes],
  ["fragments-by-passes", "Fragments removed by passes", count],
  ["read-time-saved-us", "Time of the disks saved, each time all these files are read", (value) => duration(value / 1e6)],
  ["bytes-reclaimed", "Storage given back", bytes],
  ["runways-granted", "Runways granted", count],
  ["space-alerts", "Alerts about free space", count],
  ["own-io-bytes", "I/O of the service", bytes],
  ["service-cpu-ms", "Processor time of the service", (value) => duration(value / 1000)],
];

/** The series as CSV. Names of counters have no characters that need quoting. @param {any} report */
export function csv(report) {
  const names = [...new Set(report.series.flatMap((/** @type {any} */ point) => Object.keys(point.tallies)))].sort();
  const rows = report.series.map((/** @type {any} */ point) => [point.at, ...names.map((name) => point.tallies[name] ?? 0)]);
  return [["from", ...names], ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

/** @param {string} name @param {string} type @param {string} text */
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** What is shown, as a page of its own. @param {Element} shown */
function page(shown) {
  const copy = /** @type {Element} */ (shown.cloneNode(true));
  copy.querySelectorAll("figure, button").forEach((one) => one.remove());
  const style = "body{font:15px system-ui;margin:2em;max-width:60em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ccc}";
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Longrun report</title><style>${style}</style><h1>Longrun report</h1>${copy.innerHTML}</html>`;
}

/** @type {import("./types").Page} */
export const history = {
  name: "history",
  title: "History",
  show(root, state) {
    if (state.role === "guest") {
      root.append(empty("The history names files.", "Viewers and operators see it."));
      return {};
    }
    const done = new Chart("Fragments prevented, slipped and mended", [
      { name: "prevented", colour: "first", show: count }, { name: "slipped", colour: "second", show: count }, { name: "mended", colour: "third", show: count }]);
    const scans = new Chart("Excess fragments at scans", [{ name: "excess fragments", colour: "second", show: count }]);
    const [chooser, report, files] = [h("div", { class: "bar" }), h("div", { "aria-live": "polite" }), h("div", { class: "bar" })];
    root.append(chooser, report, h("div", { class: "charts" }, done.root, scans.root), files);
    let [days, volume, known] = ["7", "", ""];
    let asked = 0;
    async function tell() {
      const mine = ++asked;
      const to = new Date();
      const from = new Date(to.getTime() - Number(days) * 86400e3);
      const query = new URLSearchParams({ from: from.toISOString(), to: to.toISOString(), ...(volume ? { volume } : {}) });
      let read;
      try {
        read = await get(`/v1/report?${query}`);
      } catch (problem) {
        const why = /** @type {import("./transport.js").Refusal} */ (problem);
        return fill(report, empty(`There is no report: ${why.message}.`, why.hint));
      }
      if (mine !== asked) return;
      const totals = TOTALS.filter(([name]) => read.totals[name]).map(([name, text, show]) => [text, show(read.totals[name])]);
      const statements = read.benefit.statements;
      const { events } = read;
      fill(report,
        h("p", {}, `From ${time(read.period.from)} to ${time(read.period.to)}${volume ? `, volume ${volume}` : ", all volumes"}.`),
        !read.has_history && empty("There is no history of this time yet.", "The service records by the hour while it runs."),
        h("h2", {}, "Benefit"),
        statements.length ? h("ul", {}, ...statements.map((/** @type {string} */ one) => h("li", {}, one))) : h("p", { class: "empty" }, "No benefit in this time."),
        totals.length ? table("Totals", ["What", "#In this time"], totals) : null,
        events.length ? h("h2", {}, "Events") : null,
        events.length ? table("Events of this time", ["When", "Severity", "What"], events.slice(0, 30).map((/** @type {any} */ one) => [time(one.at), one.severity,
          h("span", {}, one.text, one.path && h("br"), one.path && h("small", {}, one.path))])) : null);
      const tally = (/** @type {string} */ name) => read.series.map((/** @type {any} */ point) => point.tallies[name] ?? 0);
      done.update(read.series.map((/** @type {any} */ point) => Date.parse(point.at) / 1000), ["fragments-prevented", "fragments-slipped", "fragments-mended"].map(tally));
      // Scans of several volumes are on one axis only when one volume is chosen, or there is one.
      const gauges = read.volumes.length === 1 ? read.volumes[0].scans.filter((/** @type {any} */ one) => (one.excess_fragments ?? null) !== null) : [];
      scans.root.hidden = !gauges.length;
      scans.update(gauges.map((/** @type {any} */ one) => Date.parse(one.at) / 1000), [gauges.map((/** @type {any} */ one) => one.excess_fragments)]);
      const name = `longrun-${read.period.to.slice(0, 10)}`;
      fill(files, h("span", {}, "Take away:"),
        h("button", { onclick: () => save(`${name}.html`, "text/html", page(report)) }, "HTML"),
        h("button", { onclick: () => save(`${name}.csv`, "text/csv", csv(read)) }, "CSV"),
        h("button", { onclick: () => save(`${name}.json`, "application/json", JSON.stringify(read, null, 2)) }, "JSON"));
    }
    return {
      update({ status }) {
        const volumes = (status?.volumes ?? []).filter((one) => one.enabled);
        const ids = volumes.map((one) => one.id).join();
        if (known === `#${ids}`) return;
        known = `#${ids}`;
        fill(chooser, choice("The last", PERIODS, days, (value) => { days = value; tell(); }),
          choice("Volume", [["", "all"], ...volumes.map((one) => /** @type {[string, string]} */ ([one.mount, one.mount]))], volume, (value) => { volume = value; tell(); }),
          h("button", { onclick: tell }, "Refresh"));
        tell();
      },
      end() {
        done.end();
        scans.end();
      },
    };
  },
};
