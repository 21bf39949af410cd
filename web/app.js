//! The frame of the console: pages, the state of the service each second, what is wrong with the connection.
//!
//! Data goes one way: the poller hands each new state to the page that is shown. A page never changes the state.

import { activity } from "./activity.js";
import { control } from "./control.js";
import { fill, h, say } from "./dom.js";
import { fleet } from "./fleet.js";
import { history } from "./history.js";
import { map } from "./map.js";
import { overview } from "./overview.js";
import { schedule } from "./schedule.js";
import { settings } from "./settings.js";
import { get, prepare, Refusal } from "./transport.js";

const EVERY_MS = 1000;
/** So many states are kept for the graphs: ten minutes. */
const KEPT = 600;

/** @type {import("./types").Page[]} */
const pages = [overview, map, activity, history, control, schedule, settings];

/** @type {import("./types").State} */
const state = { status: null, role: "stranger", past: [] };

const [nav, banner, main, who] = ["nav", "banner", "main", "who"].map((id) => /** @type {HTMLElement} */ (document.getElementById(id)));

/** @type {import("./types").Shown | null} */
let shown = null;
/** The page needs the service, and what is wrong with that is told. */
let needed = true;

function show() {
  const page = pages.find((one) => location.hash === `#${one.name}`) ?? overview;
  shown?.end?.();
  needed = !page.alone;
  document.title = `${page.title} – Longrun`;
  fill(nav, ...pages.map((one) => h("a", { href: `#${one.name}`, "aria-current": one === page ? "page" : null }, one.title)));
  const body = h("div");
  const heading = h("h1", { tabindex: "-1" }, page.title);
  fill(main, heading, body);
  shown = page.show(body, state);
  if (state.status) shown.update?.(state);
}

/** @param {unknown} problem */
function told(problem) {
  if (!problem || !needed) return fill(banner);
  const refusal = problem instanceof Refusal ? problem : new Refusal(0, String(problem), "reload the page");
  const text = `${refusal.message}${refusal.hint ? `: ${refusal.hint}` : ""}`;
  if (banner.textContent !== text) fill(banner, h("p", { class: "alert" }, text));
}

async function poll() {
  try {
    const status = await get("/v1/status");
    state.status = status;
    state.past.push({ at: Date.now() / 1000, status });
    if (state.past.length > KEPT) state.past.shift();
    told(null);
    shown?.update?.(state);
  } catch (problem) {
    told(problem);
  }
  setTimeout(poll, document.hidden ? 5 * EVERY_MS : EVERY_MS);
}

async function start() {
  try {
    await prepare();
    state.role = (await get("/v1/session")).role;
    say(who, state.role);
    who.title = "What you may do here: viewers read, operators change";
  } catch (problem) {
    told(problem);
  }
  addEventListener("hashchange", () => {
    if (location.hash === "#main") return main.focus();
    show();
    main.querySelector("h1")?.focus();
  });
  // Only where a fleet is shown: elsewhere it is not even named.
  if (await get("/fleet/v1/session").catch(() => null)) pages.push(fleet);
  show();
  await poll();
}

start();
