// A trace of a disk from the page: begun by operators, seen by viewers, with the figures that the API has.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { faults, launch, visit } from "./visitor.mjs";
import { doubling, rows, short } from "../trace_model.js";

/** @type {Machine} */
let machine;
let browser;
before(async () => {
  machine = await Machine.start("ext4");
  writeFileSync(join(machine.mount, "file"), Buffer.alloc(8 << 20, 7));
  execFileSync("sync", ["--file-system", machine.mount]);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const trace = async () => (await ask(machine.socket, "GET", `/v1/volumes/${machine.volume.id}/trace`, { headers: { host: "x" } })).json;

test("buckets of a doubling are one row, and the rows of reads and writes are the same", () => {
  assert.deepEqual([0, 3, 4, 7, 9, 15, 1023, null].map(doubling), [4, 4, 8, 8, 16, 16, 1024, Infinity]);
  assert.deepEqual([4.2, 999, 1024, 65536, 2097152].map(short), ["4 µs", "999 µs", "1.02 ms", "65.5 ms", "2.1 s"]);
  const first = { unit: "microseconds", buckets: [{ upto: 9, count: 2 }, { upto: 11, count: 3 }, { upto: null, count: 1 }] };
  const second = { unit: "microseconds", buckets: [{ upto: 5, count: 7 }, { upto: 15, count: 4 }] };
  assert.deepEqual(rows(first, second, doubling), [[8, 0, 7], [16, 5, 4], [Infinity, 1, 0]]);
});

test("an operator traces the disk, and everybody who may read sees the histograms", async () => {
  const { page, go, complaints, close } = await visit(machine, browser, "operator");
  await go("activity");
  await page.getByText("No trace has been made").waitFor();
  await page.getByLabel("Count for").selectOption("3600");
  await page.getByRole("button", { name: "Trace", exact: true }).click();
  await page.getByText("Every request is counted until").waitFor();
  await machine.until(async () => (await trace()).recording);
  for (let turn = 0; turn < 3; turn += 1) {
    execFileSync("dd", [`if=${join(machine.mount, "file")}`, "of=/dev/null", "iflag=direct", "bs=64k", "status=none"]);
  }
  await machine.until(async () => (await trace()).recording.devices[0].all.reads.completed >= 384);
  await page.getByRole("button", { name: "End the trace" }).click();
  await machine.until(async () => !(await trace()).running);
  const { reads } = (await trace()).recording.devices[0].all;
  const row = page.getByRole("region", { name: "Requests of" }).getByRole("row", { name: "Reads" });
  await row.getByText(String(reads.requests).replace(/\B(?=(\d{3})+$)/g, "\u202f"), { exact: true }).waitFor();
  await page.getByRole("region", { name: "Latency" }).getByText(/below/).first().waitFor();
  await page.getByRole("region", { name: "Size" }).getByText("up to 64.0 KiB").waitFor();
  await page.getByRole("button", { name: "End the trace", disabled: true }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(complaints, []);
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-trace.png`, fullPage: true });
  await close();
  const viewer = await visit(machine, browser, "viewer");
  await viewer.go("activity");
  await viewer.page.getByRole("region", { name: "Latency" }).waitFor();
  assert.equal(await viewer.page.getByRole("button", { name: "Trace", exact: true }).count(), 0);
  assert.deepEqual(viewer.complaints, []);
  await viewer.close();
});
