// The console as a page of Cockpit: the files that are shipped, in Debian's own cockpit-ws and its bridge.

import assert from "node:assert/strict";
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Machine } from "./machine.mjs";
import { launch, PAGES } from "./visitor.mjs";

const WEB = new URL("../", import.meta.url).pathname;
const SERVER = ["/usr/lib/cockpit/cockpit-ws", "/usr/libexec/cockpit-ws"].find((path) => existsSync(path));

/** @type {Machine} */
let machine;
let browser;
let address;
before(async () => {
  assert.ok(SERVER, "cockpit-ws is missing: run scripts/prepare.sh test");
  machine = await Machine.start();
  const home = machine.path("home");
  const place = join(home, "share/cockpit/longrun");
  mkdirSync(place, { recursive: true });
  for (const name of readdirSync(WEB).filter((name) => /\.(js|html|css|svg)$/.test(name))) copyFileSync(join(WEB, name), join(place, name));
  copyFileSync(join(WEB, "../packaging/cockpit/manifest.json"), join(place, "manifest.json"));
  // The only change: the service of the test has a socket of its own.
  const transport = readFileSync(join(WEB, "transport.js"), "utf8");
  assert.match(transport, /"\/run\/longrun\/longrun\.sock"/);
  writeFileSync(join(place, "transport.js"), transport.replace("/run/longrun/longrun.sock", machine.socket));
  const port = await new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); });
  });
  const bridge = machine.path("bridge");
  writeFileSync(bridge, `#!/bin/sh\nXDG_DATA_DIRS='${join(home, "share")}:/usr/share' exec cockpit-bridge "$@"\n`);
  chmodSync(bridge, 0o755);
  // Its helpers (dbus-daemon, ssh-agent) end with it: they are alone in a namespace of processes.
  const server = machine.spawn("unshare", ["--pid", "--fork", "--kill-child", "--mount-proc", SERVER, "--no-tls", `--local-session=${bridge}`, "--address=127.0.0.1", `--port=${port}`],
    { stdio: "ignore", env: { PATH: process.env.PATH, HOME: home, XDG_RUNTIME_DIR: machine.directory, LANG: "C.UTF-8" } });
  server.last = "SIGKILL";
  address = `http://127.0.0.1:${port}/cockpit/@localhost/longrun/index.html`;
  await machine.until(async () => (await fetch(address)).status === 200);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

test("every page loads in Cockpit without errors, as who has logged in there", async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(address);
  await page.locator("#who", { hasText: "operator" }).waitFor();
  await page.getByRole("region", { name: "Volumes" }).getByRole("row", { name: machine.mount }).waitFor();
  for (const name of PAGES) {
    await page.goto(`${address}#${name}`);
    await page.locator(`nav a[href="#${name}"][aria-current=page]`).waitFor();
    await page.waitForTimeout(1500);
    assert.equal(await page.locator("#banner").innerText(), "", name);
  }
  // A body and the state of the file pass the bridge: a setting is changed, and taken back.
  const before = readFileSync(machine.config, "utf8");
  await page.getByLabel("mending_budget", { exact: true }).fill("4GiB");
  for (const value of [null, ""]) {
    if (value !== null) await page.getByLabel("mending_budget", { exact: true }).fill(value);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
    const wanted = value === null ? before.replace('#: mending_budget = "10GiB"', 'mending_budget = "4GiB"') : before;
    await machine.until(() => readFileSync(machine.config, "utf8") === wanted);
    await page.getByText(/and in effect/).waitFor();
  }
  assert.deepEqual(complaints.filter((text) => !/status of 404/.test(text)), []);
  await context.close();
});
