//! The map: the blocks of a volume as cells, from the whole device to single blocks, and whose they are.

import { choice, empty, fill, h, say } from "./dom.js";
import { fromLevel, fromPieces, KINDS, levelOf, placed, places, readsOf, touched, UNKNOWN, whole, zoomed } from "./map_model.js";
import { get, getBytes, post } from "./transport.js";
import { ago, bytes, count, counted, percent, time } from "./units.js";

/** @typedef {import("./types").MapLevels} MapLevels @typedef {import("./types").View} View @typedef {import("./types").Cells} Cells */

/** So many answers with pieces are fetched for one view at most. */
const MOST_ANSWERS = 8;
const MOST_CELLS = 65536;
/** Only so many extents of a file are lit. */
const MOST_LIT = 16384;

/** Names of colours and what they mean. @type {Record<string, [string, string][]>} */
const LEGENDS = {
  state: [["used", "in use, whole"], ["fragmented", "of fragmented files"], ["fixed", "cannot be moved"], ["free", "free"]],
  kind: [["used", "files"], ["directory", "directories"], ["metadata", "the file system's own"], ["fixed", "unknown"], ["free", "free"]],
  pieces: [["free", "one piece"], ["fragmented", "many pieces in a cell"]],
  heat: [["free", "free"], ["cold", "in use, not read"]],
};

/** @param {string} name @returns {number[]} red, green and blue */
function colour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(`--map-${name}`).trim();
  const digits = text.length === 4 ? [...text.slice(1)].map((one) => one + one) : (text.slice(1).match(/../g) ?? []);
  return digits.map((one) => parseInt(one, 16));
}

/** @param {number[]} a @param {number[]} b @param {number} share of b */
const mixed = (a, b, share) => a.map((value, at) => value + (b[at] - value) * Math.min(1, Math.max(0, share)));

/** @param {number} reads */
const readText = (reads) => (reads <= 0 ? "not read" : reads < 1 ? "less than one read" : `about ${counted(Math.round(reads), "read")}`);

/** The colour of each cell. @param {Cells} cells @param {string} by @param {import("./types").Reads | null} heat @returns {(cell: number) => number[]} */
function colours(cells, by, heat) {
  const [free, used, fragmented, fixed, directory, metadata] = ["free", "used", "fragmented", "fixed", "directory", "metadata"].map(colour);
  if (by === "pieces") return (cell) => mixed(free, fragmented, Math.log2(1 + cells.pieces[cell]) / 8);
  if (by === "heat" && heat) {
    const [cold, warm, hot] = ["cold", "warm", "hot"].map(colour);
    const steps = Math.log2(1 + heat.most);
    return (cell) => (heat.reads[cell] > 0 ? mixed(warm, hot, Math.log2(1 + heat.reads[cell]) / steps) : mixed(free, cold, Math.sqrt(cells.used[cell])));
  }
  const { kind } = cells;
  if (by === "kind" && kind) {
    const each = [free, used, directory, metadata];
    return (cell) => (kind[cell] === UNKNOWN ? fixed : each[kind[cell]]);
  }
  return (cell) => {
    const all = cells.used[cell];
    // What is rare in a cell stays visible: a share counts as its square root.
    const inside = mixed(mixed(used, fixed, cells.fixed[cell] / (all || 1)), fragmented, Math.sqrt(cells.fragmented[cell] / (all || 1)));
    return mixed(free, inside, Math.sqrt(all));
  };
}

/** @type {import("./types").Page} */
export const map = {
  name: "map",
  title: "Map",
  show(root, state) {
    if (state.role === "guest") {
      root.append(empty("The map names files.", "Viewers and operators see it."));
      return {};
    }
    const side = innerWidth < 500 ? 64 : 128;
    const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Map of the volume", width: side * 5, height: side * 5 });
    const [chooser, age, legend, facts, hint] = [h("div", { class: "bar" }), h("p", { class: "quiet" }), h("ul", { class: "legend" }), h("div", { "aria-live": "polite" }), h("p", { class: "quiet" })];
    const [where, message, passes] = [h("p", { "aria-live": "polite" }), h("div"), h("div", { class: "bar" })];
    /** @param {string} text @param {string} name @param {() => void} act */
    const button = (text, name, act) => h("button", { "aria-label": name, title: name, onclick: act }, text);
    const tools = h("div", { class: "bar" }, button("+", "Zoom in", () => zoom(-1)), button("−", "Zoom out", () => zoom(1)), button("◀", "Earlier blocks", () => pan(-1)),
      button("▶", "Later blocks", () => pan(1)), button("Whole", "Whole volume", () => focus(whole(needed(), side), meant)));
    const path = h("input", { type: "search", placeholder: "path below the mount point", size: 30 });
    const search = h("form", { class: "bar", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); find(path.value); } }, h("label", {}, "File ", path), h("button", {}, "Find"));
    const body = h("div", { class: "map" }, h("div", {}, tools, canvas, legend, where), h("div", {}, search, hint, facts));
    root.append(chooser, passes, age, message, body);

    let [volume, known, by, curve] = ["", "", "state", false];
    /** Whether the map from before the last pass is shown. */
    let before = false;
    /** @type {MapLevels | null} */
    let levels = null;
    /** @type {View | null} */
    let view = null;
    /** @type {Cells | null} */
    let cells = null;
    /** The reads of each cell of the view, and the answer that they are from. @type {import("./types").Reads | null} */
    let heat = null;
    /** @type {{start: number[], blocks: number[]}} */
    let lit = { start: [], blocks: [] };
    /** The cell that the keyboard or the pointer is on, and the block in it that is meant. */
    let [chosen, meant] = [0, 0];
    let order = places(side, curve);
    let asked = 0;
    const base = () => `/v1/volumes/${encodeURIComponent(volume)}`;
    /** What every request about the map ends with. */
    const which = () => (before ? "&before=true" : "");
    const needed = () => /** @type {MapLevels} */ (levels);

    /** The switch between the maps from before and after the last pass, and its figures. */
    function compare() {
      const { pass } = needed();
      if (!pass) return;
      /** @param {(figures: import("./types").JobFigures) => number | null} of @param {string} name */
      const change = (of, name) => {
        const [from, to] = [pass.before && of(pass.before), pass.after && of(pass.after)];
        return from === null || to === null ? null : `${name} ${count(from)} → ${count(to)}`;
      };
      const figures = [change((one) => one.excess, "excess fragments"), change((one) => one.free_pieces, "pieces of free space"), `${bytes(pass.moved_bytes)} moved`];
      fill(passes, choice("Show", [["after", "the last scan"], ["before", "before the last pass"]], before ? "before" : "after", (value) => { before = value === "before"; open(view); }),
        h("span", { class: "quiet" }, `Pass ${pass.job}, ended ${time(pass.ended)}: ${figures.filter((one) => one !== null).join(", ")}.${pass.scanned_since ? "" : " There was no scan since."}`));
    }

    /** @param {View | null} at what to show; the whole volume otherwise */
    async function open(at = null) {
      [levels, view, cells, heat, lit] = [null, null, null, null, { start: [], blocks: [] }];
      body.hidden = true;
      fill(message);
      fill(age);
      fill(facts);
      fill(passes);
      if (!volume) return;
      const mine = ++asked;
      try {
        const got = await get(`${base()}/map/levels${before ? "?before=true" : ""}`);
        if (mine !== asked) return;
        levels = got;
      } catch (problem) {
        if (mine !== asked) return;
        const refusal = /** @type {import("./transport.js").Refusal} */ (problem);
        if (before && refusal.status === 404) {
          // It was replaced or removed meanwhile.
          before = false;
          return open(at);
        }
        const scan = h("button", { onclick: async () => {
          try {
            fill(message, empty((await post(`${base()}/analyze`)).accepted, "The map appears when it has finished."));
          } catch (why) { fill(message, empty(String(/** @type {Error} */ (why).message))); }
        } }, "Scan now");
        return fill(message, refusal.status === 404 ? empty("No scan of this volume has left a map yet.", "Scans are made once a day (scan_interval), or on request.") : empty(refusal.message, refusal.hint),
          refusal.status === 404 && state.role === "operator" && scan);
      }
      body.hidden = false;
      compare();
      const { scan, total_blocks: total, block_size: size, files, pieces } = needed();
      say(age, `Scanned ${ago(scan.at)}: ${bytes(total * size)}, ${counted(files, "file")}, ${counted(pieces, "piece")}. ${before ? "This is how it was before the pass." : "What happened since is not shown."}`);
      await show(at === null ? whole(needed(), side) : placed(needed(), at, at.from));
    }

    /** Fetches and draws a view. @param {View} next */
    async function show(next) {
      const mine = ++asked;
      view = next;
      const shown = view.cell_blocks * side * side;
      try {
        const got = await Promise.all([fetched(next, Math.min(needed().total_blocks, next.from + shown)), by === "heat" ? heatOf(next) : null]);
        if (mine !== asked) return;
        [cells, heat] = got;
      } catch (problem) {
        if (mine === asked) fill(message, empty(`This part cannot be shown: ${/** @type {Error} */ (problem).message}`));
        return;
      }
      fill(message);
      draw();
    }

    /** @param {View} next @param {number} to @returns {Promise<Cells>} */
    async function fetched(next, to) {
      const level = levelOf(needed(), next);
      const fallback = needed().levels.reduce((best, one) => (one.cell_blocks < best.cell_blocks ? one : best));
      if (!level) {
        const answers = [];
        for (let from = /** @type {number | null} */ (next.from); from !== null && from < to && answers.length < MOST_ANSWERS; from = answers[answers.length - 1].next) {
          answers.push(await get(`${base()}/extents?from=${from}&to=${to}${which()}`));
        }
        if (answers.at(-1)?.next === null || (answers.at(-1)?.next ?? 0) >= to) return fromPieces(answers, next, needed().total_blocks);
      }
      const { level: number, cell_blocks: size, cells: most } = level ?? fallback;
      const first = Math.floor(next.from / size);
      const wanted = Math.min(MOST_CELLS, most - first, Math.ceil((to - next.from) / size));
      const answer = await getBytes(`${base()}/map?level=${number}&from=${first}&count=${wanted}${which()}`);
      return fromLevel(answer.bytes, first, size, next);
    }

    /** The reads of the cells of a view; what is not known has its reason. @param {View} next @returns {Promise<import("./types").Reads>} */
    async function heatOf(next) {
      try {
        return readsOf(await get(`${base()}/map/heat?from=${next.from}&cell=${next.cell_blocks}&count=${side * side}${which()}`), side * side);
      } catch (problem) {
        return { reads: new Float32Array(side * side), most: 0, answer: { no_heat: /** @type {Error} */ (problem).message, began: null, reads: 0, reads_on_map: 0, cells: [] } };
      }
    }

    /** What the cells are coloured by: what is not known is not drawn. */
    const shownBy = () => ((by === "kind" && !cells?.kind) || (by === "heat" && (heat?.answer.no_heat ?? null) !== null) ? "state" : by);

    /** The meaning of the colours. @param {boolean} chosen whether something is lit */
    function explain(chosen) {
      const names = [...LEGENDS[shownBy()]];
      let note = by === "kind" && !cells?.kind ? "kinds are known at a finer zoom" : null;
      if (by === "heat" && heat) {
        const { no_heat: why, began, reads, reads_on_map: here } = heat.answer;
        if (why !== null) note = `Heat is not known, so that the colours are by state: ${why}.`;
        else if (heat.most > 0) names.push(["warm", "few reads"], ["hot", `${readText(heat.most)} in a cell, the most here`]);
        note ??= `${counted(here, "read")} of ${count(reads)} counted since ${began ? time(began) : "the beginning"} are of files on the map. Counts lose half of their value in seven days; a file's reads are spread evenly over its blocks.`;
      }
      fill(legend, ...names.map(([name, text]) => h("li", { class: name }, text)), chosen ? h("li", { class: "lit" }, "what was chosen") : null, note === null ? null : h("li", { class: "quiet" }, note));
    }

    function draw() {
      if (!view || !cells) return;
      const picture = new ImageData(side, side);
      const of = colours(cells, shownBy(), heat);
      for (let cell = 0; cell < order.length; cell += 1) {
        const outside = view.from + cell * view.cell_blocks >= needed().total_blocks;
        const [red, green, blue] = of(cell);
        picture.data.set([red, green, blue, outside ? 0 : 255], order[cell] * 4);
      }
      const small = new OffscreenCanvas(side, side);
      small.getContext("2d")?.putImageData(picture, 0, 0);
      const context = canvas.getContext("2d");
      const pixel = canvas.width / side;
      context.imageSmoothingEnabled = false;
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(small, 0, 0, canvas.width, canvas.height);
      const [red, green, blue] = colour("lit");
      context.strokeStyle = context.fillStyle = `rgb(${red} ${green} ${blue})`;
      for (const cell of touched(lit.start, lit.blocks, view)) {
        context.fillRect((order[cell] % side) * pixel + 1, Math.floor(order[cell] / side) * pixel + 1, pixel - 2, pixel - 2);
      }
      context.lineWidth = 2;
      context.strokeRect((order[chosen] % side) * pixel - 1, Math.floor(order[chosen] / side) * pixel - 1, pixel + 2, pixel + 2);
      const size = needed().block_size;
      const to = Math.min(needed().total_blocks, view.from + view.cell_blocks * side * side);
      say(hint, `A cell is ${counted(view.cell_blocks, "block")} (${bytes(view.cell_blocks * size)}); shown are the blocks from ${count(view.from)} to ${count(to - 1)} of ${count(needed().total_blocks)}.`);
      canvas.setAttribute("aria-label", `Map of ${bytes((to - view.from) * size)} from ${bytes(view.from * size)} on. Arrow keys choose a cell, Enter tells whose it is, plus and minus zoom, Page Up and Page Down move.`);
      explain(lit.start.length > 0);
      tell();
    }

    /** What the chosen cell holds. */
    function tell() {
      if (!view || !cells) return;
      const block = view.from + chosen * view.cell_blocks;
      if (block >= needed().total_blocks) return say(where, "Beyond the end of the volume.");
      const share = (/** @type {Float32Array} */ of) => percent(Math.min(1, of[chosen]), 1);
      const what = cells.kind && view.cell_blocks === 1 ? (cells.kind[chosen] === UNKNOWN ? "unknown owner" : KINDS[cells.kind[chosen]])
        : `${share(cells.used)} in use, ${share(cells.fragmented)} of fragmented files, ${share(cells.fixed)} fixed`;
      const read = shownBy() === "heat" && heat ? `, ${readText(heat.reads[chosen])}` : "";
      say(where, `Block ${count(block)}${view.cell_blocks > 1 ? ` to ${count(Math.min(needed().total_blocks, block + view.cell_blocks) - 1)}` : ""}: ${what}${read}.`);
    }

    /** Shows a view, and chooses the cell that holds a block. @param {View} next @param {number} block */
    function focus(next, block) {
      chosen = Math.max(0, Math.min(order.length - 1, Math.floor((block - next.from) / next.cell_blocks)));
      meant = block;
      return show(next);
    }

    /** Zooms around the chosen cell. @param {number} by */
    const zoom = (by) => view && focus(zoomed(needed(), view, meant, by), meant);
    /** @param {number} by quarters of what is shown */
    async function pan(by) {
      if (!view) return;
      await show(placed(needed(), view, view.from + (by * view.cell_blocks * side * side) / 4));
      choose(chosen);
    }

    /** Whose a block is. @param {number} block */
    async function ask(block) {
      try {
        const owner = await get(`${base()}/owner?block=${block}${which()}`);
        if (owner.file) return await light(`file=${owner.file.number}`, block);
        lit = { start: [owner.start], blocks: [owner.blocks] };
        const kind = owner.kind === "metadata" ? `the file system: ${owner.area}` : owner.kind === "free" ? "free" : "in use; by whom is not known";
        fill(facts, list([["Block", count(block)], ["Owner", kind], ["Piece", `${counted(owner.blocks, "block")} from ${count(owner.start)}`]]));
        draw();
      } catch (problem) { failed(problem); }
    }

    /** @param {string} text */
    async function find(text) {
      if (!text.trim()) return;
      const volumes = state.status?.volumes ?? [];
      const mount = volumes.find((one) => one.id === volume)?.mount ?? "";
      const whole = text.startsWith(`${mount}/`) ? text : `${mount.replace(/\/$/, "")}/${text.replace(/^\/+/, "")}`;
      await light(`path=${encodeURIComponent(whole)}`, null);
    }

    /** Lights a file, and tells of it. @param {string} asks @param {number | null} block */
    async function light(asks, block) {
      try {
        /** @type {{start: number[], blocks: number[]}} */
        const all = { start: [], blocks: [] };
        let answer;
        for (let from = /** @type {number | null} */ (0); from !== null && all.start.length < MOST_LIT; from = answer.next) {
          answer = await get(`${base()}/file?${asks}&from=${from}${which()}`);
          all.start.push(...answer.start);
          all.blocks.push(...answer.blocks);
        }
        const file = /** @type {import("./types").MapFile} */ (answer.file);
        lit = all;
        const first = all.start[0];
        fill(facts, h("h2", {}, file.path ?? file.no_path ?? `inode ${file.inode}`), list([
          ["Block", block === null ? null : count(block)], ["Kind", file.directory ? "directory" : "file"], ["Size on the volume", bytes(file.blocks * needed().block_size)],
          ["Fragments", count(file.fragments)], ["Extents", count(file.extents)], ["Inode", String(file.inode)], ["Cannot be moved", file.fixed]]),
        first === undefined ? null : h("button", { onclick: () => view && focus(placed(needed(), view, first - (view.cell_blocks * side * side) / 2), first) }, "Go to its beginning"));
        draw();
      } catch (problem) { failed(problem); }
    }

    /** @param {unknown} problem */
    function failed(problem) {
      const refusal = /** @type {import("./transport.js").Refusal} */ (problem);
      fill(facts, empty(refusal.message, refusal.hint));
    }

    /** @param {[string, string | null][]} pairs */
    const list = (pairs) => h("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== null).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

    /** The cell under the pointer. @param {MouseEvent} event */
    function under(event) {
      const box = canvas.getBoundingClientRect();
      const at = (/** @type {number} */ offset, /** @type {number} */ length) => Math.max(0, Math.min(side - 1, Math.floor((offset / length) * side)));
      return order.indexOf(at(event.clientY - box.top, box.height) * side + at(event.clientX - box.left, box.width));
    }
    /** @param {number} cell */
    function choose(cell) {
      chosen = cell;
      if (view) meant = Math.min(needed().total_blocks - 1, view.from + Math.floor((cell + 0.5) * view.cell_blocks));
    }
    canvas.addEventListener("mousemove", (/** @type {MouseEvent} */ event) => { choose(under(event)); tell(); });
    canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => { choose(under(event)); ask(meant); });
    canvas.addEventListener("dblclick", () => zoom(-1));
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      // With Ctrl or a pinch only: the page can still be scrolled over the map.
      if (!event.ctrlKey) return;
      event.preventDefault();
      choose(under(event));
      zoom(Math.sign(event.deltaY));
    }, { passive: false });
    canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      /** @type {Record<string, [number, number]>} */
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const move = moves[event.key];
      /** @type {Record<string, () => void>} */
      const acts = { "+": () => zoom(-1), "-": () => zoom(1), PageUp: () => pan(-1), PageDown: () => pan(1), Home: () => focus(whole(needed(), side), meant), Enter: () => ask(meant) };
      if (move) {
        const [x, y] = [(order[chosen] % side) + move[0], Math.floor(order[chosen] / side) + move[1]];
        if (x >= 0 && y >= 0 && x < side && y < side) choose(order.indexOf(y * side + x));
        draw();
      } else if (acts[event.key]) acts[event.key]();
      else return;
      event.preventDefault();
    });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return {
      update({ status }) {
        const volumes = (status?.volumes ?? []).filter((one) => one.enabled);
        const ids = volumes.map((one) => [one.id, one.scan?.at]).join();
        if (ids === known) return;
        known = ids;
        if (!volumes.some((one) => one.id === volume)) [volume, before] = [volumes[0]?.id ?? "", false];
        fill(chooser, volumes.length ? choice("Volume", volumes.map((one) => [one.id, one.mount]), volume, (id) => { [volume, before] = [id, false]; open(); }) : empty("No volume is enabled."),
          choice("Layout", [["rows", "rows"], ["curve", "Hilbert curve"]], curve ? "curve" : "rows", (value) => { curve = value === "curve"; order = places(side, curve); draw(); }),
          choice("Colours", [["state", "by state"], ["kind", "by kind"], ["pieces", "by pieces"], ["heat", "by heat"]], by, (value) => {
            by = value;
            if (by === "heat" && view) show(view);
            else draw();
          }));
        open();
      },
      end: () => scheme.removeEventListener("change", draw),
    };
  },
};
