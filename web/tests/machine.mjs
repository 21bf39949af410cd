// A real service on a real loop volume, and longrun-web before it: started for tests, and removed with everything they made.
//
// LONGRUN and LONGRUN_WEB name the binaries.

import { execFileSync, spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PATIENCE_MS = 60000;
const run = (command, ...words) => execFileSync(command, words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Groups that every Debian has: who is in them is for the tests to say. */
const OPERATORS = "operator";
const VIEWERS = "games";
const NOBODY = 65534;
const groupNumber = (name) => readFileSync("/etc/group", "utf8").split("\n").find((line) => line.startsWith(`${name}:`)).split(":")[2];
export const GROUPS = { operator: groupNumber(OPERATORS), viewer: groupNumber(VIEWERS), stranger: String(NOBODY) };

export class Machine {
  processes = [];
  undo = [];

  /** Everything is up when this returns. */
  static async start() {
    const machine = new Machine();
    try {
      machine.directory = mkdtempSync(join(tmpdir(), "longrun-console-"));
      machine.undo.push(() => rmSync(machine.directory, { recursive: true, force: true }));
      chmodSync(machine.directory, 0o755);
      machine.makeVolume();
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

  makeVolume() {
    const image = this.path("image");
    this.mount = this.path("volume");
    writeFileSync(image, "");
    truncateSync(image, 256 << 20);
    run("mkfs.ext4", "-q", "-b", "4096", image);
    mkdirSync(this.mount);
    const device = run("losetup", "--find", "--show", image);
    this.undo.push(() => run("losetup", "--detach", device));
    run("mount", device, this.mount);
    this.undo.push(() => run("umount", this.mount));
    writeFileSync(join(this.mount, "whole"), Buffer.alloc(4 << 20, 1));
  }

  async startService() {
    writeFileSync(this.path("longrun.toml"), `[service]\ngroup = "${OPERATORS}"\nviewers = "${VIEWERS}"\n[defaults]\nenabled = false\n` +
      `pace = "fast"\n[[volume]]\nmount = "${this.mount}"\nenabled = true\nmending_quiet = "1s"\n`);
    const log = openSync(this.path("log"), "w");
    this.socket = this.path("socket");
    const words = ["daemon", "--config", this.path("longrun.toml"), "--socket", this.socket, "--state-directory", this.path("state")];
    this.spawn(process.env.LONGRUN, words, { stdio: ["ignore", log, log] });
    await this.until(async () => (await this.status())?.volumes?.some((one) => one.mount === this.mount && one.prevention));
    this.volume = (await this.status()).volumes.find((one) => one.mount === this.mount);
  }

  async status() {
    return (await ask(this.socket, "GET", "/v1/status")).json;
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
    for (const child of this.processes.reverse()) child.kill("SIGTERM");
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
