// Settings that are changed through the API and from the pages, and what is in the file afterwards.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, chownSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { launch, send, visit } from "./visitor.mjs";
import { DAYS, minutes, windows } from "../windows.js";

/** @type {Machine} */
let machine;
let browser;
before(async () => {
  machine = await Machine.start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const text = () => readFileSync(machine.config, "utf8");
const comments = (of) => of.split("\n").filter((line) => line.startsWith("# "));
const read = async () => {
  const answer = await ask(machine.socket, "GET", "/v1/config", { headers: { host: "x" } });
  assert.equal(answer.status, 200);
  return [answer.json, answer.headers.etag];
};
const put = (changes, state, headers = {}) => ask(machine.socket, "PUT", "/v1/config",
  { headers: { host: "x", ...(state && { "if-match": state }), ...headers }, body: JSON.stringify({ changes }) });
/** The lines that a file has and another has not. */
const added = (now, before) => now.split("\n").filter((line) => !before.split("\n").includes(line));

test("a change is written with its comments, is in effect at once, and keeps owner and mode", async () => {
  const before = text();
  chownSync(machine.config, 1, 2);
  chmodSync(machine.config, 0o640);
  const [file, state] = await read();
  assert.equal(file.text, before);
  assert.equal(file.volumes.find((one) => one.id === machine.volume.id).settings.mending_budget, "10GiB");
  const mount = `mount=${machine.mount}`;
  const answer = await put([{ section: "defaults", key: "mending_budget", value: "7GiB" }, { section: mount, key: "xfs_hint_files", value: 9 },
    { section: "defaults", key: "exclude", value: ["*.iso", "/srv/a b"] }], state);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.applied, true);
  const holds = answer.json.volumes.find((one) => one.id === machine.volume.id).settings;
  assert.deepEqual([holds.mending_budget, holds.xfs_hint_files, holds.exclude, holds.enabled], ["7GiB", 9, ["*.iso", "/srv/a b"], true]);
  assert.deepEqual(added(text(), before), ['exclude = ["*.iso", "/srv/a b"]', 'mending_budget = "7GiB"', "xfs_hint_files = 9"]);
  assert.deepEqual(comments(text()), comments(before));
  const { uid, gid, mode } = statSync(machine.config);
  assert.deepEqual([uid, gid, mode & 0o777], [1, 2, 0o640]);
  assert.deepEqual(readdirSync(dirname(machine.config)), ["longrun.toml"], "nothing else is left");
  const back = await put([["defaults", "mending_budget"], ["defaults", "exclude"], [mount, "xfs_hint_files"]].map(([section, key]) => ({ section, key, value: null })), answer.headers.etag);
  assert.equal(back.status, 200);
  assert.equal(text(), before);
});

test("a change that the checker refuses is refused in its words, and nothing is written", async () => {
  const before = text();
  const [, state] = await read();
  for (const [key, value] of [["mending_budget", "much"], ["mending_rests", ["never"]], ["first_runway", "1GiB"], ["colour", "red"]]) {
    const answer = await put([{ section: "defaults", key: "pace", value: "balanced" }, { section: "defaults", key, value }], state);
    assert.equal(answer.status, 422, answer.text);
    const file = machine.path("wrong.toml");
    writeFileSync(file, before.replace('pace = "fast"', `pace = "balanced"\n${key} = ${JSON.stringify(value)}`));
    let said = "";
    try {
      execFileSync(process.env.LONGRUN, ["config", "check", file], { stdio: "pipe" });
    } catch (error) {
      said = String(error.stderr);
    }
    if (key === "colour") assert.match(answer.json.error, /unknown key "colour"/);
    else assert.ok(said.includes(answer.json.error.replace(/^line \d+: /, "").split("; line")[0]), `${answer.json.error} is not in ${said}`);
  }
  for (const body of ["{", "[]", '{"changes":[]}', '{"changes":[{"section":"volume","key":"pace"}]}', '{"changes":[{"section":"defaults","key":"pace","value":{}}]}', '{"changes":[],"more":1}']) {
    const answer = await ask(machine.socket, "PUT", "/v1/config", { headers: { host: "x", "if-match": state }, body });
    assert.equal(answer.status, 400, body);
  }
  assert.equal(text(), before);
});

test("a file that somebody else has changed is not overwritten", async () => {
  const [, state] = await read();
  const edited = `${text()}# by an editor\n`;
  writeFileSync(machine.config, edited);
  const one = [{ section: "defaults", key: "pace", value: "balanced" }];
  assert.equal((await put(one, state)).status, 412);
  assert.equal((await put(one)).status, 428);
  assert.equal(text(), edited);
});

test("a file that cannot be written stays, and the answer says why", async () => {
  const [, state] = await read();
  const [before, directory] = [text(), dirname(machine.config)];
  execFileSync("mount", ["--bind", directory, directory]);
  try {
    execFileSync("mount", ["-o", "remount,bind,ro", directory]);
    const answer = await put([{ section: "defaults", key: "pace", value: "balanced" }], state);
    assert.equal(answer.status, 409, answer.text);
    assert.match(answer.json.error, /Read-only file system/);
  } finally {
    execFileSync("umount", [directory]);
  }
  assert.equal(text(), before);
});

test("only root changes who has access and where files are, and who has given it up does not", async () => {
  const { page, web, go, close } = await visit(machine, browser, "operator");
  await go("settings");
  const sent = async (changes) => {
    const { state } = await send(page, "GET", "v1/config");
    return (await send(page, "PUT", "v1/config", { headers: { "if-match": state }, body: JSON.stringify({ changes }) })).status;
  };
  for (const key of ["group", "viewers", "socket", "state_directory", "readable_by_all"]) {
    assert.equal(await sent([{ section: "service", key, value: key === "readable_by_all" ? true : "/root" }]), 403, key);
  }
  await page.getByLabel("Settings of").selectOption("service");
  assert.equal(await page.locator("#set-group").isDisabled(), true);
  assert.equal(await page.locator("#set-log_level").isDisabled(), false);
  assert.equal(web.child.exitCode, null);
  const [, state] = await read();
  const change = [{ section: "service", key: "readable_by_all", value: false }];
  assert.equal((await put(change, state, { "longrun-role": "viewer" })).status, 403);
  assert.equal((await put(change, state)).status, 200);
  await close();
});

test("every setting is on the page, and what is changed there is in the file", async () => {
  const before = text();
  const { page, go, complaints, close } = await visit(machine, browser, "operator");
  await go("settings");
  const [{ volume_keys: keys, service_keys: service }] = await read();
  await page.locator("#set-pace").waitFor();
  for (const { key } of keys) assert.equal(await page.locator(`#set-${key}`).count(), 1, key);
  assert.equal(await page.getByLabel("pace", { exact: true }).inputValue(), "fast");
  await page.getByLabel("mending_budget", { exact: true }).fill("much");
  const save = async () => {
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  };
  await save();
  await page.getByText(/Refused: line \d+: mending_budget in \[defaults\] must be a size/).waitFor();
  await page.getByLabel("mending_budget", { exact: true }).fill("3GiB");
  await page.getByLabel("mending", { exact: true }).selectOption("false");
  await page.getByLabel("exclude", { exact: true }).fill("*.iso\n/srv/x");
  await save();
  await page.getByText(/and in effect/).waitFor();
  assert.deepEqual(added(text(), before), ['exclude = ["*.iso", "/srv/x"]', "mending = false", 'mending_budget = "3GiB"']);
  assert.deepEqual(comments(text()), comments(before));
  await page.getByLabel("Settings of").selectOption(`mount=${machine.mount}`);
  assert.equal(await page.getByLabel("mending_quiet", { exact: true }).inputValue(), "1s");
  await page.getByLabel("Settings of").selectOption("service");
  for (const { key } of service) assert.equal(await page.locator(`#set-${key}`).count(), 1, key);
  await page.getByLabel("Settings of").selectOption("defaults");
  for (const [label, value] of [["mending_budget", ""], ["exclude", ""]]) await page.getByLabel(label, { exact: true }).fill(value);
  await page.getByLabel("mending", { exact: true }).selectOption("");
  await save();
  await page.getByText(/and in effect/).waitFor();
  await machine.until(() => text() === before);
  assert.deepEqual(complaints.filter((line) => !/status of 422/.test(line)), []);
  await close();
});

test("a window is set on the grid by keyboard and by pointer, and found in the file with its comments", async () => {
  const before = text();
  const { page, go, close } = await visit(machine, browser, "operator");
  await go("schedule");
  const grid = page.getByRole("grid", { name: "Mending and scans rest" });
  await grid.getByRole("gridcell", { name: "Monday 0 to 1: no" }).focus();
  for (let hour = 0; hour < 8; hour += 1) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Space");
  await page.keyboard.press("Shift+ArrowRight");
  await grid.getByRole("gridcell", { name: "Monday 9 to 10: yes" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Monday 9 to 10: yes");
  await grid.getByRole("gridcell", { name: "Sunday 23 to 24: no" }).click();
  const [from, to] = [await grid.getByRole("gridcell", { name: "Tuesday 8 to 9: no" }).boundingBox(), await grid.getByRole("gridcell", { name: "Tuesday 9 to 10: no" }).boundingBox()];
  const middle = (box) => [box.x + box.width / 2, box.y + box.height / 2];
  await page.mouse.move(...middle(from));
  await page.mouse.down();
  await page.mouse.move(...middle(to), { steps: 5 });
  await page.mouse.up();
  await page.getByText("mon,tue 08:00-10:00; sun 23:00-24:00.").waitFor();
  await page.getByRole("button", { name: "Save: mending_rests" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await page.getByText(/and in effect/).waitFor();
  assert.deepEqual(added(text(), before), ['mending_rests = ["mon,tue 08:00-10:00", "sun 23:00-24:00"]']);
  assert.deepEqual(comments(text()), comments(before));
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-schedule.png` });
  await page.getByRole("button", { name: "As by default: mending_rests" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await machine.until(() => text() === before);
  await close();
});

test("viewers see the settings and the week, and change neither", async () => {
  const { page, go, close } = await visit(machine, browser, "viewer");
  await go("settings");
  await page.locator("#set-pace").waitFor();
  assert.equal(await page.locator("form :enabled:not(option)").count(), 0);
  await go("schedule");
  const rests = page.getByRole("grid", { name: "Mending and scans rest" });
  await rests.waitFor();
  await rests.getByRole("gridcell", { name: "Friday 3 to 4: no" }).click();
  assert.equal(await page.locator("main button").count(), 0);
  assert.equal(await rests.locator(".on").count(), 0);
  await close();
});

test("windows become minutes and the same windows again", () => {
  for (const list of [[], ["daily 00:00-24:00"], ["mon-fri 08:00-18:00"], ["sat,sun 22:00-06:00"], ["daily 22:30-05:15"], ["mon 08:00-09:00", "wed-fri 08:30-24:00"], ["sun 23:00-01:00"]]) {
    assert.deepEqual(windows(minutes(list)), list);
  }
  assert.deepEqual(windows(minutes(["fri-mon 0:00-24:00"])), ["mon,fri-sun 00:00-24:00"]);
  let seed = 7;
  const random = (below) => { seed = (seed * 48271) % 2147483647; return seed % below; };
  for (let round = 0; round < 200; round += 1) {
    const covered = new Uint8Array(7 * 24 * 60);
    for (let part = random(6); part > 0; part -= 1) {
      const [from, length] = [random(covered.length / 30) * 30, random(100) * 30];
      for (let minute = 0; minute < length; minute += 1) covered[(from + minute) % covered.length] = 1;
    }
    assert.deepEqual(minutes(windows(covered)), covered, windows(covered).join("; "));
  }
  assert.equal(DAYS.length, 7);
});
