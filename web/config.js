//! The configuration file of the service, read and changed as a whole. Owns which sections there are, and how a change is told.

import { confirmed, say } from "./dom.js";
import { getState, put, Refusal } from "./transport.js";

/** @typedef {import("./types").ConfigFile} ConfigFile @typedef {import("./types").ConfigValue} ConfigValue @typedef {import("./types").ConfigChange} ConfigChange */

/** The sections that can be changed: those of the file, and one for each volume that has none. @param {ConfigFile} file
 * @returns {[string, string][]} */
export function sections(file) {
  const named = file.sections.map((one) => one.section).filter((name) => name.includes("="));
  const missing = file.volumes.filter(({ id, mount }) => !named.includes(`mount=${mount}`) && !named.includes(`uuid=${id}`)).map(({ mount }) => `mount=${mount}`);
  return [["defaults", "all volumes"], .../** @type {[string, string][]} */ ([...new Set([...named, ...missing])].map((name) => [name, `only ${name.replace("=", " ")}`]))];
}

/** What a section of the file says of a key; of several for one volume the last counts. @param {ConfigFile} file @param {string} section @param {string} key
 * @returns {ConfigValue | undefined} */
export const said = (file, section, key) => file.sections.filter((one) => one.section === section && key in one.values).at(-1)?.values[key];

/** What holds where a section says nothing. @param {ConfigFile} file @param {string} section @param {import("./types").ConfigKey} key */
export const otherwise = (file, section, key) => (section.includes("=") ? said(file, "defaults", key.key) ?? key.default : key.default);

/** @param {ConfigValue | null | undefined} value */
export const shown = (value) => (Array.isArray(value) ? value.join("\n") : String(value ?? ""));

/** The file, as a page has it: read once, and again after each change. */
export class Config {
  constructor() {
    /** @type {ConfigFile | null} */
    this.file = null;
    this.state = "";
  }

  async read() {
    [this.file, this.state] = await getState("/v1/config");
    return this.file;
  }

  /** Asks, and changes the file. True when it has been changed. @param {ConfigChange[]} changes @param {Element} told where it is told */
  async change(changes, told) {
    const list = changes.map(({ key, value }) => (value === null ? `${key}: as by default` : `${key} = ${shown(value).replaceAll("\n", ", ") || "nothing"}`));
    if (!changes.length) say(told, "Nothing is different.");
    if (!changes.length || !(await confirmed(`Change ${changes[0].section} in ${this.file?.path}? ${list.join("; ")}.`, "Change"))) return false;
    try {
      [this.file, this.state] = await put("/v1/config", { changes }, this.state);
      const keys = this.file?.service_keys.filter((one) => one.needs_restart && changes.some(({ key }) => key === one.key)) ?? [];
      say(told, `Written to ${this.file?.path}${keys.length ? "; restart the service to put it into effect" : this.file?.applied ? ", and in effect" : "; it takes effect soon"}.`);
      return true;
    } catch (problem) {
      const refusal = /** @type {Refusal} */ (problem);
      if (refusal.status === 412) await this.read();
      say(told, refusal.status === 412 ? "Another change of the file came first. What it says now is shown; repeat your change." : `Refused: ${refusal.message}${refusal.hint ? `; ${refusal.hint}` : ""}.`);
      return refusal.status === 412;
    }
  }
}
