//! The arithmetic of the map: which level of detail a view needs, what is in its cells, where a cell is drawn. Pure.

/** @typedef {import("./types").MapLevels} MapLevels @typedef {import("./types").View} View @typedef {import("./types").Cells} Cells */

/** Kinds of pieces in `/extents`. */
export const KINDS = ["free", "used", "directory", "metadata"];
const [FREE, , , METADATA] = [0, 1, 2, 3];
/** In `Cells.kind`: no piece lies there, the owner is not known. */
export const UNKNOWN = 255;

/** The sizes of cells that one can zoom to, in blocks, finest first: below the finest level single blocks in steps of four.
 * @param {MapLevels} levels */
export function steps(levels) {
  const sizes = levels.levels.map((one) => one.cell_blocks).sort((a, b) => a - b);
  const finer = [];
  for (let size = (sizes[0] ?? 1) / 4; size >= 1; size /= 4) finer.unshift(Math.max(1, Math.floor(size)));
  if ((finer[0] ?? sizes[0]) > 1) finer.unshift(1);
  return [...new Set([...finer, ...sizes])];
}

/** The view of the whole volume. @param {MapLevels} levels @param {number} side @returns {View} */
export function whole(levels, side) {
  const fits = steps(levels).find((size) => size * side * side >= levels.total_blocks);
  return { from: 0, cell_blocks: fits ?? Math.ceil(levels.total_blocks / (side * side)), side };
}

/** The view with cells of another size, around a block. @param {MapLevels} levels @param {View} view @param {number} block
 * @param {number} by 1 for coarser, -1 for finer @returns {View} */
export function zoomed(levels, view, block, by) {
  const sizes = steps(levels);
  const most = whole(levels, view.side).cell_blocks;
  const at = sizes.findIndex((size) => size >= view.cell_blocks);
  const size = Math.min(most, sizes[Math.max(0, Math.min(sizes.length - 1, (at < 0 ? sizes.length - 1 : at) + by))]);
  return placed(levels, { ...view, cell_blocks: size }, block - (size * view.side * view.side) / 2);
}

/** The view from `block` on, within the volume, beginning with a whole cell. @param {MapLevels} levels @param {View} view
 * @param {number} block @returns {View} */
export function placed(levels, view, block) {
  const shown = view.cell_blocks * view.side * view.side;
  const last = Math.ceil(Math.max(0, levels.total_blocks - shown) / view.cell_blocks) * view.cell_blocks;
  const from = Math.floor(block / view.cell_blocks) * view.cell_blocks;
  return { ...view, from: Math.min(last, Math.max(0, from)) };
}

/** The level that gives a view its cells: the coarsest that is not coarser than the cells; none where only pieces are fine enough.
 * @param {MapLevels} levels @param {View} view */
export function levelOf(levels, view) {
  const fine = levels.levels.filter((one) => one.cell_blocks <= view.cell_blocks);
  return fine.reduce((best, one) => (!best || one.cell_blocks > best.cell_blocks ? one : best), /** @type {any} */ (null));
}

/** @param {number} cells @param {boolean} kinds @returns {Cells} */
function none(cells, kinds) {
  const floats = () => new Float32Array(cells);
  return { used: floats(), fragmented: floats(), fixed: floats(), pieces: floats(), kind: kinds ? new Uint8Array(cells).fill(UNKNOWN) : null };
}

/** The cells of a view, from those of a level. `first` is the number of the level's cell that `bytes` begins with.
 * @param {Uint8Array} bytes @param {number} first @param {number} levelBlocks @param {View} view */
export function fromLevel(bytes, first, levelBlocks, view) {
  const cells = none(view.side * view.side, false);
  const weight = levelBlocks / view.cell_blocks;
  for (let at = 0; at * 4 + 3 < bytes.length; at += 1) {
    const cell = Math.floor(((first + at) * levelBlocks - view.from) / view.cell_blocks);
    if (cell < 0 || cell >= cells.used.length) continue;
    const share = (/** @type {number} */ byte) => (weight * bytes[at * 4 + byte]) / 255;
    cells.used[cell] += share(0);
    cells.fragmented[cell] += share(1);
    cells.fixed[cell] += share(2);
    cells.pieces[cell] += 2 ** (bytes[at * 4 + 3] / 16) - 1;
  }
  return cells;
}

/** The cells of a view, from pieces. What lies in no piece is in use by an unknown owner.
 * @param {import("./types").MapExtents[]} answers @param {View} view @param {number} total blocks of the volume */
export function fromPieces(answers, view, total) {
  const count = view.side * view.side;
  const cells = none(count, true);
  const kinds = /** @type {Uint8Array} */ (cells.kind);
  // The kind of a cell is that of most of its blocks that are in use.
  const most = new Float32Array(count);
  const free = new Float32Array(count);
  for (const answer of answers) {
    answer.start.forEach((start, at) => {
      const [end, kind, flags] = [start + answer.blocks[at], answer.kind[at], answer.flags[at]];
      const firstCell = Math.floor((start - view.from) / view.cell_blocks);
      const lastCell = Math.min(count - 1, Math.ceil((end - view.from) / view.cell_blocks) - 1);
      for (let cell = Math.max(0, firstCell); cell <= lastCell; cell += 1) {
        const left = view.from + cell * view.cell_blocks;
        const share = (Math.min(end, left + view.cell_blocks) - Math.max(start, left)) / view.cell_blocks;
        if (cell === firstCell) cells.pieces[cell] += 1;
        if (kind === FREE) {
          free[cell] += share;
          if (kinds[cell] === UNKNOWN && share >= 1) kinds[cell] = FREE;
          continue;
        }
        if (flags & 2) cells.fragmented[cell] += share;
        if (flags & 1 || kind === METADATA) cells.fixed[cell] += share;
        if (share > most[cell]) [most[cell], kinds[cell]] = [share, kind];
      }
    });
  }
  for (let cell = 0; cell < count; cell += 1) {
    const there = Math.min(1, Math.max(0, (total - view.from - cell * view.cell_blocks) / view.cell_blocks));
    cells.used[cell] = Math.max(0, there - free[cell]);
    if (kinds[cell] === UNKNOWN && cells.used[cell] < 0.001) kinds[cell] = FREE;
  }
  return cells;
}

/** The reads of each cell from an answer about heat; `most` is that of the hottest. @param {import("./types").MapHeat} answer
 * @param {number} count cells of the view @returns {import("./types").Reads} */
export function readsOf(answer, count) {
  const reads = new Float32Array(count);
  answer.cells.slice(0, count).forEach((byte, cell) => { reads[cell] = (2 ** (byte / 8) - 1) / 256; });
  return { reads, most: reads.reduce((most, one) => Math.max(most, one), 0), answer };
}

/** Where a cell is drawn along a Hilbert curve. @param {number} side a power of two @param {number} cell @returns {[number, number]} */
export function hilbert(side, cell) {
  let [x, y, rest] = [0, 0, cell];
  for (let size = 1; size < side; size *= 2) {
    const right = 1 & (rest / 2);
    const up = 1 & (rest ^ right);
    if (!up) {
      if (right) [x, y] = [size - 1 - x, size - 1 - y];
      [x, y] = [y, x];
    }
    [x, y, rest] = [x + size * right, y + size * up, Math.floor(rest / 4)];
  }
  return [x, y];
}

/** Where each cell is drawn: the number of its pixel. @param {number} side @param {boolean} curve */
export function places(side, curve) {
  return Uint32Array.from({ length: side * side }, (_, cell) => {
    if (!curve) return cell;
    const [x, y] = hilbert(side, cell);
    return y * side + x;
  });
}

/** The cells that ranges of blocks touch. @param {number[]} start @param {number[]} blocks @param {View} view @returns {Set<number>} */
export function touched(start, blocks, view) {
  const cells = new Set();
  const count = view.side * view.side;
  start.forEach((first, at) => {
    const from = Math.max(0, Math.floor((first - view.from) / view.cell_blocks));
    const to = Math.min(count - 1, Math.floor((first + blocks[at] - 1 - view.from) / view.cell_blocks));
    for (let cell = from; cell <= to; cell += 1) cells.add(cell);
  });
  return cells;
}
