// The page of a fleet: a real nats-server, the agent of the machine of the tests, the fleet's console as a user without privilege, and
// longrun-web before it.
//
// LONGRUN_FLEET names the binary, beside those that machine.mjs needs.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { ask, Machine, sessionOf, OPERATORS, pause, VIEWERS } from "./machine.mjs";
import { faults, launch, shows, visit as enter } from "./visitor.mjs";

/** Runs the console of the fleet: neither root nor who runs longrun-web. */
const CLERK = "1";
const HOST = "db-1";
/** The term of leases in seconds: long enough that a page sees one before it ends. */
const TERM = "30";

/** @type {Machine} */
let machine;
let browser;
let nats;
let agent;
/** The address of nats-server. */
let server;
const socket = () => machine.path("run/console.sock");
const config = () => machine.path("office/fleet.toml");
const fleet = (...words) => execFileSync(process.env.LONGRUN_FLEET, ["--config", config(), ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
const got = async (what) => (await ask(socket(), "GET", `/fleet/v1/${what}`, { headers: { host: "x" } })).json;

const freePort = () => new Promise((resolve) => {
  const listener = createServer().listen(0, "127.0.0.1", () => {
    const { port } = /** @type {any} */ (listener.address());
    listener.close(() => resolve(port));
  });
});

/** Without waiting for its end: what a program says goes into the file of its name. */
function start(name, command, words) {
  const log = openSync(machine.path(`${name}.log`), "a");
  const child = machine.spawn(command, words, { stdio: ["ignore", log, log] });
  closeSync(log);
  return child;
}

function startBroker() {
  nats = start("nats", "nats-server", ["-c", machine.path("nats.conf")]);
}

before(async () => {
  machine = await Machine.start();
  const port = await freePort();
  server = `nats://127.0.0.1:${port}`;
  fleet("init", machine.path("office"), "--server", server);
  fleet("enroll", HOST, "--group", "san", "--label", "role=database");
  fleet("enroll", "silent-1");
  writeFileSync(machine.path("nats.conf"), `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${machine.path("store")}", max_mem: 0, max_file: 200M }\naccounts { include "office/accounts.conf" }\n`);
  startBroker();
  await machine.until(() => fleet("make-buckets") === "");
  fleet("groups", "set", "san", "--slots", "2", "--bytes-per-day", "1000000000");
  await machine.set("fleet", "rest", "service");
  await machine.set("storage_group", "san", `mount=${machine.mount}`);
  const bundle = machine.path(`office/hosts/${HOST}/fleet.toml`);
  const text = readFileSync(bundle, "utf8").replaceAll("/etc/longrun/", machine.path(`office/hosts/${HOST}/`));
  writeFileSync(bundle, `socket = "${machine.socket}"\n${text}`);
  agent = start("agent", process.env.LONGRUN_FLEET, ["--config", bundle, "agent", "--term", TERM]);
  execFileSync("chown", ["-R", CLERK, machine.path("office")]);
  execFileSync("install", ["-d", "-m", "755", "-o", CLERK, machine.path("run")]);
  start("console", "setpriv", ["--reuid", CLERK, "--regid", CLERK, "--clear-groups", process.env.LONGRUN_FLEET, "--config", config(), "console",
    "--socket", socket(), "--group", OPERATORS, "--viewers", VIEWERS]);
  await machine.until(async () => (await got("hosts"))?.some((one) => one.host === HOST && one.state?.mode === "rest"));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  // What is stopped cannot end.
  for (const child of [agent, nats]) if (child?.exitCode === null) child.kill("SIGCONT");
  await machine?.end();
});

async function visit(role, options = {}, words = []) {
  const visitor = await enter(machine, browser, role, options, ["--fleet-socket", socket(), ...words]);
  await visitor.go("fleet");
  return visitor;
}

test("the page is there only where a fleet is shown", async () => {
  const { page, complaints, close } = await enter(machine, browser, "viewer", {}, ["--fleet-socket", machine.path("nowhere.sock")]);
  await page.getByRole("link", { name: "Settings" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Fleet" }).count(), 0);
  assert.deepEqual(complaints, []);
  await close();
});

test("hosts, groups, benefit and policy are shown, accessible in light and dark and on 360 px", async () => {
  for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 360]]) {
    const { page, complaints, close } = await visit("viewer", { colorScheme, viewport: { width, height: 900 } });
    await page.getByText(`The broker at ${server} answers.`).waitFor();
    const hosts = page.getByRole("region", { name: "Hosts" });
    await shows(hosts.getByRole("row", { name: HOST }), /role=database.*0\.1\.0.*ago/);
    await shows(hosts.getByRole("row", { name: "silent-1" }), /never.*has told nothing yet/);
    await page.getByText(/2 hosts: 1 needs attention/).waitFor();
    await shows(page.getByRole("region", { name: "Storage groups" }).getByRole("row", { name: "san" }), /2.*954 MiB/);
    await page.getByText("No policy is rolled out").waitFor();
    await page.getByText("Nothing is known of: silent-1.").waitFor();
    await page.getByText("Viewers see the policy, and change nothing.").waitFor();
    assert.equal(await page.getByRole("button", { name: "Roll out" }).count(), 0);
    assert.deepEqual(await faults(page), [], `${colorScheme}, ${width} px`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `it is ${wide} px wide on a screen of ${width}`);
    assert.deepEqual(complaints, []);
    if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-fleet-${colorScheme}-${width}.png`, fullPage: true });
    await close();
  }
});

test("hosts are found by name, label and need of attention", async () => {
  const { page, close } = await visit("viewer");
  const rows = page.getByRole("region", { name: "Hosts" }).locator("tbody tr");
  await rows.first().waitFor();
  await page.getByLabel("Find").fill("role=data");
  assert.deepEqual(await rows.locator("th strong").allInnerTexts(), [HOST]);
  await page.getByLabel("Find").fill("");
  await page.getByLabel("only those that need attention").check();
  assert.deepEqual(await rows.locator("th strong").allInnerTexts(), ["silent-1"]);
  await page.getByLabel("Find").fill("nobody");
  await page.getByText("No host is like that.").waitFor();
  await close();
});

test("each role may what it may, through longrun-web and its protections", async () => {
  const body = JSON.stringify({ source: "[defaults]\n", replaces: null, all_at_once: true });
  for (const [role, words, reads, changes] of [["stranger", [], 403, 403], ["viewer", [], 200, 403], ["operator", ["--read-only"], 200, 403], ["operator", [], 200, 409]]) {
    const web = await machine.startWeb(role, "--fleet-socket", socket(), ...words);
    const headers = { host: web.link.host, origin: web.origin };
    assert.equal((await ask(web.link, "GET", "/fleet/v1/hosts", { headers })).status, 401, "no session");
    const own = { ...headers, ...await sessionOf(web) };
    const session = (method, path, more = {}, text) => ask(web.link, method, path, { headers: { ...own, ...more }, body: text });
    assert.equal((await session("GET", "/fleet/v1/hosts")).status, reads, `${role} ${words}`);
    // Another version than that which the sender has seen: whoever may is told so, and nothing happens.
    assert.equal((await session("PUT", "/fleet/v1/policy", {}, body.replace("null", "99"))).status, changes, `${role} ${words}`);
    const seen = (await session("GET", "/fleet/v1/session")).json;
    assert.deepEqual([seen.role, seen.server], [words.length ? "viewer" : role, role === "stranger" ? null : server]);
    for (const more of [{ origin: "http://evil.example" }, { host: "evil.example" }, { "sec-fetch-site": "cross-site" }]) {
      assert.equal((await session("PUT", "/fleet/v1/policy", more, body)).status, 403, JSON.stringify(more));
    }
    assert.equal((await session("PUT", "/fleet/v1/policy", {}, "x".repeat((256 << 10) + 1))).status, words.length ? 403 : 413);
    assert.equal((await session("PATCH", "/fleet/v1/policy")).status, 405);
    web.child.kill("SIGTERM");
  }
  assert.equal(await got("policy"), null, "nothing was rolled out");
});

test("an operator checks a policy, has the host try it, and takes it back", async () => {
  const { page, complaints, close } = await visit("operator");
  const question = page.getByRole("dialog");
  const text = page.getByLabel("Text");
  await text.fill('name = "calm"\n\n[defaults]\npace = "loud"\n');
  await page.getByRole("button", { name: "Roll out" }).click();
  await page.getByText("It cannot be rolled out:").waitFor();
  await page.getByRole("button", { name: "Line 4" }).click();
  assert.equal(await text.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd)), 'pace = "loud"');
  assert.equal(await question.count(), 0, "what is wrong is not asked about");
  await text.fill('name = "calm"\n\n[defaults]\nmending_budget = "3GiB"\n');
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByText("Nothing is wrong with it.").waitFor();
  assert.deepEqual(await faults(page), []);
  // What is being written stays while the page is drawn again.
  await page.waitForTimeout(6000);
  assert.match(await text.inputValue(), /3GiB/);
  await page.getByLabel("for", { exact: true }).fill("soon");
  await page.getByRole("button", { name: "Roll out" }).click();
  await question.getByRole("button", { name: "Roll out" }).click();
  await page.getByText(/Refused: the body is not valid/).waitFor();
  await page.getByLabel("for", { exact: true }).fill("1s");
  await page.getByRole("button", { name: "Roll out" }).click();
  await question.getByRole("button", { name: "Roll out" }).click();
  await page.getByText("Done: version 1 is tried by its canaries.").waitFor();
  await page.getByText("Its canaries are watched from here.").waitFor();
  await page.getByText("Policy version 1 is for all hosts (before: none).").waitFor({ timeout: 90000 });
  await machine.until(async () => (await ask(machine.socket, "GET", "/v1/fleet", { headers: { host: "x" } })).json.policy?.version === 1);
  await shows(page.getByRole("region", { name: "The document of version 1" }), /mending_budget = "3GiB"/);

  // Another administrator is faster: what is being written is not lost, and replaces nothing by accident.
  await text.fill('name = "mine"\n\n[defaults]\n');
  writeFileSync(machine.path("other.toml"), 'name = "of another one"\n\n[defaults]\n');
  fleet("policy", "apply", machine.path("other.toml"), "--all-at-once");
  await page.getByText("The policy is version 2 now, and this text began from version 1.").waitFor();
  await page.getByLabel("without a trial").check();
  await page.getByRole("button", { name: "Roll out" }).click();
  await question.getByRole("button", { name: "Roll out" }).click();
  await page.getByText(/Refused: the policy is version 2 now, not 1/).waitFor();
  await page.getByRole("button", { name: "Begin again" }).click();
  assert.match(await text.inputValue(), /of another one/);

  await page.getByLabel("Reason").fill("not so calm");
  await page.getByRole("button", { name: "Take version 2 back" }).click();
  await question.getByRole("button", { name: "Take back" }).click();
  await page.getByText(/Policy version 2 was taken back: not so calm\. All hosts: version 1\./).waitFor();
  assert.match(fleet("policy", "show"), /taken back: not so calm/);
  assert.deepEqual(complaints.filter((line) => !/status of 4(00|09)/.test(line)), []);
  await close();
});

test("who holds a lease is shown, and that it was not renewed", async () => {
  const held = async () => (await got("leases"))?.some((one) => one.held);
  // The service wants to scan; the agent holds a lease for it, and is stopped while it does.
  await machine.until(async () => {
    await ask(machine.socket, "POST", `/v1/volumes/${machine.volume.id}/analyze`, { headers: { host: "x" } });
    for (let tries = 0; tries < 200; tries += 1) {
      if (await held()) break;
      await pause(10);
    }
    agent.kill("SIGSTOP");
    if (await held()) return true;
    agent.kill("SIGCONT");
    return false;
  });
  const { page, close } = await visit("viewer");
  const row = page.getByRole("region", { name: "Storage groups" }).getByRole("row", { name: "san" });
  await row.getByText(/if it is not renewed, until/).waitFor();
  assert.match(await row.innerText(), new RegExp(`${HOST} \\(slot \\d\\)`));
  await row.getByText(/was not renewed in time/).waitFor({ timeout: 60000 });
  agent.kill("SIGCONT");
  await close();
});

test("a broker that hangs, that is gone and that comes back is seen without a click", async () => {
  const { page, close } = await visit("viewer");
  await page.getByText(`The broker at ${server} answers.`).waitFor();
  nats.kill("SIGSTOP");
  await page.getByText(/It answered last on .*What is shown below is from then\./).waitFor({ timeout: 60000 });
  assert.equal(await page.getByRole("region", { name: "Hosts" }).getByRole("row", { name: HOST }).count(), 1, "what was known stays");
  nats.kill("SIGCONT");
  await page.getByText(`The broker at ${server} answers.`).waitFor({ timeout: 60000 });
  nats.kill("SIGKILL");
  await nats.ended;
  await page.getByText(/It answered last on /).waitFor({ timeout: 60000 });
  assert.deepEqual(await faults(page), []);
  startBroker();
  await page.getByText(`The broker at ${server} answers.`).waitFor({ timeout: 60000 });
  await close();
});
