// A browser before the console: how tests enter, and what they find wrong with a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const PAGES = ["overview", "map", "activity", "history", "control", "schedule", "settings"];
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium" });

/** A browser that has entered as `role`, and everything that it complains about. */
export async function visit(machine, browser, role, options = {}, words = []) {
  const web = await machine.startWeb(role, ...words);
  // The policy of the page stays in force; only what the tests put in passes it by.
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(String(web.link));
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  assert.ok(!page.url().includes("token"), "the token is in the address");
  const go = async (name) => {
    await page.goto(`${web.origin}/#${name}`);
    await page.locator(`nav a[href="#${name}"][aria-current=page]`).waitFor();
    // The page asks for the second state of the service when it has drawn the first.
    for (let turn = 0; turn < 2; turn += 1) await page.waitForResponse(/\/v1\/status$/);
  };
  return { web, page, context, complaints, go, close: () => context.close() };
}

/** A request from the page with its session, past its controls: the status, and the name of the state of what it got. */
export const send = (page, method, path, more = {}) => page.evaluate(async ([method, path, { headers, body }]) => {
  const session = { "longrun-session": localStorage.getItem("longrun-session") };
  const answer = await fetch(path, { method, body, headers: { ...headers, ...session } });
  return { status: answer.status, state: answer.headers.get("etag") };
}, [method, path, more]);

/** Waits until the text of an element matches `wanted`, a regular expression. */
export const shows = (locator, wanted) => locator.filter({ hasText: wanted }).waitFor();

/** What axe finds. It is put in by the browser, not by the page: the policy stays as it is. */
export async function faults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ").slice(0, 400)}`);
}
