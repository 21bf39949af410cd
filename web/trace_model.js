//! Histograms of a trace as rows. Pure.

/** @typedef {import("./types").Histogram} Histogram */

/** The time below which the values of a bucket are. Four buckets have a doubling together: their last bound is 4, 8, 16 … µs less one. Pure.
 * @param {number | null} upto microseconds */
export const doubling = (upto) => (upto === null ? Infinity : 2 ** Math.ceil(Math.log2(Math.max(4, upto + 1))));

/** The rows of two histograms, from the first bucket with something in it to the last: bound, and how many of each. Pure.
 * @param {Histogram} first @param {Histogram} second @param {(upto: number | null) => number} bound
 * @returns {[number, number, number][]} */
export function rows(first, second, bound) {
  /** @type {Map<number, [number, number]>} */
  const all = new Map();
  [first, second].forEach(({ buckets }, which) => buckets.forEach(({ upto, count: many }) => {
    const row = all.get(bound(upto)) ?? [0, 0];
    row[which] += many;
    all.set(bound(upto), row);
  }));
  return [...all].sort(([a], [b]) => a - b).map(([upto, [one, other]]) => [upto, one, other]);
}

/** A time as people read it. Pure. @param {number} us microseconds */
export const short = (us) => (us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${+(us / 1000).toPrecision(3)} ms` : `${+(us / 1e6).toPrecision(3)} s`);
