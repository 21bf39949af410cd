//! The policy of a fleet: how far it is rolled out, its document, and for operators a new one. Never rolls out what was not checked.

import { confirmed, empty, fill, h, say } from "./dom.js";
import { post, Refusal } from "./transport.js";

/** @typedef {import("./types").FleetPolicy} FleetPolicy */

const EMPTY = 'name = ""\n\n[defaults]\n';

/** @param {unknown} problem */
function refused(problem) {
  const { message, hint } = /** @type {Refusal} */ (problem);
  return `Refused: ${message}${hint ? `; ${hint}` : ""}.`;
}

/** The editor of a document. @param {(told: string) => void} done what is to be done when something was changed */
function editor(done) {
  /** The version that the text began from, and that text. @type {[number | null, string] | null} */
  let base = null;
  /** @type {FleetPolicy | null} */
  let now = null;
  const text = h("textarea", { id: "policy-text", rows: 14, spellcheck: "false", class: "source" });
  const [note, found] = [h("div"), h("div", { role: "status" })];
  const canary = h("input", { size: 5, value: "10%" });
  const watch = h("input", { size: 6, value: "1h" });
  const patience = h("input", { size: 6, value: "5min" });
  const atOnce = h("input", { type: "checkbox" });
  function begin() {
    base = [now?.version ?? null, now?.document.source ?? EMPTY];
    text.value = base[1];
    fill(found);
    fill(note);
  }
  /** Moves the cursor to a line. @param {number} line from 1 */
  function show(line) {
    const start = text.value.split("\n").slice(0, line - 1).reduce((/** @type {number} */ sum, /** @type {string} */ one) => sum + one.length + 1, 0);
    const end = text.value.indexOf("\n", start);
    text.focus();
    text.setSelectionRange(start, end < 0 ? text.value.length : end);
  }
  /** Whether nothing is wrong with the text. */
  async function check() {
    try {
      const { problems, says } = await post("/fleet/v1/policy/check", { source: text.value });
      text.setAttribute("aria-invalid", String(problems.length > 0));
      fill(found, ...(problems.length ? [h("p", { class: "bad" }, "It cannot be rolled out:"),
        h("ul", {}, ...problems.map((/** @type {{line: number, what: string}} */ one) => h("li", {}, h("button", { onclick: () => show(one.line) }, `Line ${one.line}`), ` ${one.what}`)))]
        : [h("p", { class: "good" }, "Nothing is wrong with it. It says:"), h("pre", { tabindex: "0", role: "region", "aria-label": "What the new document says" }, says)]));
      return problems.length === 0;
    } catch (problem) {
      fill(found, h("p", { class: "bad" }, refused(problem)));
      return false;
    }
  }
  async function rollOut() {
    if (!(await check()) || !base) return;
    const trial = `${canary.value} of the hosts try it for ${watch.value}; a new alert on one of them takes it back.`;
    if (!(await confirmed(`Roll this policy out? ${atOnce.checked ? "All hosts take it at once, without a trial." : trial}`, "Roll out"))) return;
    const trialAsked = { canary: canary.value, watch: watch.value, patience: patience.value };
    try {
      const answer = await post("/fleet/v1/policy", { source: text.value, replaces: base[0], all_at_once: atOnce.checked, ...(atOnce.checked ? {} : { trial: trialAsked }) }, "PUT");
      base = null;
      fill(found);
      done(`Done: ${answer.accepted}.`);
    } catch (problem) {
      fill(found, h("p", { class: "bad" }, refused(problem)));
    }
  }
  const root = h("div", {}, h("h3", {}, "A new document"), note, h("label", { for: "policy-text" }, "Text"), text, h("div", { class: "bar" }, h("button", { onclick: check }, "Check")), found,
    h("div", { class: "bar" }, h("label", {}, "Tried first by ", canary), h("label", {}, "for ", watch), h("label", {}, "patience ", patience), h("label", {}, atOnce, " without a trial"),
      h("button", { class: "main", onclick: rollOut }, "Roll out …")));
  return {
    root,
    /** @param {FleetPolicy | null} policy */
    update(policy) {
      now = policy;
      const version = policy?.version ?? null;
      if (!base || (base[0] !== version && text.value === base[1])) begin();
      // What was written stays; whether it still replaces the right version is for the administrator to say.
      else if (base[0] !== version) {
        fill(note, h("p", { class: "alert" }, `The policy is version ${version ?? "none"} now, and this text began from version ${base[0] ?? "none"}. `, h("button", { onclick: begin }, "Begin again")));
      }
    },
  };
}

/** @param {() => unknown} changed called after a change */
export function policy(changed) {
  const [standing, told, acts, source, change] = [h("div"), h("p", { role: "status" }), h("div"), h("div"), h("div")];
  const edit = editor((text) => { say(told, text); changed(); });
  /** @param {string} question @param {string} verb @param {string} path @param {unknown} body */
  async function act(question, verb, path, body) {
    if (!(await confirmed(question, verb))) return;
    try {
      say(told, `Done: ${(await post(path, body)).accepted}.`);
    } catch (problem) {
      say(told, refused(problem));
    }
    changed();
  }
  /** @param {FleetPolicy} one @param {number | null} watching */
  function buttons({ version, previous, stage }, watching) {
    const reason = h("input", { size: 24, placeholder: "by an administrator" });
    const to = previous === null ? "no policy" : `version ${previous}`;
    return h("div", { class: "bar" },
      stage === "canary" && watching !== version && h("button", { class: "main", onclick: () => act(
        `Go on with the trial of version ${version}? This is for one that was interrupted: nothing here watches it.`, "Go on", "/fleet/v1/policy/resume", { version }) }, "Go on with the trial …"),
      stage !== "stopped" && h("label", {}, "Reason ", reason),
      stage !== "stopped" && h("button", { onclick: () => act(`Take version ${version} back? All hosts return to ${to}.`, "Take back", "/fleet/v1/policy/rollback",
        { version, ...(reason.value.trim() && { reason: reason.value.trim() }) }) }, `Take version ${version} back …`));
  }
  let drawn = "";
  return {
    root: h("div", {}, standing, told, acts, source, change),
    /** @param {{policy: FleetPolicy | null, session: import("./types").FleetSession}} now */
    update({ policy: shown, session: { role, watching } }) {
      const operator = role === "operator";
      edit.update(shown);
      const now = JSON.stringify([shown, operator, watching]);
      // What has not changed is not drawn again: what is being written stays.
      if (now === drawn) return;
      drawn = now;
      fill(standing, shown ? h("p", { class: shown.stage === "stopped" ? "bad" : null }, shown.says) : empty("No policy is rolled out: each host has its own configuration."),
        shown?.stage === "canary" && h("p", { class: "quiet" }, watching === shown.version ? "Its canaries are watched from here." : "Nothing here watches its canaries: the command that began it may."));
      fill(acts, shown && operator && buttons(shown, watching));
      fill(source, ...(shown ? [h("h3", {}, `Version ${shown.version}`), h("pre", { tabindex: "0", role: "region", "aria-label": `The document of version ${shown.version}` }, shown.document.source),
        h("details", {}, h("summary", {}, "What it says"), h("pre", { tabindex: "0", role: "region", "aria-label": "What it says" }, shown.document.says))] : []));
      fill(change, operator ? edit.root : h("p", { class: "quiet" }, "Viewers see the policy, and change nothing."));
    },
  };
}
