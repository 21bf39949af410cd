//! Parses text into a [`Config`]. Pure.

use super::fleet::is_group_name;
use super::table::{Asked, Problem, Problems, Table};
use super::{Config, LogLevel, Matcher, PassMode, ServiceSettings, VolumeChange, VolumeRule, VolumeSettings};
use longrun_layout::Bytes;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: Duration = Duration::from_secs(86_400);
const FLEET: [&str; 3] = ["off", "rest", "go-on"];
const PASSES: [&str; 3] = ["off", "efficient", "full"];
const PACES: [&str; 3] = ["invisible", "balanced", "fast"];

/// The configuration in `text`.
///
/// # Errors
/// Everything that is wrong with it, by line; never empty.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    parse_over(text, &VolumeSettings::default())
}

/// As [`parse`]; what the text does not say of `[defaults]` is as in `base`.
///
/// # Errors
/// As those of [`parse`].
pub fn parse_over(text: &str, base: &VolumeSettings) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let Some(mut root) = Table::of(text, &mut problems) else { return Err(problems.into_found()) };
    let service = service(root.table(&mut problems, "service", "[service]"), &mut problems);
    let defaults = defaults(root.table(&mut problems, "defaults", "[defaults]"), base, &mut problems);
    let tables = root.tables(&mut problems, "volume", "[[volume]]");
    let rules = tables.into_iter().filter_map(|table| rule(table, &defaults, &mut problems)).collect();
    root.finish(&mut problems);
    let found = problems.into_found();
    if found.is_empty() { Ok(Config { service, defaults, rules }) } else { Err(found) }
}

/// The keys of `[service]`, and those of `[defaults]` and `[[volume]]`, in the order in which they are read.
pub fn keys() -> (Vec<Asked>, Vec<Asked>) {
    let mut problems = Problems::of("");
    let none = |name| Table::new(name, 0..0, DeTable::new());
    let (mut service, mut volume) = (none("[service]"), none("[defaults]"));
    service_values(&mut service, &mut problems);
    change(&mut volume, &mut problems);
    (service.asked, volume.asked)
}

fn service(mut table: Table<'_>, problems: &mut Problems<'_>) -> ServiceSettings {
    let settings = service_values(&mut table, problems);
    table.finish(problems);
    settings
}

fn service_values(table: &mut Table<'_>, problems: &mut Problems<'_>) -> ServiceSettings {
    let base = ServiceSettings::default();
    let levels = LogLevel::ALL.map(LogLevel::name).join(", ");
    let level = |text: &str| LogLevel::ALL.into_iter().find(|level| level.name() == text);
    let name = |text: &str| (!text.is_empty() && !text.contains(['/', ':', '\0'])).then(|| text.to_owned());
    ServiceSettings {
        socket: path(table, problems, "socket").unwrap_or(base.socket),
        state_directory: path(table, problems, "state_directory").unwrap_or(base.state_directory),
        group: table.text(problems, "group", "the name of a group", name).or(base.group),
        viewers: table.text(problems, "viewers", "the name of a group", name).unwrap_or(base.viewers),
        readable_by_all: table.boolean(problems, "readable_by_all").unwrap_or(base.readable_by_all),
        settle_after: table
            .duration(problems, "settle_after", Duration::from_millis(100), DAY / 24)
            .unwrap_or(base.settle_after),
        log_level: table
            .choice(problems, "log_level", &format!("one of {levels}"), &LogLevel::ALL.map(LogLevel::name), level)
            .unwrap_or(base.log_level),
        fleet: table
            .choice(problems, "fleet", "\"off\", \"rest\" or \"go-on\"", &FLEET, |text| text.parse().ok())
            .unwrap_or(base.fleet),
    }
}

/// Absolute, so that it means the same wherever the service was started.
fn path(table: &mut Table<'_>, problems: &mut Problems<'_>, key: &'static str) -> Option<PathBuf> {
    table.text(problems, key, "an absolute path", absolute)
}

fn absolute(text: &str) -> Option<PathBuf> {
    (Path::new(text).is_absolute() && !text.contains('\0')).then(|| PathBuf::from(text))
}

fn defaults(mut table: Table<'_>, base: &VolumeSettings, problems: &mut Problems<'_>) -> VolumeSettings {
    let place = table.place.clone();
    let settings = change(&mut table, problems).applied_to(base.clone());
    table.finish(problems);
    check_fit(&settings, &place, problems);
    settings
}

fn rule(mut table: Table<'_>, defaults: &VolumeSettings, problems: &mut Problems<'_>) -> Option<VolumeRule> {
    let place = table.place.clone();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let uuid = |text: &str| some(text).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'));
    let matchers = [
        path(&mut table, problems, "mount").map(Matcher::Mount),
        table.text(problems, "uuid", "a UUID as blkid shows it", uuid).map(|u| Matcher::Uuid(u.to_ascii_lowercase())),
        table.text(problems, "label", "a label as blkid shows it", some).map(Matcher::Label),
        path(&mut table, problems, "device").map(Matcher::Device),
    ];
    let change = change(&mut table, problems);
    table.finish(problems);
    check_fit(&change.applied_to(defaults.clone()), &place, problems);
    let mut matchers = matchers.into_iter().flatten();
    match (matchers.next(), matchers.next()) {
        (Some(matcher), None) => Some(VolumeRule { matcher, change }),
        _ => {
            problems
                .add(&place, "each [[volume]] must name its volume by exactly one of mount, uuid, label and device");
            None
        }
    }
}

/// The settings of a volume that a table names: the keys of `[defaults]` and `[[volume]]`. The caller ends the reading.
pub fn change(table: &mut Table<'_>, problems: &mut Problems<'_>) -> VolumeChange {
    let (least, most) = (Bytes(MIB), Bytes(GIB));
    let any = Bytes(i64::MAX as u64);
    let some = |text: &str| (!text.is_empty() && !text.contains('\0')).then(|| text.to_owned());
    let group = |text: &str| (text.is_empty() || is_group_name(text)).then(|| text.to_owned());
    VolumeChange {
        enabled: table.boolean(problems, "enabled"),
        prevention: table.boolean(problems, "prevention"),
        first_runway: table.size(problems, "first_runway", least, most),
        fragmented_runway: table.size(problems, "fragmented_runway", least, Bytes(64 * MIB)),
        longest_runway: table.size(problems, "longest_runway", least, most),
        floor_share: table.percent(problems, "floor_share", 90),
        floor_bytes: table.size(problems, "floor_bytes", Bytes(0), any),
        held_share: table.percent(problems, "held_share", 50),
        sparse_windows: table.boolean(problems, "sparse_windows"),
        sparse_window: table.size(problems, "sparse_window", least, Bytes(256 * MIB)),
        exclude: table.texts(problems, "exclude", "a pattern such as \"/srv/*.iso\"", some),
        history: table.boolean(problems, "history"),
        xfs_hint: table.boolean(problems, "xfs_hint"),
        xfs_hint_files: table.number(problems, "xfs_hint_files", 2, 1_000_000),
        mending: table.boolean(problems, "mending"),
        mending_budget: table.size(problems, "mending_budget", Bytes(0), any),
        mending_quiet: table.duration(problems, "mending_quiet", Duration::from_millis(500), DAY),
        mending_patience: table.duration(problems, "mending_patience", Duration::ZERO, DAY),
        mending_rests: table.windows(problems, "mending_rests"),
        pace: table
            .choice(problems, "pace", "\"invisible\", \"balanced\" or \"fast\"", &PACES, |text| text.parse().ok()),
        max_duty: table
            .share(problems, "max_duty", "a share such as \"40%\", from 1% to 100%", |text| text.parse().ok()),
        min_progress: table
            .share(problems, "min_progress", "a share such as \"0.5%\", from 0% to 50%", |text| text.parse().ok()),
        pass: table.choice(problems, "pass", "\"off\", \"efficient\" or \"full\"", &PASSES, |text| text.parse().ok()),
        pass_windows: table.windows(problems, "pass_windows"),
        pass_budget: table.size(problems, "pass_budget", Bytes(0), any),
        pass_deadline: table.duration(problems, "pass_deadline", Duration::ZERO, DAY * 366),
        scan_interval: table.duration(problems, "scan_interval", Duration::ZERO, DAY * 366),
        scan_largest: table.size(problems, "scan_largest", Bytes(0), any),
        heat: table.boolean(problems, "heat"),
        storage_group: table.text(
            problems,
            "storage_group",
            "1 to 128 letters, digits, \"-\" and \"_\", or empty",
            group,
        ),
        window_spread: table.duration(problems, "window_spread", Duration::ZERO, DAY),
    }
}

/// Values that are right by themselves must also fit together.
pub fn check_fit(settings: &VolumeSettings, place: &std::ops::Range<usize>, problems: &mut Problems<'_>) {
    if settings.fragmented_runway > settings.first_runway || settings.first_runway > settings.longest_runway {
        problems.add(place, "fragmented_runway, first_runway and longest_runway must not decrease in this order");
        return;
    }
    if !settings.sparse_window.0.is_power_of_two() {
        problems.add(place, "sparse_window must be a power of two such as \"16MiB\"");
        return;
    }
    if settings.pass != PassMode::Off && settings.pass_windows.is_empty() {
        problems.add(place, "pass_windows must have a window when pass is not \"off\"");
        return;
    }
    // The policy has the last word: its patterns, above all.
    if let Err(error) = settings.policy().validate() {
        problems.add(place, error.to_string().escape_debug().to_string());
    }
}
