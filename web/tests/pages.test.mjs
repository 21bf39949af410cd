// The console in Chromium, before a real service: each page, in light and dark, wide and narrow.
//
// SCREENSHOTS names a folder to which pictures of the pages are written, for docs/images.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Machine } from "./machine.mjs";
import { faults, launch, PAGES, send, shows, visit as enter } from "./visitor.mjs";

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

const visit = (...words) => enter(machine, browser, ...words);

for (const colorScheme of ["light", "dark"]) {
  test(`every page is accessible and without errors: ${colorScheme}`, async () => {
    const { page, complaints, go, close } = await visit("operator", { colorScheme });
    for (const name of PAGES) {
      await go(name);
      assert.deepEqual(await faults(page), [], `${name}, ${colorScheme}`);
      if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/console-${name}-${colorScheme}.png` });
    }
    // The browser writes a line for each answer that is an error: a volume without a map is one.
    assert.deepEqual(complaints.filter((text) => !/status of 404/.test(text)), []);
    await close();
  });
}

test("a link opens the console in this browser until the session ends", async () => {
  const web = await machine.startWeb("viewer");
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(web.origin);
  await page.getByText("This browser has no session.").waitFor();
  await page.goto(String(web.link));
  await shows(page.locator("#who"), /viewer/);
  await page.reload();
  await shows(page.locator("#who"), /viewer/);
  // The link was used, which ends no session; nor is it in another browser's.
  await page.goto(String(web.link));
  await shows(page.locator("#who"), /viewer/);
  assert.deepEqual(await context.cookies(), []);
  const other = await browser.newContext();
  const stranger = await other.newPage();
  await stranger.goto(String(web.link));
  await stranger.getByText("This browser has no session.").waitFor();
  await other.close();
  await context.close();
});

test("every page fits into 360 px and fills a 4K screen", async () => {
  const { page, go, close } = await visit("viewer", { viewport: { width: 360, height: 740 } });
  for (const [width, height] of [[360, 740], [3840, 2160]]) {
    await page.setViewportSize({ width, height });
    for (const name of PAGES) {
      await go(name);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${name} is ${wide} px wide on a screen of ${width}`);
      if (width === 360) assert.deepEqual(await faults(page), [], name);
    }
  }
  await close();
});

test("the overview shows what the service says", async () => {
  const { page, close } = await visit("viewer");
  const row = page.getByRole("region", { name: "Volumes" }).getByRole("row", { name: machine.mount });
  await shows(row, /ext4 on \/dev\/loop\d+.*Good.*free of.*preventing, mending/);
  await page.getByText("Everything works.").waitFor();
  await page.getByText(/Prevention watches 1 volume/).waitFor();
  await close();
});

test("an operator pauses and resumes mending by keyboard, after a question", async () => {
  const { page, go, close } = await visit("operator");
  await go("control");
  const question = page.getByRole("dialog");
  await page.getByRole("button", { name: "Pause mending" }).focus();
  await page.keyboard.press("Enter");
  await question.waitFor();
  await page.keyboard.press("Escape");
  await question.waitFor({ state: "detached" });
  assert.equal((await machine.status()).mending.paused, false, "it was not agreed to");
  await page.getByLabel("For").selectOption("240");
  await page.getByRole("button", { name: "Pause mending" }).click();
  await question.getByRole("button", { name: "Pause" }).click();
  await page.getByText(/^Paused until/).waitFor();
  const until = Date.parse((await machine.status()).mending.paused_until) - Date.now();
  assert.ok(until > 3 * 3600e3 && until <= 4 * 3600e3);
  await go("overview");
  await page.getByText(/Mending and scheduled scans are paused until/).waitFor();
  await go("control");
  await page.getByRole("button", { name: "Resume mending" }).click();
  await question.getByRole("button", { name: "Resume" }).click();
  await page.getByText("Mending goes on by the configuration.").waitFor();
  assert.equal((await machine.status()).mending.paused, false);
  await close();
});

test("an operator has a volume scanned, and the overview shows the figures", async () => {
  const { page, go, close } = await visit("operator");
  await go("control");
  await page.getByRole("button", { name: `Scan now: ${machine.mount}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Scan" }).click();
  await machine.until(async () => (await machine.status()).volumes.some((one) => one.id === machine.volume.id && one.scan));
  await go("overview");
  await shows(page.getByRole("region", { name: "Volumes" }).getByRole("row", { name: machine.mount }), /0\s*in 0 files/);
  await close();
});

test("viewers see no control, and a refusal says what to do", async () => {
  for (const [role, words] of [["viewer", []], ["operator", ["--read-only"]]]) {
    const { page, go, close } = await visit(role, {}, words);
    await go("control");
    await page.getByText("You may see everything here, and change nothing.").waitFor();
    assert.equal(await page.locator("main button").count(), 0);
    assert.equal((await send(page, "POST", "v1/pause")).status, 403);
    await close();
  }
});

test("strangers are told that they may not, on every page", async () => {
  const { page, go, close } = await visit("stranger");
  for (const name of PAGES) {
    await go(name);
    await page.getByText(/permission denied: use sudo/).waitFor();
  }
  await close();
});

test("a history without benefit says so, and is taken away as CSV and JSON", async () => {
  const { page, go, close } = await visit("viewer");
  await go("history");
  await page.getByText(/Benefit: none|No benefit/).waitFor();
  for (const [name, wanted] of [["CSV", /^from/], ["JSON", /"benefit"/], ["HTML", /<h1>Longrun report/]]) {
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name, exact: true }).click();
    const stream = await (await saved).createReadStream();
    let text = "";
    for await (const part of stream) text += part;
    assert.match(text, wanted);
  }
  await close();
});

test("what happens at the service is seen without a click, also its end", async () => {
  const { page, web, close } = await visit("viewer");
  web.child.kill("SIGTERM");
  await page.getByText(/longrun-web does not answer/).waitFor();
  await close();
});
