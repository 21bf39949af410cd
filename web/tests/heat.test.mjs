// The map by heat: what is read is hot where it lies, and where nothing is counted the page says why.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { faults, launch, visit } from "./visitor.mjs";

/** @type {Machine} */
let machine;
let browser;
let file;
before(async () => {
  machine = await Machine.start("ext4");
  file = join(machine.mount, "often read");
  writeFileSync(file, Buffer.alloc(8 << 20, 7));
  execFileSync("sync", ["--file-system", machine.mount]);
  await scanned();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const get = async (path) => (await ask(machine.socket, "GET", `/v1/volumes/${machine.volume.id}/${path}`, { headers: { host: "x" } }));
async function scanned() {
  assert.equal((await ask(machine.socket, "POST", `/v1/volumes/${machine.volume.id}/analyze`, { headers: { host: "x" } })).status, 202);
  await machine.until(async () => (await machine.status()).volumes.some((one) => one.id === machine.volume.id && one.scan));
}

/** Reads the file from the device: what is in memory is dropped before. */
function readIt() {
  const dd = (...words) => execFileSync("dd", [...words, "status=none"]);
  for (let round = 0; round < 3; round += 1) {
    dd(`if=${file}`, "iflag=nocache", "count=0");
    dd(`if=${file}`, "of=/dev/null", "bs=1M");
  }
}

/** The colours that are on the map. */
const pixels = (page) => page.evaluate(() => {
  const canvas = /** @type {HTMLCanvasElement} */ (document.querySelector("canvas"));
  // From a copy: the browser complains where the page's own canvas is read back.
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) if (data[at + 3]) found.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
  return [...found];
});

test("before anything was read the map by heat says so, and is not empty", async () => {
  const answer = (await get("map/heat?cell=16")).json;
  assert.match(answer.no_heat, /the device was read for no file|younger than the last scan/);
  const { page, go, complaints, close } = await visit(machine, browser, "viewer");
  await go("map");
  await page.getByLabel("Colours").selectOption("heat");
  await page.getByText(/Heat is not known, so that the colours are by state: /).waitFor();
  assert.ok((await pixels(page)).length > 1, "files are told from free space");
  assert.deepEqual(complaints, []);
  await close();
});

test("a file that is read is hot where it lies, and nothing else is", async () => {
  readIt();
  await machine.until(async () => (await get("map/heat?cell=16")).json.no_heat === null);
  const sound = await get("map/heat?cell=16");
  assert.ok(Buffer.byteLength(sound.text) < 256 << 10);
  assert.equal(sound.headers.etag, undefined, "it changes without a scan");
  const extents = (await get(`file?path=${encodeURIComponent(file)}`)).json;
  const hot = new Set();
  extents.start.forEach((start, at) => {
    for (let block = start; block < start + extents.blocks[at]; block += 1) hot.add(Math.floor(block / 16));
  });
  sound.json.cells.forEach((byte, cell) => assert.equal(byte > 0, hot.has(cell), `cell ${cell}`));
  const all = sound.json.cells.reduce((sum, byte) => sum + (2 ** (byte / 8) - 1) / 256, 0);
  assert.ok(Math.abs(all / sound.json.reads_on_map - 1) < 0.1, `${all} of ${sound.json.reads_on_map} reads`);
  for (const wrong of ["map/heat", "map/heat?cell=0", "map/heat?cell=16&count=32769", "map/heat?cell=1&from=99999999"]) assert.equal((await get(wrong)).status, 400, wrong);

  for (const colorScheme of ["light", "dark"]) {
    const { page, go, complaints, close } = await visit(machine, browser, "viewer", { colorScheme });
    await go("map");
    await page.getByText(/What happened since is not shown/).waitFor();
    const byState = await pixels(page);
    await page.getByLabel("Colours").selectOption("heat");
    await page.getByText(/in a cell, the most here/).waitFor();
    assert.match(await page.locator(".legend").innerText(), /in use, not read[\s\S]*few reads[\s\S]*Counts lose half/);
    const byHeat = await pixels(page);
    assert.ok(byHeat.some((one) => !byState.includes(one)), "it is another picture");
    await page.getByRole("searchbox", { name: "File" }).fill(file);
    await page.getByRole("button", { name: "Find" }).click();
    await page.getByRole("button", { name: "Go to its beginning" }).click();
    await page.getByText(/, (about \d+ reads?|less than one read)\.$/).waitFor();
    // To single blocks: there the server spreads the reads anew.
    await page.getByRole("button", { name: "Zoom in" }).click();
    await page.getByText("A cell is 1 block").waitFor();
    await page.getByText(/, (about \d+ reads?|less than one read)\.$/).waitFor();
    assert.deepEqual(await faults(page), []);
    assert.deepEqual(complaints, []);
    if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-map-heat-${colorScheme}.png` });
    await close();
  }
});

test("where reads are not counted the legend says why", async () => {
  await machine.set("heat", false);
  await machine.until(async () => /not counted/.test((await get("map/heat?cell=16")).json.no_heat));
  const { page, go, close } = await visit(machine, browser, "viewer");
  await go("map");
  await page.getByLabel("Colours").selectOption("heat");
  await page.getByText(/Heat is not known, so that the colours are by state: the reads of this volume are not counted: the configuration says so/).waitFor();
  await close();
});
