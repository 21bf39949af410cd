// The parts of the API that the console reads (docs/openapi.json), and what its modules give each other. Only for checking.

export interface Space { total_bytes: number; free_bytes: number; available_bytes: number; free_pieces: number | null; largest_free_bytes: number | null }
export interface Probes { usual_us: number; recent_us: number }
export interface Governor {
  pace: string; devices: string[]; disk: string | null; own_bytes: number; foreign_bytes: number; pauses: number; paused_seconds: number;
  pausing: string | null; waits_for: string | null; other_program: string | null; probes: Probes | null;
}
export interface Volume {
  id: string; mount: string; device: string; filesystem: string; label: string | null; enabled: boolean; prevention: boolean;
  mending: boolean; mending_rests: string | null; trouble: string | null;
  prevented: { fragments: number; slipped: number; runways: number; held_bytes: number; grants: number; short_of_space: boolean };
  mended: { files: number; fragments: number; moved_bytes: number; failed: number };
  saved: { requests: number; seconds: number };
  governor: Governor; space: Space;
  scan: { at: string; files: number; fragmented_files: number; excess_fragments: number } | null;
  health: { level: "unknown" | "good" | "alert"; sentence: string };
}
export interface Status {
  version: string; healthy: boolean; troubles: string[]; uptime_seconds: number;
  sensor: { kind: string; reason: string | null; signals: number; lost: number; broken: string | null } | null;
  reaction: { count: number; p50_us: number; p99_us: number; max_us: number };
  queue: number; journal_files: number;
  mending: { queued: number; queued_excess: number; waiting: Record<string, number>; at_work: boolean; rests: boolean; paused: boolean; paused_until: string | null };
  history: { recording: boolean; note: string | null; dropped: number; bytes: number };
  own: { cpu_seconds: number; resident_bytes: number; io_bytes: number; threads: number; open_files: number };
  volumes: Volume[];
}
export type Role = "stranger" | "guest" | "viewer" | "operator";
export interface State { status: Status | null; role: Role; past: { at: number; status: Status }[] }
export interface Shown { update?(state: State): void; end?(): void }
/** `alone`: the page shows nothing of the service, and is of use without it. */
export interface Page { name: string; title: string; alone?: boolean; show(root: HTMLElement, state: State): Shown }

export interface MapScan { number: number; at: string; age_seconds: number }
export interface MapLevel { level: number; cells: number; cell_blocks: number; cell_bytes: number }
export interface MapLevels { scan: MapScan; block_size: number; total_blocks: number; files: number; file_extents: number; pieces: number; levels: MapLevel[]; pass: MapPass | null }
export interface MapPass { job: number; ended: string; moved_bytes: number; before: JobFigures | null; after: JobFigures | null; scanned_since: boolean }
export interface MapExtents { scan: MapScan; next: number | null; start: number[]; blocks: number[]; kind: number[]; flags: number[]; owner: number[]; areas: string[] }
export interface MapFile { number: number; path: string | null; no_path: string | null; inode: number; directory: boolean; fixed: string | null; extents: number; fragments: number; blocks: number }
export interface BlockOwner { block: number; kind: string; start: number; blocks: number; area: string | null; file: MapFile | null; shared: boolean }
export interface FileExtents { file: MapFile; next: number | null; start: number[]; blocks: number[] }
export interface MapHeat { no_heat: string | null; began: string | null; reads: number; reads_on_map: number; cells: number[] }
export interface Reads { reads: Float32Array; most: number; answer: MapHeat }
/** Part of the volume: `cell_blocks` blocks in each of `side * side` cells, from block `from`. */
export interface View { from: number; cell_blocks: number; side: number }
/** A cell: shares from 0 to 1; `kind` where it is known. */
export interface Cells { used: Float32Array; fragmented: Float32Array; fixed: Float32Array; pieces: Float32Array; kind: Uint8Array | null }

export type ConfigValue = boolean | number | string | string[];
export interface ConfigKey {
  key: string; kind: string; default: ConfigValue | null; meaning: string; allowed: string; choices: string[]; needs_restart: boolean; may_change: boolean;
}
export interface ConfigFile {
  path: string; exists: boolean; text: string; trouble: string | null; applied: boolean; service_keys: ConfigKey[]; volume_keys: ConfigKey[];
  sections: { section: string; values: Record<string, ConfigValue> }[]; service: Record<string, ConfigValue>;
  volumes: { id: string; mount: string; settings: Record<string, ConfigValue> }[];
}
export interface ConfigChange { section: string; key: string; value: ConfigValue | null }

export interface JobRequest { volume: string; task: string; mode: string; dry_run: boolean; consolidate: boolean; budget: number | null; deadline: number | null }
export interface JobFigures { excess: number; free_pieces: number | null; largest_free_bytes: number | null }
export interface Job {
  id: number; volume: string; mount: string; task: string; mode: string; dry_run: boolean; by: string; state: string; reason: string | null;
  created: string; started: string | null; ended: string | null;
  progress: { phase: string; done_bytes: number; total_bytes: number; fraction: number; eta_seconds: number | null };
  moved_bytes: number; before: JobFigures | null; after: JobFigures | null; summary: string | null;
}

export interface Histogram { unit: string; buckets: { upto: number | null; count: number }[] }
export interface TraceClass { requests: number; bytes: number; completed: number; errors: number; distances: number; sequential: number; latency_seconds: number; sizes: Histogram; latency: Histogram }
export interface TraceDevice { name: string; all: { reads: TraceClass; writes: TraceClass } }
export interface VolumeTrace {
  running: boolean; ends: string | null; trouble: string | null;
  recording: { started: string; seconds: number; devices: TraceDevice[] } | null;
}

export interface FleetSession { role: Role; server: string | null; answered: string | null; watching: number | null }
export interface FleetTotals { prevented: number; mended: number; by_passes: number; moved_bytes: number; requests_saved: number; saved_us: number; reclaimed_bytes: number; given_back_bytes: number }
export interface FleetHost {
  host: string; enrolled: boolean | null; silent: boolean; policy_wanted: number | null;
  state: {
    version: string; at: number; labels: Record<string, string>; activity: string; troubles: string[]; alerts: string[]; mode: string; policy: number | null;
    policy_trouble: string | null; volumes: { excess_fragments: number | null }[]; month: FleetTotals;
  } | null;
}
export interface FleetGroup {
  group: string; slots: number | null; bytes_per_day: number | null; latency_limit_us: number | null; holders: string[]; moved?: { day: number; bytes: number };
}
export interface FleetLease { group: string; slot: number; held: boolean; host: string; until: string | null }
export interface FleetReport { hosts: number; day: FleetTotals; month: FleetTotals; all: FleetTotals; without_benefit: string[]; unknown: string[] }
export interface FleetPolicy {
  version: number; previous: number | null; stage: "canary" | "all" | "stopped"; says: string; document: { version: number; source: string; says: string };
}
