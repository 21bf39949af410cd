//! Passes of whole volumes: the dry run first, then the question, then how far the pass is, and its end. Owns the list of jobs.

import { choice, confirmed, empty, fill, h, say, table } from "./dom.js";
import { get, post } from "./transport.js";
import { ago, bytes, counted, duration, percent, sizeOf } from "./units.js";

/** @typedef {import("./types").Job} Job @typedef {import("./types").JobRequest} JobRequest */

const EVERY_MS = 1000;
const SHOWN = 20;
const ended = (/** @type {Job} */ job) => ["finished", "failed", "cancelled"].includes(job.state);
/** @type {Record<string, string>} */
const TASKS = { analyze: "Analyze", optimize: "Optimize", reclaim: "Reclaim" };

/** What a job did to the figures, or would do. @param {Job} job */
function effect({ before, after, dry_run }) {
  if (!before) return "–";
  const of = (/** @type {import("./types").JobFigures} */ one) => [counted(one.excess, "excess fragment"), one.free_pieces === null ? null : counted(one.free_pieces, "free piece"),
    one.largest_free_bytes === null ? null : `largest ${bytes(one.largest_free_bytes)}`].filter(Boolean).join(", ");
  return after ? h("span", {}, of(before), h("br"), `→ ${of(after)}${dry_run ? " (foreseen)" : ""}`) : of(before);
}

/** @param {Job} job */
function standing(job) {
  const { fraction, phase, eta_seconds: eta } = job.progress;
  if (ended(job)) return h("span", { class: job.state === "failed" ? "bad" : null }, job.state, h("br"), h("small", {}, job.summary ?? job.reason));
  return h("span", {}, `${job.state}${phase ? `: ${phase}` : ""}`, h("br"), h("meter", { min: 0, max: 1, value: fraction, "aria-label": `${percent(fraction, 1)} done` }),
    h("br"), h("small", {}, [percent(fraction, 1), eta === null ? null : `${duration(eta)} left`, job.reason].filter(Boolean).join(", ")));
}

/** The list of jobs, with a button to cancel for who may. @param {boolean} operator @param {(jobs: Job[]) => void} [seen] */
export function jobs(operator, seen) {
  const [list, told] = [h("div"), h("p", { role: "status" })];
  let [drawn, over] = ["", false];
  async function cancel(/** @type {Job} */ job) {
    if (!(await confirmed(`Cancel job ${job.id} on ${job.mount}? What it has done stays done.`, "Cancel the job"))) return;
    await post(`/v1/jobs/${job.id}`, undefined, "DELETE").catch((problem) => say(told, `Refused: ${problem.message}.`));
  }
  async function poll() {
    try {
      /** @type {Job[]} */
      const all = await get("/v1/jobs");
      const now = JSON.stringify(all);
      if (now !== drawn && !over) {
        drawn = now;
        const latest = [...all].sort((a, b) => b.id - a.id).slice(0, SHOWN);
        fill(list, latest.length ? table("Passes", ["Job", "State", "Effect", "#Moved", "Begun", ...(operator ? ["Act"] : [])], latest.map((job) => [
          h("span", {}, h("strong", {}, `${job.id}: ${TASKS[job.task] ?? job.task}${job.dry_run ? ", dry run" : ""}`), h("br"), h("small", {}, `${job.mount}, ${job.mode}, ${job.by}`)),
          standing(job), effect(job), bytes(job.moved_bytes), ago(job.started ?? job.created),
          ...(operator ? [ended(job) ? "–" : h("button", { "aria-label": `Cancel job ${job.id}`, onclick: () => cancel(job) }, "Cancel")] : [])]))
          : empty("No pass has been started."));
      }
      seen?.(all);
    } catch { /* the banner tells */ }
    if (!over) timer = setTimeout(poll, EVERY_MS);
  }
  let timer = setTimeout(poll, 0);
  return { root: h("div", {}, told, list), end: () => { over = true; clearTimeout(timer); } };
}

/** The form that starts a pass: a dry run, and what it foresees, before anything is changed. */
export function starter() {
  /** @type {[string, string][]} */
  let volumes = [];
  let known = "";
  const wanted = { volume: "", task: "optimize", mode: "auto", deadline: "" };
  const [where, told, foreseen] = [h("span"), h("p", { role: "status" }), h("div", { "aria-live": "polite" })];
  const budget = h("input", { size: 8, placeholder: "no limit" });
  const consolidate = h("input", { type: "checkbox" });
  /** The dry run that is waited for, and what was asked for. @type {[number, JobRequest] | null} */
  let asked = null;
  /** @returns {JobRequest | null} */
  function request() {
    const limit = budget.value.trim() ? sizeOf(budget.value) : null;
    if (budget.value.trim() && !limit) return say(told, "The budget must be a size such as 20GiB."), null;
    return { ...wanted, dry_run: true, consolidate: wanted.task === "reclaim" && consolidate.checked, budget: wanted.task === "optimize" ? limit : null,
      deadline: wanted.deadline ? Number(wanted.deadline) : null };
  }
  async function begin(/** @type {JobRequest} */ body) {
    fill(foreseen);
    try {
      const job = /** @type {Job} */ (await post("/v1/jobs", body));
      say(told, `Job ${job.id} has been accepted.`);
      asked = body.dry_run ? [job.id, body] : null;
    } catch (problem) {
      const { message, hint } = /** @type {import("./transport.js").Refusal} */ (problem);
      say(told, `Refused: ${message}${hint ? `; ${hint}` : ""}.`);
    }
  }
  const first = h("button", { class: "main" }, "Show what it would do");
  const more = h("span", { class: "bar" });
  function options() {
    first.textContent = wanted.task === "analyze" ? "Analyze" : "Show what it would do";
    fill(more, wanted.task === "optimize" && choice("Mode", [["auto", "what gains enough"], ["efficient", "efficient"], ["full", "full"], ["files", "files only"]], wanted.mode, (mode) => { wanted.mode = mode; }),
      wanted.task === "optimize" && h("label", {}, "Budget ", budget), wanted.task === "reclaim" && h("label", {}, consolidate, " consolidate the free space first"));
  }
  options();
  const form = h("form", { class: "bar", onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    const body = request();
    if (body) begin(wanted.task === "analyze" ? { ...body, dry_run: false } : body);
  } }, where, choice("Task", [["optimize", "Optimize"], ["reclaim", "Give free space back"], ["analyze", "Analyze"]], wanted.task, (task) => { wanted.task = task; options(); }), more,
  choice("Ends after", [["", "its work"], ["3600", "1 hour"], ["14400", "4 hours"], ["28800", "8 hours"]], wanted.deadline, (seconds) => { wanted.deadline = seconds; }), first);
  return {
    root: h("div", {}, form, told, foreseen),
    /** @param {import("./types").Status} status */
    update(status) {
      volumes = status.volumes.filter((one) => one.enabled).map((one) => [one.id, one.mount]);
      if (String(volumes) === known) return;
      known = String(volumes);
      if (!volumes.some(([id]) => id === wanted.volume)) wanted.volume = volumes[0]?.[0] ?? "";
      first.disabled = !volumes.length;
      fill(where, choice("Volume", volumes, wanted.volume, (id) => { wanted.volume = id; }));
    },
    /** @param {Job[]} all */
    seen(all) {
      const job = asked && all.find((one) => one.id === asked?.[0]);
      if (!asked || !job || !ended(job)) return;
      const body = asked[1];
      asked = null;
      if (job.state !== "finished") return say(told, `The dry run ${job.state}: ${job.reason ?? job.summary ?? ""}`);
      say(told, "");
      const what = `${TASKS[job.task]} ${job.mount}`;
      fill(foreseen, h("div", { class: "tile" }, h("h3", {}, `${what}: what it would do`), h("p", {}, effect(job)), job.summary && h("p", {}, job.summary),
        h("div", { class: "bar" }, h("button", { class: "main", onclick: async () => {
          if (await confirmed(`${what}? ${job.summary ?? ""} It gives way to other I/O, and can be cancelled at any time; what is done stays done.`, "Start")) begin({ ...body, dry_run: false });
        } }, "Start this pass …"), h("button", { onclick: () => fill(foreseen) }, "Not now"))));
    },
  };
}
