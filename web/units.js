//! Figures as text. Pure.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number | null | undefined} value bytes */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let [amount, unit] = [value, 0];
  while (Math.abs(amount) >= 1024 && unit < SIZES.length - 1) [amount, unit] = [amount / 1024, unit + 1];
  return `${unit === 0 || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${SIZES[unit]}`;
}

/** Bytes, from a text such as "20GiB"; nothing from what is no size. @param {string} text */
export function sizeOf(text) {
  const parts = /^\s*(\d+)\s*([kmgt]?)(i?b)?\s*$/i.exec(text);
  return parts ? Number(parts[1]) * 1024 ** " kmgt".indexOf(parts[2].toLowerCase() || " ") : null;
}

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
}

/** @param {number} amount @param {string} one @param {string} [several] */
export function counted(amount, one, several = `${one}s`) {
  return `${count(amount)} ${amount === 1 ? one : several}`;
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return `${share > 0 && share < 10 ? share.toFixed(1) : Math.round(share)} %`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([size]) => seconds >= Number(size));
  const [size, name] = /** @type {[number, string]} */ (parts[at]);
  const next = parts[at + 1];
  const rest = next ? Math.floor((seconds % size) / Number(next[0])) : 0;
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

/** @param {string | number | Date} at */
export function time(at) {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** @param {string} at RFC 3339 */
export function ago(at) {
  return `${duration(Math.max(1, (Date.now() - Date.parse(at)) / 1000))} ago`;
}
