//! Overview: what the service does now and waits for, what it did, each volume, what is wrong.

import { empty, fill, h, table } from "./dom.js";
import { get } from "./transport.js";
import { ago, bytes, count, counted, duration, percent, time } from "./units.js";

/** @typedef {import("./types").Volume} Volume */
/** @typedef {import("./types").Status} Status */

const EVENTS = 12;
const EVENTS_EVERY_MS = 5000;

/** What mending waits for, in the order in which it is told. @type {Record<string, string>} */
const WAITS = {
  turn: "for their turn",
  quiet: "to be quiet",
  tried: "for the next attempt",
  dear: "for cheaper files",
  short_lived: "because files of their kind are soon deleted or written again",
  again: "because they fragmented again soon",
};

/** What the service does and waits for, as sentences. @param {Status} status @returns {string[]} */
export function doing(status) {
  const lines = [];
  const watched = status.volumes.filter((volume) => volume.prevention).length;
  const sensor = status.sensor;
  if (!sensor) lines.push("Prevention does not run.");
  else {
    const runways = status.volumes.reduce((sum, volume) => sum + volume.prevented.runways, 0);
    const held = status.volumes.reduce((sum, volume) => sum + volume.prevented.held_bytes, 0);
    lines.push(`Prevention watches ${counted(watched, "volume")} (sensor ${sensor.kind}); ${counted(runways, "growing file")} ${runways === 1 ? "has" : "have"} ${bytes(held)} of space reserved.`);
  }
  const { mending } = status;
  if (mending.paused) {
    lines.push(`Mending and scheduled scans are paused ${mending.paused_until ? `until ${time(mending.paused_until)}` : "until an operator resumes them"}.`);
  } else if (mending.at_work) lines.push("A file is being mended.");
  else if (!mending.queued) lines.push("Nothing is to be mended.");
  if (mending.queued) {
    const waits = Object.entries(WAITS).filter(([key]) => mending.waiting[key]).map(([key, text]) => `${count(mending.waiting[key])} ${text}`);
    lines.push(`${counted(mending.queued, "file")} (${counted(mending.queued_excess, "excess fragment")}) wait to be mended${waits.length ? `: ${waits.join(", ")}` : ""}.`);
  }
  for (const volume of status.volumes) {
    const { governor } = volume;
    const why = volume.mending_rests ?? governor.pausing;
    if (!why || mending.paused) continue;
    const program = governor.waits_for === "foreign" && governor.other_program ? ` (last: ${governor.other_program})` : "";
    lines.push(`${volume.mount}: mending waits: ${why}${program}.`);
  }
  return lines;
}

/** @param {Volume} volume */
function health(volume) {
  if (!volume.enabled) return h("span", { class: "quiet" }, "not enabled");
  if (volume.health.level === "alert") return h("strong", { class: "bad" }, "Alert");
  if (volume.trouble) return h("strong", { class: "bad" }, "Trouble");
  return volume.health.level === "good" ? h("span", { class: "good" }, "Good") : h("span", { class: "quiet" }, "Not known yet");
}

/** @param {Volume} volume */
function now(volume) {
  if (!volume.enabled) return "–";
  const rest = volume.mending_rests ?? volume.governor.pausing;
  if (rest) return `Mending waits: ${rest}`;
  if (volume.prevented.short_of_space) return "No space is reserved: too little is free";
  return [volume.prevention && "preventing", volume.mending && "mending"].filter(Boolean).join(", ") || "–";
}

/** @param {Volume} volume */
function row(volume) {
  const { space, scan } = volume;
  const used = space.total_bytes - space.free_bytes;
  return [
    h("span", {}, h("strong", {}, volume.mount), h("br"), h("small", {}, `${volume.filesystem} on ${volume.device}`)),
    health(volume),
    volume.enabled ? h("span", {}, h("meter", { min: 0, max: 1, value: used / (space.total_bytes || 1), "aria-label": `${percent(used, space.total_bytes)} used` }), h("br"),
      h("small", {}, `${bytes(space.free_bytes)} free of ${bytes(space.total_bytes)}`)) : "–",
    volume.enabled ? count(volume.prevented.fragments) : "–",
    volume.enabled ? count(volume.prevented.slipped) : "–",
    volume.enabled ? count(volume.mended.fragments) : "–",
    scan ? h("span", { title: `scanned ${time(scan.at)}` }, count(scan.excess_fragments), h("br"), h("small", {}, `in ${counted(scan.fragmented_files, "file")}, ${ago(scan.at)}`)) : "–",
    now(volume),
  ];
}

/** @param {string} name @param {string} value @param {string} note */
const tile = (name, value, note) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, h("small", {}, note)));

/** @param {Status} status */
function tiles(status) {
  const sum = (/** @type {(volume: Volume) => number} */ of) => status.volumes.filter((volume) => volume.enabled).reduce((all, volume) => all + of(volume), 0);
  const [prevented, slipped] = [sum((v) => v.prevented.fragments), sum((v) => v.prevented.slipped)];
  const mended = sum((v) => v.mended.fragments);
  return h("dl", { class: "tiles" },
    tile("Prevented", count(prevented), prevented + slipped ? `fragments, ${percent(prevented, prevented + slipped)} of all that threatened` : "fragments"),
    tile("Slipped", count(slipped), "fragments that were not prevented"),
    tile("Mended", count(mended), `fragments in ${counted(sum((v) => v.mended.files), "file")}, ${bytes(sum((v) => v.mended.moved_bytes))} written`),
    tile("Saved", count(sum((v) => v.saved.requests)), `device requests at most, ${duration(sum((v) => v.saved.seconds))} of the disks, each time all these files are read`),
    tile("Reaction", status.reaction.count ? duration(status.reaction.p50_us / 1e6) : "–", status.reaction.count ? `median; 99 % within ${duration(status.reaction.p99_us / 1e6)}` : "no growing file so far"),
    tile("Own use", bytes(status.own.resident_bytes), `memory; ${duration(status.own.cpu_seconds)} of processor time in ${duration(status.uptime_seconds)}`));
}

/** @type {import("./types").Page} */
export const overview = {
  name: "overview",
  title: "Overview",
  show(root, state) {
    const [troubles, work, figures, volumes] = ["troubles", "work", "figures", "volumes"].map(() => h("div"));
    const events = h("div", {}, h("p", { class: "quiet" }, "Loading …"));
    root.append(troubles, h("h2", {}, "Now"), work, h("h2", {}, "Since the service started"), figures, h("h2", {}, "Volumes"), volumes,
      h("h2", {}, "Events"), events);
    let last = "";
    async function tellEvents() {
      if (state.role === "guest") return fill(events, empty("Events name files.", "Viewers and operators see them."));
      try {
        const { events: all, last: number } = await get("/v1/events?limit=1000");
        if (String(number) === last) return;
        last = String(number);
        const latest = all.slice(-EVENTS).reverse();
        fill(events, latest.length ? table("Events", ["When", "Severity", "What"], latest.map((/** @type {any} */ one) => [time(one.at), one.severity,
          h("span", {}, one.text, one.path && h("br"), one.path && h("small", {}, one.path))])) : empty("Nothing has happened since the service started."));
      } catch { /* the banner tells */ }
    }
    tellEvents();
    const timer = setInterval(tellEvents, EVENTS_EVERY_MS);
    let drawn = "";
    return {
      update({ status }) {
        if (!status) return;
        fill(figures, tiles(status));
        // What has not changed is not drawn again: a selection or a focus in it stays.
        const now = JSON.stringify([status.troubles, doing(status), status.volumes]);
        if (now === drawn) return;
        drawn = now;
        fill(troubles, status.healthy ? h("p", { class: "fine" }, "Everything works.")
          : h("div", { class: "alert", role: "alert" }, h("ul", {}, ...status.troubles.map((trouble) => h("li", {}, trouble)))));
        fill(work, h("ul", {}, ...doing(status).map((line) => h("li", {}, line))));
        fill(volumes, status.volumes.length ? table("Volumes", ["Volume", "Health", "Space", "#Prevented", "#Slipped", "#Mended", "#Excess at scan", "Now"], status.volumes.map(row))
          : empty("No volume can be looked after.", "Longrun works on ext4, XFS and btrfs that are mounted read-write."));
      },
      end: () => clearInterval(timer),
    };
  },
};
