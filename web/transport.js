//! The way to the service and to a fleet's console: through longrun-web, or through Cockpit. Owns what differs between the two, and nothing else.

/** Who answers what is below a path: the socket, and how it is started. @type {[string, string, string][]} */
const SOCKETS = [["/fleet/", "/run/longrun-fleet/console.sock", "systemctl start longrun-fleet-console"], ["/", "/run/longrun/longrun.sock", "systemctl start longrun"]];
const PATIENCE_MS = 35000;

/** An answer that says no, or none at all. */
export class Refusal extends Error {
  /** @param {number} status 0 when there was no answer @param {string} error @param {string} hint */
  constructor(status, error, hint) {
    super(error);
    this.status = status;
    this.hint = hint;
  }
}

/** @typedef {{status: number, bytes: Uint8Array, header: (name: string) => string | null}} Answer */

/** @returns {any} */
const cockpit = () => /** @type {any} */ (globalThis).cockpit;

/** Cockpit serves its pages below /cockpit/. */
const inCockpit = location.pathname.startsWith("/cockpit");

/** Where the secret of the session is kept: for this origin alone, its port included. Cookies are sent to every port of a host. */
const SESSION = "longrun-session";
/** The same where the browser keeps nothing for pages: until the page is left. @type {string | null} */
let secret = null;

function session() {
  try {
    return localStorage.getItem(SESSION) ?? secret;
  } catch {
    return secret;
  }
}

/** Begins a session with the token of the link, if there is one. */
async function enter() {
  const token = new URLSearchParams(location.search).get("token");
  if (token === null) return;
  history.replaceState(null, "", location.pathname + location.hash);
  const answer = await byFetch("POST", "/session", token, {});
  // A link that was used before leaves the session that there is.
  if (answer.status !== 200) return;
  const known = read(answer).session;
  secret = known;
  try {
    localStorage.setItem(SESSION, known);
  } catch { /* it lasts as long as the page */ }
}

/** Loads what the place where the page runs needs. */
export async function prepare() {
  if (!inCockpit) return enter();
  await new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "../base1/cockpit.js";
    script.onload = resolve;
    script.onerror = () => reject(new Refusal(0, "cockpit.js cannot be loaded", "reload the page"));
    document.head.append(script);
  });
  await cockpit().init?.();
}

/** @param {string} method @param {string} path @param {string | undefined} body @param {Record<string, string>} sent @returns {Promise<Answer>} */
async function byFetch(method, path, body, sent) {
  const known = session();
  const headers = { ...sent, ...(known && { [SESSION]: known }) };
  let answer;
  try {
    // Relative: a reverse proxy may serve the console below a path.
    answer = await fetch(path.slice(1), { method, body, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    throw new Refusal(0, "longrun-web does not answer", "start it again, and open the link that it prints");
  }
  return { status: answer.status, bytes: new Uint8Array(await answer.arrayBuffer()), header: (name) => answer.headers.get(name) };
}

/** @param {string} method @param {string} path @param {string | undefined} body @param {Record<string, string>} sent @returns {Promise<Answer>} */
function byCockpit(method, path, body, sent) {
  return new Promise((resolve, reject) => {
    let status = 0;
    /** @type {Record<string, string>} */
    let headers = {};
    const encoder = new TextEncoder();
    const [, socket, start] = SOCKETS.find(([below]) => path.startsWith(below)) ?? SOCKETS[1];
    const http = cockpit().http({ unix: socket, superuser: "try", binary: true });
    const done = (/** @type {unknown} */ data) => {
      const find = (/** @type {string} */ name) => Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1] ?? null;
      resolve({ status, bytes: data instanceof Uint8Array ? data : encoder.encode(String(data ?? "")), header: find });
    };
    http.request({ method, path, headers: sent, body: body === undefined ? "" : encoder.encode(body) })
      .response((/** @type {number} */ code, /** @type {Record<string, string>} */ got) => { status = code; headers = got; })
      .then(done, (/** @type {any} */ problem, /** @type {unknown} */ data) => {
        if (status) done(data);
        else reject(new Refusal(0, `nobody answers at ${socket}: ${problem?.message ?? problem}`, start));
      });
  });
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {string} [state] what is to be changed must be in this state
 * @returns {Promise<Answer>} */
async function ask(method, path, body, state) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const headers = { ...(text && { "content-type": "application/json" }), ...(state && { "if-match": state }) };
  const answer = await (inCockpit ? byCockpit : byFetch)(method, path, text, headers);
  if (answer.status >= 200 && answer.status < 300) return answer;
  if (answer.status === 401 && !inCockpit) location.replace("locked.html");
  let problem = { error: `status ${answer.status}`, hint: "" };
  try {
    problem = read(answer);
  } catch { /* the status has to do */ }
  throw new Refusal(answer.status, problem.error, problem.hint);
}

/** @param {Answer} answer @returns {any} */
const read = (answer) => JSON.parse(new TextDecoder().decode(answer.bytes));

/** @param {string} path @returns {Promise<any>} */
export const get = async (path) => read(await ask("GET", path));

/** @param {string} path */
export const getBytes = (path) => ask("GET", path);

/** @param {string} path @param {unknown} [body] @param {string} [method] @returns {Promise<any>} */
export const post = async (path, body, method = "POST") => read(await ask(method, path, body));

/** What is at a path, and the name of its state. @param {string} path @returns {Promise<[any, string]>} */
export async function getState(path) {
  const answer = await ask("GET", path);
  return [read(answer), answer.header("etag") ?? ""];
}

/** Changes what is in the given state. @param {string} path @param {unknown} body @param {string} state @returns {Promise<[any, string]>} */
export async function put(path, body, state) {
  const answer = await ask("PUT", path, body, state);
  return [read(answer), answer.header("etag") ?? ""];
}
