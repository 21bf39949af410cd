// The owners of blocks: what the page says agrees with `longrun map --at`, on each file system.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { launch, visit } from "./visitor.mjs";

const BLOCKS = 100;
const FILESYSTEMS = ["ext4", "xfs", "btrfs"];
/** So many of the blocks are looked up by a click of the keyboard on the page; the rest as the page asks. */
const ON_THE_PAGE = 5;
const SEED = Number(process.env.SEED ?? Date.now() % 1000000);

/** @type {Machine} */
let machine;
let browser;
before(async () => {
  machine = await Machine.start(...FILESYSTEMS);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const NAMES = ["a b & c", "\u00fc.iso", "third"];
const PIECES = 24;

/** A file in several fragments: on ext4 by our own tool, elsewhere by direct writes in a scattered order, with gaps that are filled later. */
function writeInPieces({ filesystem, mount }, file) {
  if (filesystem === "ext4") {
    writeFileSync(file, Buffer.alloc(24 << 20, 7));
    execFileSync("sync", ["--file-system", mount]);
    execFileSync(process.env.LONGRUN, ["fragment", file, "--fragments", String(PIECES)], { stdio: "pipe" });
    return;
  }
  writeFileSync(file, "");
  const order = Array.from({ length: PIECES }, (_, piece) => piece).sort((a, b) => (a % 3) - (b % 3) || b - a);
  for (const piece of order) {
    execFileSync("dd", ["if=/dev/urandom", `of=${file}`, "bs=256K", "count=1", `seek=${piece}`, "oflag=direct", "conv=notrunc", "status=none"]);
  }
}

/** Random numbers that a seed repeats. */
function randoms(seed) {
  let state = (seed % 2147483646) + 1;
  return (below) => { state = (state * 48271) % 2147483647; return Math.floor((state / 2147483647) * below); };
}

for (const filesystem of FILESYSTEMS) {
  test(`${BLOCKS} random blocks have the same owners as by longrun map --at: ${filesystem}`, async () => {
    const volume = machine.volumes.find((one) => one.filesystem === filesystem);
    for (const name of NAMES) writeInPieces(volume, join(volume.mount, name));
    // What the service itself would still move, it may not: map and command see the same volume.
    await ask(machine.socket, "POST", "/v1/pause", { headers: { host: "x" } });
    execFileSync("sync", ["--file-system", volume.mount]);
    const get = async (path) => (await ask(machine.socket, "GET", `/v1/volumes/${volume.id}/${path}`, { headers: { host: "x" } })).json;
    const scans = async () => (await machine.status()).volumes.find((one) => one.id === volume.id).scan?.at;
    const earlier = await scans();
    assert.equal((await ask(machine.socket, "POST", `/v1/volumes/${volume.id}/analyze`, { headers: { host: "x" } })).status, 202);
    await machine.until(async () => { const at = await scans(); return at && at !== earlier; });
    const levels = await get("map/levels");
    const random = randoms(SEED);
    const { page, go, close } = await visit(machine, browser, "viewer");
    await go("map");
    await page.getByRole("combobox", { name: /^Volume/ }).selectOption(volume.id);
    await page.getByText(/What happened since is not shown/).waitFor();
    /** Pieces of files and of everything: half of the blocks are of files, however empty the volume is. */
    const files = [];
    for (const name of NAMES) {
      const answer = await get(`file?path=${encodeURIComponent(join(volume.mount, name))}`);
      files.push(...answer.start.map((start, at) => [start, answer.blocks[at]]));
    }
    let named = 0;
    for (let round = 0; round < BLOCKS; round += 1) {
      const [start, length] = round % 2 ? files[random(files.length)] : [0, levels.total_blocks];
      const block = start + random(length);
      const what = `block ${block} of ${filesystem}, SEED=${SEED}`;
      const told = execFileSync(process.env.LONGRUN, ["map", volume.mount, "--at", String(block)], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
      const owner = await get(`owner?block=${block}`);
      const kind = /^block \d+: (free|file|directory|metadata|in use)/.exec(told)?.[1];
      assert.equal(owner.kind === "unknown" ? "in use" : owner.kind, kind, `${what}: ${told}`);
      if (owner.file) {
        assert.equal(told.split("\n")[0], `block ${block}: ${kind} ${owner.file.path}`, what);
        assert.match(told, new RegExp(`\\binode ${owner.file.inode}\\b`), what);
      }
      named += owner.file ? 1 : 0;
      if (owner.file && named <= ON_THE_PAGE) {
        await page.getByRole("searchbox", { name: "File" }).fill(owner.file.path);
        await page.getByRole("button", { name: "Find" }).click();
        await page.getByRole("heading", { name: owner.file.path }).waitFor();
      }
    }
    assert.ok(named >= BLOCKS / 3, `${named} blocks belong to files`);
    await close();
  });
}
