//! The configuration as a whole: what is read, what is refused, and that what is shown can be read again.

use super::*;
use longrun_governor::{Duty, Pace};
use longrun_layout::Bytes;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::time::Duration;

fn problems(text: &str) -> String {
    let mut shown = String::new();
    for problem in parse(text).unwrap_err() {
        writeln!(shown, "{problem}").unwrap();
    }
    shown
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(parse("[service]\n[defaults]\n").unwrap(), Config::default());
}

#[test]
fn the_example_file_is_valid_and_shows_the_defaults() {
    let text = include_str!("../../../packaging/longrun.toml");
    assert_eq!(parse(text).unwrap(), Config::default(), "everything in it is commented out");
    // Uncommented, each line must be a known key with its default value.
    let active: String = text.lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
    let config = parse(&active).unwrap();
    assert_eq!(config.defaults, VolumeSettings::default());
    let group = config.service.group.clone();
    assert_eq!(config.service, ServiceSettings { group, ..ServiceSettings::default() });
    assert!(!config.rules.is_empty());
    let known = show(&Config { rules: Vec::new(), ..config.clone() });
    for key in known.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
        assert!(text.contains(&format!("#: {key} = ")), "{key} is missing in the example file");
    }
}

#[test]
fn unknown_keys_are_refused_with_line_and_nearest_key() {
    insta::assert_snapshot!(problems("[service]\nsokcet = \"/x\"\n\n[defaults]\nmendign = true\ncolour = 3\n[vloume]\n"), @r#"
    line 2: unknown key "sokcet" in [service]; did you mean socket?
    line 5: unknown key "mendign" in [defaults]; did you mean mending?
    line 6: unknown key "colour" in [defaults]; known are enabled, prevention, first_runway, fragmented_runway, longest_runway, floor_share, floor_bytes, held_share, sparse_windows, sparse_window, exclude, history, xfs_hint, xfs_hint_files, mending, mending_budget, mending_quiet, mending_patience, mending_rests, pace, max_duty, min_progress, pass, pass_windows, pass_budget, pass_deadline, scan_interval, scan_largest, heat, storage_group, window_spread
    line 7: unknown key "vloume" in the top level of the file; did you mean volume?
    "#);
}

#[test]
fn wrong_values_are_refused_with_what_is_allowed() {
    let text = "[service]\nsocket = \"relative\"\nlog_level = \"loud\"\ngroup = 9817\n[defaults]\nenabled = \"yes\"\n\
        first_runway = \"2TiB\"\nfloor_share = \"101%\"\nmending_quiet = \"soon\"\nmending_rests = [\"mon 08:00-09:00\", \"never\"]\n";
    insta::assert_snapshot!(problems(text), @r#"
    line 2: socket in [service] must be an absolute path
    line 3: log_level in [service] must be one of error, warn, info, debug, trace
    line 4: group in [service] must be the name of a group
    line 6: enabled in [defaults] must be true or false
    line 7: first_runway in [defaults] must be a size such as "16MiB", "2G" or "0", from 1MiB to 1GiB
    line 8: floor_share in [defaults] must be a share such as "5%", from 0% to 90%
    line 9: mending_quiet in [defaults] must be a duration such as "500ms", "5s", "30min", "6h" or "1d", from 500ms to 1d
    line 10: mending_rests in [defaults] must be a list, each a window such as "mon-fri 08:00-18:00", "sat,sun 22:00-06:00" or "daily 00:00-24:00"
    "#);
}

#[test]
fn a_rule_must_name_exactly_one_volume_and_values_must_fit_together() {
    let text = "[[volume]]\nenabled = false\n[[volume]]\nmount = \"/a\"\nlabel = \"b\"\n[[volume]]\nmount = \"/c\"\n\
        longest_runway = \"1MiB\"\n[[volume]]\nuuid = \"not hex\"\n";
    insta::assert_snapshot!(problems(text), @r#"
    line 1: each [[volume]] must name its volume by exactly one of mount, uuid, label and device
    line 3: each [[volume]] must name its volume by exactly one of mount, uuid, label and device
    line 6: fragmented_runway, first_runway and longest_runway must not decrease in this order
    line 9: each [[volume]] must name its volume by exactly one of mount, uuid, label and device
    line 10: uuid in [[volume]] must be a UUID as blkid shows it
    "#);
}

#[test]
fn what_is_no_toml_is_refused_with_its_line_and_cannot_drive_a_terminal() {
    insta::assert_snapshot!(problems("[service]\nsocket = \"/x\"\nthis is not toml\n"), @r#"
    line 3: not valid TOML: key with no value, expected `=`
    "#);
    let hostile = problems("[service]\n\"\\u001b[31m\" = 1\n");
    assert!(!hostile.contains('\x1b'), "{hostile:?}");
    insta::assert_snapshot!(problems("service = 3\nvolume = 4\n"), @r#"
    line 1: service must be a table: write [service]
    line 2: volume must be a list of tables: write [[volume]]
    "#);
}

#[test]
fn rules_apply_in_order_over_the_defaults() {
    let config = parse(
        "[defaults]\nmending = false\n[[volume]]\nmount = \"/srv\"\nmending = true\nfloor_share = \"9%\"\n\
         [[volume]]\nuuid = \"ABCD-12\"\nfloor_share = \"3%\"\n[[volume]]\nlabel = \"scratch\"\nenabled = false\n",
    )
    .unwrap();
    let mounts = [PathBuf::from("/srv"), PathBuf::from("/other")];
    let floor = |settings: &VolumeSettings| settings.floor_share.get();
    let by_mount = config.settings_for(&VolumeNames { mounts: &mounts, ..VolumeNames::default() });
    assert_eq!((by_mount.mending, floor(&by_mount)), (true, 9));
    let both = config.settings_for(&VolumeNames { mounts: &mounts, uuid: Some("abcd-12"), ..VolumeNames::default() });
    assert_eq!((both.mending, floor(&both)), (true, 3), "the later rule wins where both say something");
    let scratch = config.settings_for(&VolumeNames { label: Some("scratch"), ..VolumeNames::default() });
    assert!(!scratch.enabled && !scratch.mending);
    assert_eq!(config.settings_for(&VolumeNames::default()), config.defaults);
}

#[test]
fn a_missing_file_is_the_defaults_only_where_nobody_named_it() {
    let missing = Path::new("/nonexistent/longrun.toml");
    let message = load(Some(missing)).unwrap_err().to_string();
    assert!(message.starts_with("/nonexistent/longrun.toml: reading the configuration failed"), "{message}");
}

fn any_change() -> impl Strategy<Value = VolumeChange> {
    let size = || prop::option::of((64u64..1 << 20).prop_map(|kib| Bytes(kib << 10)));
    let windows = prop::collection::vec((0..7usize, 0..24u8, 0..24u8), 0..3).prop_map(|windows| {
        let names = ["mon", "tue", "wed", "thu", "fri", "sat", "daily"];
        let window = |(day, from, to): &(usize, u8, u8)| format!("{} {from}:00-{to}:30", names[*day]).parse().unwrap();
        windows.iter().map(window).collect::<Vec<Window>>()
    });
    let flags = prop::array::uniform7(any::<Option<bool>>());
    let shares = prop::array::uniform2(prop::option::of((0..=50u8).prop_map(Percent::of)));
    let times = (prop::option::of(500..86_400_000u64), prop::option::of(0..400_000u64));
    let lists = (prop::option::of(windows), prop::option::of(prop::collection::vec("/[a-z*?/ ]*[a-z]", 0..3)));
    (flags, prop::array::uniform3(size()), shares, times, lists).prop_map(|(flags, sizes, shares, times, lists)| {
        VolumeChange {
            enabled: flags[0],
            prevention: flags[1],
            mending: flags[2],
            sparse_windows: flags[3],
            history: flags[4],
            xfs_hint: flags[5],
            xfs_hint_files: flags[6].map(|many| if many { 1000 } else { 2 }),
            first_runway: Some(Bytes(1 << 29)),
            fragmented_runway: Some(Bytes(1 << 22)),
            longest_runway: Some(Bytes(1 << 30)),
            sparse_window: flags[0].map(|_| Bytes(1 << 21)),
            floor_share: shares[0],
            held_share: shares[1],
            floor_bytes: sizes[0],
            mending_budget: sizes[1],
            scan_largest: sizes[2],
            heat: flags[3],
            mending_quiet: times.0.map(Duration::from_millis),
            pace: flags[1].map(|some| if some { Pace::Balanced } else { Pace::Fast }),
            max_duty: shares[1].and_then(|share| Duty::try_from(share.get()).ok()),
            min_progress: shares[0].and_then(|share| format!("{}.5%", share.get() / 3).parse().ok()),
            mending_patience: times.0.map(Duration::from_millis),
            scan_interval: times.1.map(Duration::from_secs),
            pass: flags[2].map(|full| if full { PassMode::Full } else { PassMode::Off }),
            pass_windows: lists.0.clone().filter(|windows| !windows.is_empty()),
            pass_budget: sizes[1],
            pass_deadline: times.1.map(Duration::from_secs),
            mending_rests: lists.0,
            exclude: lists.1,
            storage_group: flags[5].map(|some| if some { "san-1_a".to_owned() } else { String::new() }),
            window_spread: times.1.map(|seconds| Duration::from_secs(seconds % 86_400)),
        }
    })
}

proptest! {
    #[test]
    fn what_is_shown_is_the_same_configuration(
        defaults in any_change(), changes in prop::collection::vec((any_change(), "/\\PC*", 0..4u8), 0..4),
        socket in "/\\PC*", group in prop::option::of("[a-z]+"), viewers in "[a-z]+", all in any::<bool>(), level in 0..5usize,
    ) {
        let rules = changes.into_iter().map(|(change, name, kind)| VolumeRule {
            change,
            matcher: match kind {
                0 => Matcher::Mount(name.into()),
                1 => Matcher::Device(name.into()),
                2 => Matcher::Label(name),
                _ => Matcher::Uuid("0fa-e".into()),
            },
        });
        let config = Config {
            service: ServiceSettings {
                socket: socket.into(), group, viewers, readable_by_all: all, log_level: LogLevel::ALL[level],
                ..ServiceSettings::default()
            },
            defaults: defaults.applied_to(VolumeSettings::default()),
            rules: rules.collect(),
        };
        let shown = show(&config);
        prop_assert_eq!(parse(&shown), Ok(config), "{}", shown);
    }

    #[test]
    fn no_text_makes_the_parser_fail_in_another_way(text in "(\\[|\\]|=|\"|\n|[a-z_]| |#|'|\\.|[0-9])*") {
        if let Err(problems) = parse(&text) {
            prop_assert!(!problems.is_empty());
        }
    }
}
