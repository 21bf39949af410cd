// The map from before the last pass: kept beside the current one, and shown by a switch.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { faults, launch, visit } from "./visitor.mjs";

const FRAGMENTS = 60;

/** @type {Machine} */
let machine;
let browser;
let file;
before(async () => {
  machine = await Machine.start("ext4");
  await machine.set("mending", false);
  file = join(machine.mount, "in pieces");
  writeFileSync(file, Buffer.alloc(16 << 20, 7));
  execFileSync("sync", ["--file-system", machine.mount]);
  execFileSync(process.env.LONGRUN, ["fragment", file, "--fragments", String(FRAGMENTS)], { stdio: "pipe" });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const get = (path) => ask(machine.socket, "GET", `/v1/volumes/${machine.volume.id}/${path}`, { headers: { host: "x" } });
const scanAt = async () => (await machine.status()).volumes.find((one) => one.id === machine.volume.id).scan?.at;
/** A scan after the last one. */
async function scanned() {
  const earlier = await scanAt();
  await machine.until(async () => (await ask(machine.socket, "POST", `/v1/volumes/${machine.volume.id}/analyze`, { headers: { host: "x" } })).status === 202);
  await machine.until(async () => { const at = await scanAt(); return at && at !== earlier; });
}
async function pass(wanted) {
  const body = JSON.stringify({ volume: machine.volume.id, task: "optimize", mode: "files", ...wanted });
  const begun = await ask(machine.socket, "POST", "/v1/jobs", { headers: { host: "x" }, body });
  assert.equal(begun.status, 202, begun.text);
  const job = async () => (await ask(machine.socket, "GET", `/v1/jobs/${begun.json.id}`, { headers: { host: "x" } })).json;
  await machine.until(async () => (await job()).state === "finished");
  return job();
}
const kept = () => readdirSync(machine.path("state/maps")).sort();

test("a pass keeps the map from before it, and the page shows both with the figures", async () => {
  await scanned();
  assert.equal((await get("map/levels")).json.pass, null);
  assert.equal((await get("map/levels?before=true")).status, 404);
  // A dry run keeps nothing.
  await pass({ dry_run: true });
  assert.deepEqual(kept(), [`${machine.volume.id}.map`]);
  const job = await pass({});
  assert.ok(job.moved_bytes > 0);
  await scanned();
  assert.deepEqual(kept(), [`${machine.volume.id}.before`, `${machine.volume.id}.map`]);
  const levels = (await get("map/levels")).json;
  assert.equal(levels.pass.job, job.id);
  assert.deepEqual([levels.pass.before, levels.pass.after, levels.pass.scanned_since], [job.before, job.after, true]);
  const fragments = async (which) => (await get(`file?path=${encodeURIComponent(file)}${which}`)).json.file.fragments;
  assert.equal(await fragments("&before=true"), FRAGMENTS);
  assert.equal(await fragments(""), 1);
  for (const path of ["map/levels?", "map?level=0&", "extents?from=0&to=100&", "owner?block=0&"]) {
    const [now, then] = [await get(path), await get(`${path}before=true`)];
    assert.deepEqual([now.status, then.status], [200, 200], path);
    assert.ok(now.headers.etag > then.headers.etag, "each has the number of its scan");
  }

  const { page, go, complaints, close } = await visit(machine, browser, "viewer");
  await go("map");
  await page.getByText(`Pass ${job.id}, ended`).waitFor();
  const spaced = (figure) => figure.toLocaleString("en-US").replace(",", "\u202f");
  await page.getByText(`excess fragments ${spaced(job.before.excess)} → ${spaced(job.after.excess)}, pieces of free space ${spaced(job.before.free_pieces)} → ${spaced(job.after.free_pieces)}`).waitFor();
  const find = async (wanted) => {
    await page.getByRole("searchbox", { name: "File" }).fill(file);
    await page.getByRole("button", { name: "Find" }).click();
    await page.locator(".facts").getByText(String(wanted), { exact: true }).first().waitFor();
    assert.match(await page.locator(".facts").innerText(), new RegExp(`Fragments\\s+${wanted}\\b`));
  };
  await find(1);
  await page.getByLabel("Show").selectOption("before");
  await page.getByText(/This is how it was before the pass/).waitFor();
  await find(FRAGMENTS);
  assert.deepEqual(await faults(page), []);
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-map-before.png` });
  await page.getByLabel("Show").selectOption("after");
  await page.getByText(/What happened since is not shown/).waitFor();
  await find(1);
  assert.deepEqual(complaints, []);
  await close();
});

test("a pass that moves nothing leaves the kept map", async () => {
  const job = await pass({});
  assert.equal(job.moved_bytes, 0);
  assert.deepEqual(kept(), [`${machine.volume.id}.before`, `${machine.volume.id}.map`]);
  assert.notEqual((await get("map/levels")).json.pass.job, job.id);
});
