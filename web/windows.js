//! Windows of the week, such as "mon-fri 08:00-18:00", as minutes of the week and back. Pure; crates/service/src/config/schedule.rs reads the same form.

export const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY = 24 * 60;
const WEEK = 7 * DAY;

/** The minutes of a week that windows cover. What is no window is left out: the service refuses it. @param {string[]} windows */
export function minutes(windows) {
  const covered = new Uint8Array(WEEK);
  for (const text of windows) {
    const parts = /^(\S+)\s+(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})$/.exec(text.trim().toLowerCase());
    if (!parts) continue;
    const [from, end] = [Number(parts[2]) * 60 + Number(parts[3]), Number(parts[4]) * 60 + Number(parts[5])];
    const length = end > from ? end - from : end + DAY - from;
    for (const day of daysOf(parts[1])) {
      for (let minute = 0; minute < length; minute += 1) covered[(day * DAY + from + minute) % WEEK] = 1;
    }
  }
  return covered;
}

/** @param {string} text */
function daysOf(text) {
  if (text === "daily") return DAYS.map((_, day) => day);
  return text.split(",").flatMap((part) => {
    const [first, last = first] = part.split("-").map((name) => DAYS.indexOf(name));
    if (first < 0 || last < 0) return [];
    return Array.from({ length: ((last + 7 - first) % 7) + 1 }, (_, step) => (first + step) % 7);
  });
}

/** @param {number[]} days in order */
function nameOf(days) {
  if (days.length === 7) return "daily";
  const parts = [];
  for (let at = 0; at < days.length;) {
    let end = at;
    while (end + 1 < days.length && days[end + 1] === days[end] + 1) end += 1;
    parts.push(end - at > 1 ? `${DAYS[days[at]]}-${DAYS[days[end]]}` : days.slice(at, end + 1).map((day) => DAYS[day]).join(","));
    at = end + 1;
  }
  return parts.join(",");
}

/** @param {number} minute */
const clock = (minute) => `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;

/** The windows that cover these minutes: days with the same hours together. @param {Uint8Array} covered */
export function windows(covered) {
  if (covered.every((one) => one)) return ["daily 00:00-24:00"];
  /** Days by hours. @type {Map<string, number[]>} */
  const days = new Map();
  const add = (/** @type {number} */ from, /** @type {number} */ length) => {
    const end = (from % DAY) + length;
    const hours = `${clock(from % DAY)}-${clock(end > DAY ? end - DAY : end)}`;
    days.set(hours, [...(days.get(hours) ?? []), Math.floor(from / DAY)].sort());
  };
  for (let start = 0; start < WEEK; start += 1) {
    if (!covered[start] || covered[(start + WEEK - 1) % WEEK]) continue;
    let length = 1;
    while (covered[(start + length) % WEEK]) length += 1;
    // One that is shorter than a day may run past midnight; a longer one is cut at each.
    for (let at = start; length > 0;) {
      const part = length < DAY ? length : Math.min(length, DAY - (at % DAY));
      add(at, part);
      at = (at + part) % WEEK;
      length -= part;
    }
  }
  return [...days].map(([hours, all]) => `${nameOf(all)} ${hours}`).sort();
}
