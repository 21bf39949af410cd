//! Fleet: all hosts, who works on shared storage, what it was good for, and the policy. Owns how often the fleet's console is asked.

import { empty, fill, h, say, table } from "./dom.js";
import { policy } from "./fleet_policy.js";
import { get, Refusal } from "./transport.js";
import { ago, bytes, count, counted, duration, time } from "./units.js";

/** @typedef {import("./types").FleetHost} FleetHost @typedef {import("./types").FleetTotals} FleetTotals */

const EVERY_MS = 5000;
const HIDDEN_EVERY_MS = 30000;
/** Hosts tell their state once a minute, and there may be megabytes of it. */
const HOSTS_EVERY_MS = 20000;
/** More rows than this are not drawn: a filter finds the others. */
const SHOWN = 200;

/** @param {FleetTotals} sums */
const benefit = (sums) => sums.prevented + sums.mended + sums.by_passes;

/** What about a host needs attention. @param {FleetHost} one @returns {string[]} */
export function attention({ state, silent, enrolled, policy_wanted: wanted }) {
  const other = state && state.mode !== "off" && state.policy !== wanted;
  return [!state && "has told nothing yet", state && silent && "is silent", enrolled === false && "is not enrolled", ...(state?.troubles ?? []), state?.policy_trouble,
    other && !state.policy_trouble && `has policy ${state.policy ?? "none"}, not ${wanted ?? "none"}`].filter((text) => typeof text === "string");
}

/** @param {FleetHost} one */
function row(one) {
  const { host, state } = one;
  const [bad, labels] = [attention(one), Object.entries(state?.labels ?? {}).map(([label, value]) => `${label}=${value}`).join(", ")];
  return [
    h("span", {}, h("strong", {}, host), labels && h("br"), labels && h("small", {}, labels)),
    state?.version || "–",
    state ? h("span", { title: time(state.at * 1000), class: one.silent ? "bad" : null }, ago(new Date(state.at * 1000).toISOString())) : h("span", { class: "bad" }, "never"),
    state?.policy ?? "–",
    bad.length ? h("span", {}, ...bad.flatMap((text, at) => [at > 0 && h("br"), h("span", { class: "bad" }, text)])) : h("span", { class: "good" }, "none"),
    state ? count(state.volumes.reduce((sum, volume) => sum + (volume.excess_fragments ?? 0), 0)) : "–",
    state ? (benefit(state.month) ? count(benefit(state.month)) : "none") : "–",
    state?.activity ?? "–",
  ];
}

/** What is drawn again only when it has changed, and each minute for the times in it: a focus or a selection in it stays. @template T @param {(of: T) => any[]} draw */
function redrawn(draw) {
  const root = h("div");
  let drawn = "";
  return {
    root,
    update(/** @type {T} */ of) {
      const now = JSON.stringify([of, Math.floor(Date.now() / 60000)]);
      if (now !== drawn) fill(root, ...draw(of));
      drawn = now;
    },
  };
}

/** The hosts, with a filter: there may be thousands. */
function hosts() {
  const told = h("p");
  const list = redrawn((/** @type {FleetHost[]} */ first) => [first.length ? table("Hosts", ["Host", "Version", "Heard", "#Policy", "Alerts", "#Excess at scans", "#Benefit, 30 days", "Activity"], first.map(row))
    : all.length ? empty("No host is like that.") : empty("No host has told anything, and none is enrolled.", "`longrun fleet enroll` admits one.")]);
  const words = h("input", { size: 24, placeholder: "name or label=value" });
  const only = h("input", { type: "checkbox" });
  /** @type {FleetHost[]} */
  let all = [];
  function draw() {
    const wanted = words.value.trim().toLowerCase();
    const found = all.filter((one) => (!only.checked || attention(one).length)
      && [one.host, ...Object.entries(one.state?.labels ?? {}).map((pair) => pair.join("="))].some((text) => text.toLowerCase().includes(wanted)));
    const bad = (/** @type {FleetHost} */ one) => Number(attention(one).length > 0);
    // Those that need attention are first, and never among those that are left out because there are so many.
    const first = found.sort((a, b) => bad(b) - bad(a) || a.host.localeCompare(b.host)).slice(0, SHOWN);
    const [needy, silent] = [all.filter(bad).length, all.filter((one) => one.silent).length];
    const rest = found.length > first.length ? ` ${count(found.length - first.length)} more are found and not shown.` : "";
    say(told, `${counted(all.length, "host")}: ${needy === 1 ? "1 needs attention" : needy ? `${count(needy)} need attention` : "none needs attention"}, ${silent ? `${count(silent)} silent` : "none is silent"}.${rest}`);
    list.update(first);
  }
  for (const element of [words, only]) element.addEventListener("input", draw);
  return {
    root: h("div", {}, told, h("div", { class: "bar" }, h("label", {}, "Find ", words), h("label", {}, only, " only those that need attention")), list.root),
    update(/** @type {FleetHost[]} */ now) { all = now; draw(); },
  };
}

/** Groups, and who holds which slot until when. @param {[import("./types").FleetGroup[], (import("./types").FleetLease & {over: boolean})[]]} fleet */
function storage([groups, leases]) {
  if (!groups.length) return [empty("No storage group has limits or leases.", "`longrun fleet groups set` gives limits; hosts take leases of groups that they find.")];
  const held = (/** @type {string} */ group) => leases.filter((one) => one.group === group && one.held);
  /** @param {typeof leases[0]} one */
  function lease({ slot, host, until, over }) {
    return h("li", {}, h("strong", {}, host), ` (slot ${slot})`, until && h("br"),
      until && h("small", { class: over ? "bad" : null }, `${over ? "was not renewed in time: ended" : "if it is not renewed, until"} ${new Date(until).toLocaleTimeString()}`));
  }
  const today = Math.floor(Date.now() / 86400e3);
  return [table("Storage groups", ["Group", "#Slots", "Leases", "#Moved today", "#Bytes a day", "#Latency limit"], groups.map((one) => [
    one.group, one.slots ?? "by default", held(one.group).length ? h("ul", {}, ...held(one.group).map(lease)) : h("span", { class: "quiet" }, "nobody works there"),
    one.moved ? bytes(one.moved.day === today ? one.moved.bytes : 0) : "–", one.bytes_per_day === null || one.bytes_per_day === undefined ? "no limit" : bytes(one.bytes_per_day),
    one.latency_limit_us ? `${one.latency_limit_us / 1000} ms` : "none"]))];
}

/** @param {import("./types").FleetReport} report */
function sums({ hosts: number, day, month, all, without_benefit: without, unknown }) {
  const line = (/** @type {string} */ what, /** @type {(sums: FleetTotals) => string} */ of) => [what, of(day), of(month), of(all)];
  return [h("p", {}, `${counted(number, "host")} told their figures.`),
    table("Benefit", ["What", "#Last day", "#Last 30 days", "#All time"], [
      line("Excess fragments prevented", (one) => count(one.prevented)), line("Excess fragments mended", (one) => count(one.mended)),
      line("Excess fragments removed by passes", (one) => count(one.by_passes)), line("Device requests saved at most, each time all these files are read", (one) => count(one.requests_saved)),
      line("Time of the disks saved by that", (one) => duration(one.saved_us / 1e6)), line("Storage given back", (one) => bytes(one.reclaimed_bytes)),
      line("Moved for it", (one) => bytes(one.moved_bytes)), line("Unused preallocation given back", (one) => bytes(one.given_back_bytes))]),
    without.length > 0 && h("p", {}, `No benefit in 30 days: ${without.join(", ")}.`), unknown.length > 0 && h("p", {}, `Nothing is known of: ${unknown.join(", ")}.`)];
}

/** @type {import("./types").Page} */
export const fleet = {
  name: "fleet",
  title: "Fleet",
  alone: true,
  show(root) {
    const [standing, body] = [h("div", { role: "status" }), h("div", { hidden: true })];
    const [list, groups, benefits, rules] = [hosts(), redrawn(storage), redrawn(sums), policy(poll)];
    body.append(h("h2", {}, "Hosts"), list.root, h("h2", {}, "Shared storage"), groups.root, h("h2", {}, "Policy"), rules.root, h("h2", {}, "Benefit"), benefits.root);
    root.append(standing, body);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let said = "";
    /** Which asking is the latest: an earlier one, or one of a page that is gone, has nothing to say. */
    let turn = 0;
    /** What hosts told, the sums of it, and when they were asked for. @type {[FleetHost[], import("./types").FleetReport, number] | null} */
    let heard = null;
    /** Says how the broker stands; the same is not said twice. @param {string} text @param {string} look */
    function tell(text, look) {
      if (text !== said) fill(standing, h("p", { class: look }, text));
      said = text;
    }
    async function poll() {
      clearTimeout(timer);
      turn += 1;
      const mine = turn;
      try {
        const all = (/** @type {string[]} */ ...what) => Promise.all(what.map((one) => get(`/fleet/v1/${one}`)));
        const [leases, storageGroups, shown] = await all("leases", "groups", "policy");
        const began = Date.now();
        const [of, report] = heard && began - heard[2] < HOSTS_EVERY_MS ? heard : await all("hosts", "report");
        const session = await get("/fleet/v1/session");
        if (mine !== turn) return;
        if (of !== heard?.[0]) heard = [of, report, began];
        list.update(of);
        groups.update([storageGroups, leases.map((/** @type {import("./types").FleetLease} */ one) => ({ ...one, over: one.until !== null && Date.parse(one.until) < Date.now() }))]);
        benefits.update(report);
        rules.update({ session, policy: shown });
        body.hidden = false;
        tell(`The broker at ${session.server} answers.`, "fine");
      } catch (problem) {
        const text = await lost(problem instanceof Refusal ? problem : new Refusal(0, String(problem), "reload the page"));
        if (mine !== turn) return;
        tell(text, "alert");
      }
      timer = setTimeout(poll, document.hidden ? HIDDEN_EVERY_MS : EVERY_MS);
    }
    /** What is wrong, and since when. @param {Refusal} refusal */
    async function lost({ status, message, hint }) {
      const last = status === 503 ? (await get("/fleet/v1/session").catch(() => null))?.answered : null;
      const old = body.hidden ? "" : " What is shown below is from then.";
      return `${message}${last ? `. It answered last on ${time(last)}` : hint && `; ${hint}`}.${old}`;
    }
    poll();
    return { end() { turn += 1; clearTimeout(timer); } };
  },
};
