import { empty } from "./dom.js";
/** @type {import("./types").Page} */
export const map = { name: "map", title: "Map", show(root) { root.append(empty("No map.")); return {}; } };
