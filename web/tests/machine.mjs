// A real service on a real loop volume, and longrun-web before it: started for tests, and removed with everything they made.
//
// LONGRUN and LONGRUN_WEB name the binaries.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

// How long an event is waited for: an agent takes its first lease a minute after it has come.
const PATIENCE_MS = 120000;
const run = (command, ...words) => execFileSync(command, words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Groups that every Debian has: who is in them is for the tests to say. */
export const OPERATORS = "operator";
export const VIEWERS = "games";
const NOBODY = 65534;
const groupNumber = (name) => readFileSync("/etc/group", "utf8").split("\n").find((line) => line.startsWith(`${name}:`)).split(":")[2];
export const GROUPS = { operator: groupNumber(OPERATORS), viewer: groupNumber(VIEWERS), stranger: String(NOBODY) };

export class Machine {
  processes = [];
  undo = [];

  /** Volumes; the first is `volume`. @type {{filesystem: string, mount: string, device: string, id?: string}[]} */
  volumes = [];

  /** Everything is up when this returns. */
  static async start(...filesystems) {
    const machine = new Machine();
    try {
      machine.directory = mkdtempSync(join(tmpdir(), "longrun-console-"));
      machine.undo.push(() => rmSync(machine.directory, { recursive: true, force: true }));
      chmodSync(machine.directory, 0o755);
      for (const filesystem of filesystems.length ? filesystems : ["ext4"]) machine.makeVolume(filesystem);
      machine.mount = machine.volumes[0].mount;
      await machine.startService();
      return machine;
    } catch (error) {
      await machine.end();
      throw error;
    }
  }

  path(name) {
    return join(this.directory, name);
  }

  makeVolume(filesystem) {
    const number = this.volumes.length || "";
    const [image, mount] = [this.path(`image${number}`), this.path(`volume${number}`)];
    writeFileSync(image, "");
    // The smallest that mkfs.xfs makes is 300 MiB.
    truncateSync(image, filesystem === "ext4" ? 256 << 20 : 400 << 20);
    run(`mkfs.${filesystem}`, "-q", ...(filesystem === "ext4" ? ["-b", "4096"] : []), image);
    mkdirSync(mount);
    const device = run("losetup", "--find", "--show", image);
    this.undo.push(() => run("losetup", "--detach", device));
    run("mount", device, mount);
    this.undo.push(() => run("umount", mount));
    writeFileSync(join(mount, "whole"), Buffer.alloc(4 << 20, 1));
    this.volumes.push({ filesystem, mount, device });
  }

  async startService() {
    // The packaged file, with what tests need put into effect: its comments are what an administrator has.
    let text = readFileSync(new URL("../../packaging/longrun.toml", import.meta.url), "utf8");
    for (const [off, on] of [["[service]", "[service]"], ['group = "longrun"', `group = "${OPERATORS}"`], ['viewers = "longrun-viewers"', `viewers = "${VIEWERS}"`],
      ["[defaults]", "[defaults]"], ["enabled = true", "enabled = false"], ['pace = "invisible"', 'pace = "fast" # for the tests']]) {
      text = text.replace(`#: ${off}\n`, `${on}\n`);
    }
    mkdirSync(this.path("etc"));
    this.config = this.path("etc/longrun.toml");
    const sections = this.volumes.map(({ mount }) => `\n[[volume]]\nmount = "${mount}"\nenabled = true\nmending_quiet = "1s"\n`);
    writeFileSync(this.config, text + sections.join(""));
    const log = openSync(this.path("log"), "w");
    this.socket = this.path("socket");
    const words = ["daemon", "--config", this.config, "--socket", this.socket, "--state-directory", this.path("state")];
    this.spawn(process.env.LONGRUN, words, { stdio: ["ignore", log, log] });
    const of = (status, { mount }) => status?.volumes?.find((one) => one.mount === mount && one.prevention);
    await this.until(async () => { const status = await this.status(); return this.volumes.every((volume) => of(status, volume)); });
    const status = await this.status();
    for (const volume of this.volumes) volume.id = of(status, volume).id;
    this.volume = of(status, this.volumes[0]);
  }

  async status() {
    return (await ask(this.socket, "GET", "/v1/status")).json;
  }

  /** Sets a key in the configuration. */
  async set(key, value, section = "defaults") {
    const state = (await ask(this.socket, "GET", "/v1/config", { headers: { host: "x" } })).headers.etag;
    const body = JSON.stringify({ changes: [{ section, key, value }] });
    const changed = await ask(this.socket, "PUT", "/v1/config", { headers: { host: "x", "if-match": state }, body });
    assert.equal(changed.status, 200, changed.text);
  }

  spawn(command, words, options) {
    const child = spawn(command, words, options);
    child.ended = new Promise((resolve) => child.once("exit", resolve));
    this.processes.push(child);
    return child;
  }

  /** longrun-web as a user with the given role; the link that it prints, and a function for the link after the next visit. */
  async startWeb(role, ...words) {
    const command = ["--reuid", String(NOBODY), "--regid", GROUPS[role], "--clear-groups", process.env.LONGRUN_WEB,
      "--listen", "127.0.0.1:0", "--socket", this.socket, ...words];
    const child = this.spawn("setpriv", command, { stdio: ["ignore", "pipe", "inherit"] });
    let said = "";
    child.stdout.on("data", (text) => { said += text; });
    const link = async () => {
      let found;
      await this.until(() => (found = said.match(/http:\/\/\S+token=\w+/)));
      const metrics = said.match(/http:\/\/\S+\/metrics/);
      said = "";
      return [new URL(found[0]), metrics && new URL(metrics[0])];
    };
    const [first, metrics] = await link();
    return { child, link: first, metrics, next: async () => (await link())[0], origin: first.origin };
  }

  async until(wanted) {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        if (await wanted()) return;
      } catch { /* not yet */ }
      if (Date.now() > end) throw new Error(`it never came to that; the log of the service:\n${readFileSync(this.path("log"), "utf8")}`);
      await pause(50);
    }
  }

  async end() {
    for (const child of this.processes.reverse()) child.kill(child.last ?? "SIGTERM");
    for (const child of this.processes) {
      const late = setTimeout(() => child.kill("SIGKILL"), 20000);
      if (child.exitCode === null && child.signalCode === null) await child.ended;
      clearTimeout(late);
    }
    const failed = [];
    for (const undo of this.undo.reverse()) {
      try {
        undo();
      } catch (error) {
        failed.push(error);
      }
    }
    if (failed.length) throw failed[0];
  }
}

/** The headers of a new session of a longrun-web, by its link. */
export async function sessionOf({ link, origin }) {
  const opened = await ask(link, "POST", "/session", { headers: { host: link.host, origin }, body: link.searchParams.get("token") });
  assert.equal(opened.status, 200, opened.text);
  assert.match(opened.json.session, /^[0-9a-f]{64}$/);
  return { "longrun-session": opened.json.session };
}

/** One request, over a Unix socket or TCP. */
export function ask(where, method, path, { headers = {}, body } = {}) {
  const target = typeof where === "string" && where.startsWith("/") ? { socketPath: where } : { host: where.hostname, port: where.port };
  return new Promise((resolve, reject) => {
    const sent = request({ ...target, method, path, headers, agent: false, timeout: 10000 }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        const text = Buffer.concat(parts).toString("utf8");
        let json = null;
        try {
          json = JSON.parse(text);
        } catch { /* a page */ }
        resolve({ status: answer.statusCode, headers: answer.headers, text, json });
      });
    });
    sent.on("error", reject);
    sent.on("timeout", () => sent.destroy(new Error("no answer")));
    sent.end(body);
  });
}
