//! Control: what an operator can have the service do. Shows to others what they may not, and why.

import { choice, confirmed, empty, fill, h, say, table } from "./dom.js";
import { jobs, starter } from "./jobs.js";
import { post, Refusal } from "./transport.js";
import { ago, time } from "./units.js";

/** @type {[string, string][]} */
const LENGTHS = [["60", "1 hour"], ["240", "4 hours"], ["480", "8 hours"], ["1440", "1 day"], ["", "until resumed"]];

/** @type {import("./types").Page} */
export const control = {
  name: "control",
  title: "Control",
  show(root, { role }) {
    if (role !== "operator") {
      root.append(empty("You may see everything here, and change nothing.",
        "Operators are root and the members of the group that [service] group names in /etc/longrun/longrun.toml."));
      return {};
    }
    const said = h("p", { role: "status" });
    /** @param {string} question @param {string} verb @param {string} path @param {unknown} [body] */
    async function act(question, verb, path, body) {
      if (!(await confirmed(question, verb))) return;
      try {
        say(said, `Done: ${(await post(path, body)).accepted}.`);
      } catch (problem) {
        const refusal = /** @type {Refusal} */ (problem);
        say(said, `Refused: ${refusal.message}${refusal.hint ? `; ${refusal.hint}` : ""}.`);
      }
    }
    const mending = h("div");
    const volumes = h("div");
    let minutes = "60";
    const pause = h("div", { class: "bar" },
      choice("For", LENGTHS, minutes, (value) => { minutes = value; }),
      h("button", { onclick: () => act(
        "Pause mending and scheduled scans on all volumes? The file that is being mended is finished first. Prevention goes on.",
        "Pause", "/v1/pause", minutes ? { minutes: Number(minutes) } : {}) }, "Pause mending"));
    const resume = h("div", { class: "bar" },
      h("button", { class: "main", onclick: () => act("Resume mending and scheduled scans?", "Resume", "/v1/resume") }, "Resume mending"));
    const start = starter();
    const list = jobs(true, start.seen);
    root.append(said, h("h2", {}, "Start a pass"), start.root, h("h2", {}, "Passes"), list.root, h("h2", {}, "Mending"), mending, pause, resume, h("h2", {}, "Scans"),
      h("p", {}, "A scan reads the structures of the whole volume. It gives way to other I/O, and changes nothing."), volumes,
      h("h2", {}, "Configuration"), h("p", {}, "The service reads its file again. If the file is wrong, the earlier configuration stays in effect, and the overview says so."),
      h("div", { class: "bar" }, h("button", { onclick: () => act("Read the configuration file again?", "Reload", "/v1/reload") }, "Reload configuration")));
    let drawn = "";
    return {
      update({ status }) {
        if (!status) return;
        start.update(status);
        const { paused, paused_until: until } = status.mending;
        const shown = JSON.stringify([paused, until, status.volumes.map((one) => [one.id, one.enabled, one.scan?.at])]);
        if (shown === drawn) return;
        drawn = shown;
        fill(mending, h("p", {}, paused ? `Paused ${until ? `until ${time(until)}` : "until it is resumed"}.` : "Mending goes on by the configuration."));
        pause.hidden = paused;
        resume.hidden = !paused;
        const enabled = status.volumes.filter((one) => one.enabled);
        fill(volumes, enabled.length ? table("Scans", ["Volume", "Last scan", "Scan"], enabled.map((one) => [one.mount, one.scan ? ago(one.scan.at) : "none yet",
          h("button", { "aria-label": `Scan now: ${one.mount}`, onclick: () => act(`Scan ${one.mount} now?`, "Scan", `/v1/volumes/${encodeURIComponent(one.id)}/analyze`) }, "Scan now")]))
          : empty("No volume is enabled.", "See enabled in the settings."));
      },
      end: list.end,
    };
  },
};
