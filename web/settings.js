//! Settings: every key that the configuration file may have, as the service lists them.

import { Config, otherwise, said, sections, shown } from "./config.js";
import { choice, empty, fill, h } from "./dom.js";

/** @typedef {import("./types").ConfigKey} ConfigKey */

/** The element that changes a key, and what is in it. @param {ConfigKey} key @param {string} now @param {string} otherwise */
function control(key, now, otherwise) {
  const common = { id: `set-${key.key}`, "aria-describedby": `about-${key.key}`, disabled: !key.may_change };
  const words = key.kind === "boolean" ? ["true", "false"] : key.choices;
  if (words.length) {
    return h("select", common, h("option", { value: "" }, `as by default: ${otherwise}`), ...words.map((word) => h("option", { value: word, selected: word === now }, word)));
  }
  if (["texts", "windows"].includes(key.kind)) {
    const lines = h("textarea", { ...common, rows: 2, cols: 34, placeholder: otherwise || "one in a line" });
    lines.value = now;
    return lines;
  }
  const input = h("input", { ...common, size: 24, placeholder: otherwise, inputmode: key.kind === "number" ? "numeric" : null });
  input.value = now;
  return input;
}

/** A value from what was written. @param {ConfigKey} key @param {string} text @returns {import("./types").ConfigValue | null} */
export function valueOf(key, text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (key.kind === "boolean") return trimmed === "true";
  if (key.kind === "number" && /^\d+$/.test(trimmed)) return Number(trimmed);
  if (["texts", "windows"].includes(key.kind)) return trimmed.split("\n").map((line) => line.trim()).filter(Boolean);
  return trimmed;
}

/** @type {import("./types").Page} */
export const settings = {
  name: "settings",
  title: "Settings",
  show(root, { role }) {
    if (role === "guest") {
      root.append(empty("Settings name files.", "Viewers and operators see them."));
      return {};
    }
    const config = new Config();
    let section = "defaults";
    const [chooser, told, form, text] = [h("div", { class: "bar" }), h("p", { role: "status" }), h("form", { class: "settings" }), h("div")];
    root.append(chooser, told, form, text);
    /** @type {[ConfigKey, string, any][]} */
    let controls = [];
    function draw() {
      const { file } = config;
      if (!file) return;
      fill(chooser, choice("Settings of", [["service", "the service"], ...sections(file)], section, (name) => { section = name; draw(); }));
      controls = (section === "service" ? file.service_keys : file.volume_keys).map((key) => {
        const now = shown(said(file, section, key.key));
        return [key, now, control(key, now, shown(otherwise(file, section, key)).replaceAll("\n", ", "))];
      });
      fill(form, ...controls.map(([key, , element]) => h("div", { class: "setting" },
        h("label", { for: element.id }, key.key), element,
        h("small", { id: `about-${key.key}` }, `${key.meaning} `, h("span", { class: "quiet" }, `Allowed: ${key.allowed}.${key.needs_restart ? " Needs a restart." : ""}${role === "operator" && !key.may_change ? " Only root may change it." : ""}`)))),
      role === "operator" && h("button", { class: "main" }, "Save"));
      fill(text, h("h2", {}, "The file"), file.trouble && h("p", { class: "alert" }, file.trouble),
        file.exists ? h("pre", { tabindex: "0", role: "region", "aria-label": file.path }, file.text) : empty(`${file.path} does not exist: the defaults hold.`));
    }
    form.addEventListener("submit", async (/** @type {Event} */ event) => {
      event.preventDefault();
      const changes = controls.filter(([, now, element]) => element.value !== now).map(([key, , element]) => ({ section, key: key.key, value: valueOf(key, element.value) }));
      if (await config.change(changes, told)) draw();
    });
    config.read().then(draw, (problem) => fill(form, empty(`The configuration cannot be read: ${problem.message}.`, problem.hint)));
    return {};
  },
};
