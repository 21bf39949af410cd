// Passes of a volume from the page: the dry run first, then the pass, watched and cancelled.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ask, Machine } from "./machine.mjs";
import { faults, launch, send, visit } from "./visitor.mjs";

/** @type {Machine} */
let machine;
let browser;
before(async () => {
  machine = await Machine.start("ext4");
  // Mending would mend what the pass is to find; a pause would hold the pass, too.
  await machine.set("mending", false);
  for (const name of ["one", "two", "three"]) {
    const file = join(machine.mount, name);
    writeFileSync(file, Buffer.alloc(16 << 20, name.length));
    execFileSync("sync", ["--file-system", machine.mount]);
    execFileSync(process.env.LONGRUN, ["fragment", file, "--fragments", "200"], { stdio: "pipe" });
  }
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

const jobs = async () => (await ask(machine.socket, "GET", "/v1/jobs", { headers: { host: "x" } })).json;
const excess = () => JSON.parse(execFileSync(process.env.LONGRUN, ["analyze", machine.mount, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] })).excess_fragments;
const last = async () => (await jobs()).reduce((latest, job) => (job.id > (latest?.id ?? -1) ? job : latest), null);

/** A dry run of "files only" by the page, up to the question. */
async function foresee(page) {
  await page.getByLabel("Mode").selectOption("files");
  await page.getByRole("button", { name: "Show what it would do" }).click();
  await page.getByRole("heading", { name: /what it would do/ }).waitFor({ timeout: 60000 });
}

test("a pass is foreseen, started, watched and cancelled from the page", async () => {
  const before = excess();
  assert.ok(before > 500, `${before} excess fragments`);
  const { page, go, complaints, close } = await visit(machine, browser, "operator");
  await go("control");
  await foresee(page);
  assert.equal(excess(), before, "a dry run changes nothing");
  const dry = await last();
  assert.deepEqual([dry.state, dry.dry_run, dry.mode, dry.task], ["finished", true, "files", "optimize"]);
  assert.match(await page.locator(".tile").innerText(), /excess fragments[\s\S]*foreseen/);
  assert.deepEqual(await faults(page), []);
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-pass.png` });
  // What is not agreed to is not begun.
  await page.getByRole("button", { name: "Start this pass" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  assert.equal((await last()).id, dry.id);
  // A stuck volume holds the pass where it can be seen and cancelled, however fast this machine is.
  execFileSync("fsfreeze", ["--freeze", machine.mount]);
  let thawed = false;
  const thaw = () => { if (!thawed) execFileSync("fsfreeze", ["--unfreeze", machine.mount]); thawed = true; };
  try {
    await page.getByRole("button", { name: "Start this pass" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
    await machine.until(async () => (await last()).id > dry.id);
    const job = await last();
    assert.equal(job.dry_run, false);
    const row = page.getByRole("region", { name: "Passes" }).getByRole("row", { name: `${job.id}: Optimize` });
    await row.getByText(/waiting|running/).waitFor();
    await page.getByRole("button", { name: `Cancel job ${job.id}` }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click();
    // The volume is held until the service has the order; a fast pass could end before it otherwise.
    await row.getByText("it is being cancelled").or(row.getByText("it was cancelled")).waitFor();
    thaw();
    await row.getByText(/^cancelled/).waitFor({ timeout: 60000 });
    assert.equal((await last()).state, "cancelled");
  } finally {
    thaw();
  }
  assert.deepEqual(complaints, []);
  await close();
});

test("a pass that nobody cancels ends, and the page shows before and after", async () => {
  const before = excess();
  const { page, go, close } = await visit(machine, browser, "operator");
  await go("control");
  await foresee(page);
  await page.getByRole("button", { name: "Start this pass" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
  await machine.until(async () => { const job = await last(); return !job.dry_run && job.state === "finished"; });
  const job = await last();
  const row = page.getByRole("region", { name: "Passes" }).getByRole("row", { name: `${job.id}: Optimize` });
  await row.getByText("finished").waitFor();
  assert.match(await row.innerText(), new RegExp(`${job.before.excess.toLocaleString("en-US").replace(",", ".")} excess fragments?[\\s\\S]*→`));
  assert.equal(excess(), job.after.excess, "what the page says is what analyze says");
  assert.ok(job.after.excess < before / 10, `${before} → ${job.after.excess}`);
  await go("activity");
  await page.getByRole("region", { name: "Passes" }).getByText("finished").first().waitFor();
  await close();
});

test("what cannot be asked for is refused with its reason", async () => {
  const { page, go, close } = await visit(machine, browser, "operator");
  await go("control");
  await page.getByLabel("Budget").fill("much");
  await page.getByRole("button", { name: "Show what it would do" }).click();
  await page.getByText("The budget must be a size such as 20GiB.").waitFor();
  await close();
});

test("viewers watch passes and start none", async () => {
  const { page, go, close } = await visit(machine, browser, "viewer");
  await go("activity");
  await page.getByRole("region", { name: "Passes" }).waitFor();
  assert.equal(await page.getByRole("button", { name: /Cancel|Show what/ }).count(), 0);
  const { status } = await send(page, "POST", "v1/jobs", { body: JSON.stringify({ volume: machine.volume.id, task: "optimize" }) });
  assert.equal(status, 403);
  await close();
});
