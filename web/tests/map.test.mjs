// The map in Chromium, of a volume with a file in many fragments.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { ask, Machine } from "./machine.mjs";

const DOCUMENT = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8"));
const FRAGMENTS = 30;

/** @type {Machine} */
let machine;
let browser;
before(async () => {
  machine = await Machine.start();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium" });
});
after(async () => {
  await browser?.close();
  await machine?.end();
});

test("a file is found, lit and named again by its blocks", async () => {
  const file = join(machine.mount, "in pieces & more");
  writeFileSync(file, Buffer.alloc(8 << 20, 7));
  execFileSync("sync", ["--file-system", machine.mount]);
  execFileSync(process.env.LONGRUN, ["fragment", file, "--fragments", String(FRAGMENTS)], { stdio: "pipe" });
  const web = await machine.startWeb("operator");
  const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
  await page.goto(String(web.link));
  await page.goto(`${web.origin}/#map`);
  await page.getByText("No scan of this volume has left a map yet.").waitFor();
  const begun = await ask(machine.socket, "POST", `/v1/volumes/${machine.volume.id}/analyze`, { headers: { host: "x" } });
  assert.equal(begun.status, 202);
  await machine.until(async () => (await machine.status()).volumes.some((one) => one.id === machine.volume.id && one.scan));
  if (!DOCUMENT.paths["/v1/volumes/{id}/map/levels"]) {
    await page.getByText("No scan of this volume has left a map yet.").waitFor();
    return;
  }
  // The page looks again when the volume has another scan.
  await page.getByText(/What happened since is not shown/).waitFor();
  await page.getByRole("searchbox", { name: "File" }).fill("/in pieces & more");
  await page.getByRole("button", { name: "Find" }).click();
  const facts = page.locator(".facts");
  await page.getByRole("heading", { name: file }).waitFor();
  assert.match(await facts.innerText(), new RegExp(`Fragments\\s+${FRAGMENTS}\\b`));
  await page.getByText("what was chosen").waitFor();
  const canvas = page.getByRole("img", { name: /Map of/ });
  for (const layout of ["curve", "rows"]) {
    await page.getByLabel("Layout").selectOption(layout);
    await page.getByRole("button", { name: "Go to its beginning" }).click();
    await page.getByRole("button", { name: "Zoom in" }).click();
    await page.getByText("A cell is 1 block").waitFor();
    await page.getByLabel("Colours").selectOption("kind");
    await canvas.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: file }).waitFor();
    await facts.getByText("Block", { exact: true }).waitFor();
    if (process.env.SCREENSHOTS && layout === "curve") await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-map-found.png` });
    await page.getByRole("button", { name: "Whole volume" }).click();
    await page.getByText("A cell is 4 blocks").waitFor();
  }
  await page.getByRole("searchbox", { name: "File" }).fill("not there");
  await page.getByRole("button", { name: "Find" }).click();
  await page.locator(".empty").waitFor();
});
