//! Writes a [`Config`] as text: every effective value, in a form that can be read again. Pure.

use super::units::{show_duration, show_size};
use super::{Config, Matcher, Percent, ServiceSettings, VolumeChange};
use std::fmt::Write as _;
use std::path::Path;

/// The configuration as TOML, with everything that is not set at its default.
#[must_use]
pub fn show(config: &Config) -> String {
    let mut text = String::from("[service]\n");
    service(&mut text, &config.service);
    text.push_str("\n[defaults]\n");
    change(&mut text, &VolumeChange::from(&config.defaults));
    for rule in &config.rules {
        text.push_str("\n[[volume]]\n");
        match &rule.matcher {
            Matcher::Mount(point) => put(&mut text, "mount", path(point)),
            Matcher::Uuid(uuid) => put(&mut text, "uuid", string(uuid)),
            Matcher::Label(label) => put(&mut text, "label", string(label)),
            Matcher::Device(node) => put(&mut text, "device", path(node)),
        }
        change(&mut text, &rule.change);
    }
    text
}

/// The settings of a volume as TOML.
#[must_use]
pub fn show_volume(settings: &VolumeChange) -> String {
    let mut text = String::new();
    change(&mut text, settings);
    text
}

fn service(text: &mut String, settings: &ServiceSettings) {
    put(text, "socket", path(&settings.socket));
    put(text, "state_directory", path(&settings.state_directory));
    match &settings.group {
        Some(group) => put(text, "group", string(group)),
        None => text.push_str("# group: none, only root\n"),
    }
    put(text, "viewers", string(&settings.viewers));
    put(text, "readable_by_all", settings.readable_by_all.to_string());
    put(text, "settle_after", string(&show_duration(settings.settle_after)));
    put(text, "log_level", string(settings.log_level.name()));
    put(text, "fleet", string(settings.fleet.name()));
}

fn change(text: &mut String, change: &VolumeChange) {
    let mut some = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            put(text, key, value);
        }
    };
    let size = |bytes| string(&show_size(bytes));
    let duration = |time| string(&show_duration(time));
    let truth = |value: bool| value.to_string();
    let share = |share: Percent| string(&format!("{}%", share.get()));
    some("enabled", change.enabled.map(truth));
    some("prevention", change.prevention.map(truth));
    some("first_runway", change.first_runway.map(size));
    some("fragmented_runway", change.fragmented_runway.map(size));
    some("longest_runway", change.longest_runway.map(size));
    some("floor_share", change.floor_share.map(share));
    some("floor_bytes", change.floor_bytes.map(size));
    some("held_share", change.held_share.map(share));
    some("sparse_windows", change.sparse_windows.map(truth));
    some("sparse_window", change.sparse_window.map(size));
    some("exclude", change.exclude.as_ref().map(|patterns| list(patterns)));
    some("history", change.history.map(truth));
    some("xfs_hint", change.xfs_hint.map(truth));
    some("xfs_hint_files", change.xfs_hint_files.map(|files| files.to_string()));
    some("mending", change.mending.map(truth));
    some("mending_budget", change.mending_budget.map(size));
    some("mending_quiet", change.mending_quiet.map(duration));
    some("mending_patience", change.mending_patience.map(duration));
    some("mending_rests", change.mending_rests.as_ref().map(|windows| list(windows)));
    some("pace", change.pace.map(|pace| string(&pace.to_string())));
    some("max_duty", change.max_duty.map(|duty| string(&duty.to_string())));
    some("min_progress", change.min_progress.map(|least| string(&least.to_string())));
    some("pass", change.pass.map(|pass| string(pass.name())));
    some("pass_windows", change.pass_windows.as_ref().map(|windows| list(windows)));
    some("pass_budget", change.pass_budget.map(size));
    some("pass_deadline", change.pass_deadline.map(duration));
    some("scan_interval", change.scan_interval.map(duration));
    some("scan_largest", change.scan_largest.map(size));
    some("heat", change.heat.map(truth));
    some("storage_group", change.storage_group.as_ref().map(|name| string(name)));
    some("window_spread", change.window_spread.map(duration));
}

/// A TOML list of strings.
pub fn list(items: &[impl ToString]) -> String {
    let items: Vec<String> = items.iter().map(|item| string(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

fn put(text: &mut String, key: &str, value: String) {
    // Writing to a String cannot fail.
    _ = writeln!(text, "{key} = {value}");
}

fn path(path: &Path) -> String {
    string(&path.to_string_lossy())
}

/// A TOML string, in which nothing is left that a terminal would obey.
pub fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || !c.is_ascii() && !c.is_alphanumeric() => {
                _ = write!(quoted, "\\U{:08X}", u32::from(c))
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
