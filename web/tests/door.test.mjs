// longrun-web without a browser: who is let in, what is passed on, and what the service lets each role do.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { ask, Machine, sessionOf } from "./machine.mjs";

const DOCUMENT = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8"));
/** Each route and method of the document, on a volume that exists. */
const routes = (id) => Object.entries(DOCUMENT.paths).flatMap(([path, methods]) => Object.keys(methods).map((method) => [method.toUpperCase(), path.replace("{id}", id)]));

/** @type {Machine} */
let machine;
before(async () => { machine = await Machine.start(); });
after(() => machine?.end());

/** A session of a longrun-web: requests as the console's own pages send them. */
async function enter(web) {
  const headers = { host: web.link.host, origin: web.origin, ...await sessionOf(web) };
  return (method, path, more = {}) => ask(web.link, method, path, { ...more, headers: { ...headers, ...more.headers } });
}

test("a link opens one session, once", async () => {
  const web = await machine.startWeb("viewer");
  const headers = { host: web.link.host };
  for (const path of ["/v1/status", "/v1/../etc/passwd", "/v1/session", "/fleet/v1/session"]) {
    assert.equal((await ask(web.link, "GET", path, { headers })).status, 401, path);
  }
  const own = { ...headers, origin: web.origin };
  for (const body of ["", "0000", "x".repeat(100000)]) assert.equal((await ask(web.link, "POST", "/session", { headers: own, body })).status, 401, body);
  const body = web.link.searchParams.get("token");
  for (const foreign of [{ ...own, origin: "http://localhost:1" }, { ...own, "sec-fetch-site": "same-site" }, headers]) {
    assert.equal((await ask(web.link, "POST", "/session", { headers: foreign, body })).status, 403, JSON.stringify(foreign));
  }
  assert.equal((await ask(web.link, "GET", "/session", { headers: own })).status, 405);
  const session = await enter(web);
  assert.equal((await session("GET", "/v1/status")).status, 200);
  assert.equal((await ask(web.link, "POST", "/session", { headers: own, body })).status, 401, "used");
  const next = await web.next();
  assert.notEqual(next.search, web.link.search);
  assert.equal((await ask(web.link, "GET", "/v1/status", { headers: { ...headers, "longrun-session": "0".repeat(64) } })).status, 401);
});

// Cookies reach every port of a host: another user of this machine could have had the session.
test("no cookie is set, and none opens the console", async () => {
  const web = await machine.startWeb("viewer");
  const own = { host: web.link.host, ...await sessionOf(web) };
  for (const path of ["/", "/app.js", "/v1/status", "/nothing"]) assert.equal((await ask(web.link, "GET", path, { headers: own })).headers["set-cookie"], undefined, path);
  const headers = { host: web.link.host, cookie: `longrun-session=${own["longrun-session"]}` };
  assert.equal((await ask(web.link, "GET", "/v1/status", { headers })).status, 401);
});

// One local user could hold all connections for minutes.
test("connections without a session keep nobody out", async () => {
  const web = await machine.startWeb("viewer");
  const session = await enter(web);
  const one = `GET /v1/status HTTP/1.1\r\nhost: ${web.link.host}\r\n\r\n`;
  const strangers = await Promise.all(Array.from({ length: 64 }, () => new Promise((resolve) => {
    const stranger = connect(Number(web.link.port), "127.0.0.1");
    for (const event of ["data", "close"]) stranger.once(event, () => resolve(stranger));
    stranger.on("error", () => {});
    stranger.write(one);
  })));
  // None of them is ever idle long enough to be closed for that.
  const busy = setInterval(() => strangers.forEach((stranger) => stranger.write(one)), 1000);
  try {
    for (let turn = 0; turn < 3; turn += 1) assert.equal((await session("GET", "/v1/status")).status, 200);
  } finally {
    clearInterval(busy);
    strangers.forEach((stranger) => stranger.destroy());
  }
});

test("foreign hosts and origins are refused, with a session too", async () => {
  const session = await enter(await machine.startWeb("operator"));
  for (const headers of [{ host: "evil.example" }, { host: "127.0.0.1.evil.example" }, { origin: "http://evil.example" }, { origin: "null" },
    { origin: "http://localhost:1" }, { "sec-fetch-site": "cross-site" }, { "sec-fetch-site": "same-site" }]) {
    assert.equal((await session("GET", "/v1/status", { headers })).status, 403, JSON.stringify(headers));
    assert.equal((await session("POST", "/v1/reload", { headers })).status, 403, JSON.stringify(headers));
  }
  assert.equal((await session("POST", "/v1/reload")).status, 202);
});

test("every answer binds the browser by a strict policy", async () => {
  const session = await enter(await machine.startWeb("viewer"));
  for (const path of ["/", "/app.js", "/v1/status", "/nothing", "/map.js"]) {
    const { headers } = await session("GET", path);
    assert.match(headers["content-security-policy"], /^default-src 'none'; script-src 'self'; style-src 'self';.* frame-ancestors 'none'$/, path);
    assert.doesNotMatch(headers["content-security-policy"], /unsafe|\*|data:|blob:/);
    assert.equal(headers["x-content-type-options"], "nosniff");
    assert.equal(headers["referrer-policy"], "no-referrer");
  }
});

test("only the console's files and the API are reached", async () => {
  const session = await enter(await machine.startWeb("operator"));
  for (const path of ["/../../Cargo.toml", "/%2e%2e/%2e%2e/etc/passwd", "/tests/../../etc/passwd", "//etc/passwd", "/metrics", "/v1", "/tests/machine.mjs", "/types.d.ts", "/session/x"]) {
    assert.equal((await session("GET", path)).status, 404, path);
  }
  assert.equal((await session("GET", "/v1/../etc/passwd")).status, 404);
  assert.equal((await session("POST", "/app.js")).status, 405);
  assert.equal((await session("PATCH", "/v1/reload")).status, 405);
});

test("bodies that are too long are refused by both", async () => {
  const session = await enter(await machine.startWeb("operator"));
  const body = "x".repeat((64 << 10) + 1);
  assert.equal((await session("POST", "/v1/reload", { body })).status, 413);
  assert.equal((await ask(machine.socket, "POST", "/v1/reload", { headers: { host: "x" }, body })).status, 413);
});

test("a body that no route reads leaves the connection usable", async () => {
  const body = "y".repeat(60000);
  const one = `POST /v1/nothing HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const connection = connect(machine.socket);
  let answers = "";
  connection.on("data", (part) => { answers += part; });
  for (let number = 1; number <= 20; number += 1) {
    connection.write(one);
    await machine.until(() => (answers.match(/HTTP\/1\.1 404/g) ?? []).length === number);
  }
  connection.destroy();
});

test("operators may use every route, viewers no one that changes, strangers none", async () => {
  const [operator, viewer, stranger] = [await enter(await machine.startWeb("operator")), await enter(await machine.startWeb("viewer")), await enter(await machine.startWeb("stranger"))];
  const each = routes(machine.volume.id).filter(([, path]) => path.startsWith("/v1/") && path !== "/v1/openapi.json" && path !== "/v1/session");
  assert.ok(each.filter(([method]) => method !== "GET").length >= 4, "routes that change");
  for (const [method, path] of each) {
    const name = `${method} ${path}`;
    // What is missing in a request is told only to who may ask.
    assert.equal((await stranger(method, path)).status, 403, name);
    const seen = (await viewer(method, path)).status;
    if (method === "GET") assert.notEqual(seen, 403, name);
    else assert.equal(seen, 403, name);
    assert.notEqual((await operator(method, path)).status, 403, name);
  }
  assert.deepEqual([(await operator("GET", "/v1/session")).json.role, (await viewer("GET", "/v1/session")).json.role, (await stranger("GET", "/v1/session")).json.role],
    ["operator", "viewer", "stranger"]);
  await operator("POST", "/v1/resume");
});

test("read-only gives up the permission to change", async () => {
  const session = await enter(await machine.startWeb("operator", "--read-only"));
  assert.equal((await session("GET", "/v1/session")).json.role, "viewer");
  for (const [method, path] of routes(machine.volume.id).filter(([method]) => method !== "GET")) {
    assert.equal((await session(method, path)).status, 403, path);
  }
  // The service itself refuses, too, whoever forgets to.
  const lowered = await ask(machine.socket, "POST", "/v1/reload", { headers: { host: "x", "longrun-role": "viewer" } });
  assert.equal(lowered.status, 403);
});

test("pauses are checked, told and ended", async () => {
  const session = await enter(await machine.startWeb("operator"));
  const status = async () => (await session("GET", "/v1/status")).json;
  for (const body of ["{", "[]x", '{"minutes":0}', '{"minutes":10081}', '{"minutes":-1}', '{"minutes":"1"}']) {
    assert.equal((await session("POST", "/v1/pause", { body })).status, 400, body);
  }
  assert.equal((await status()).mending.paused, false);
  assert.equal((await session("POST", "/v1/pause", { body: '{"minutes":60}' })).status, 202);
  const paused = await status();
  const volume = paused.volumes.find((one) => one.id === machine.volume.id);
  assert.ok(paused.mending.paused && Date.parse(paused.mending.paused_until) > Date.now());
  assert.deepEqual([volume.mending_rests, volume.governor.waits_for], ["an operator has paused it", "request"]);
  assert.equal((await session("POST", "/v1/pause")).status, 202);
  assert.equal((await status()).mending.paused_until, null);
  assert.equal((await session("POST", "/v1/resume")).status, 202);
  const resumed = await status();
  assert.ok(!resumed.mending.paused && resumed.volumes.every((one) => one.mending_rests === null));
});

test("metrics are served over TCP without a session, and nothing else is", async () => {
  const web = await machine.startWeb("viewer", "--metrics", "127.0.0.1:0");
  const headers = { host: "metrics.example:9817" };
  const figures = await ask(web.metrics, "GET", "/metrics", { headers });
  assert.equal(figures.status, 200);
  assert.match(figures.text, /longrun_healthy/);
  for (const path of ["/", "/v1/status", "/metrics/", "/app.js"]) assert.equal((await ask(web.metrics, "GET", path, { headers })).status, 404, path);
  assert.equal((await ask(web.metrics, "POST", "/metrics", { headers })).status, 405);
});

test("longrun-web does not listen beyond this machine, nor run as root", () => {
  const run = (...words) => {
    try {
      execFileSync(words[0], words.slice(1), { stdio: "pipe", timeout: 10000 });
      return "it ran";
    } catch (error) {
      return String(error.stderr);
    }
  };
  assert.match(run("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", process.env.LONGRUN_WEB, "--listen", "0.0.0.0:0"), /not a loopback address/);
  assert.match(run(process.env.LONGRUN_WEB), /must not run as root/);
});
