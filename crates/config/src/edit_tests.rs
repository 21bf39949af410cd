//! What a change does to the text of the file, and what it leaves.

use super::*;
use proptest::prelude::*;

const PACKAGED: &str = include_str!("../../../packaging/longrun.toml");

fn change(section: &str, key: &str, value: Option<ConfigValue>) -> Change {
    Change { section: Section::read(section).unwrap(), key: key.to_owned(), value }
}

fn text(value: &str) -> Option<ConfigValue> {
    Some(ConfigValue::Text(value.to_owned()))
}

/// The lines that `after` has and `before` has not, and the other way round.
fn difference(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let missing = |of: &str, from: &str| {
        let mut left: Vec<&str> = from.lines().collect();
        let lines =
            of.lines().filter(|line| left.iter().position(|other| other == line).map(|at| left.remove(at)).is_none());
        lines.map(str::to_owned).collect()
    };
    (missing(after, before), missing(before, after))
}

#[test]
fn a_setting_of_the_packaged_file_is_put_into_effect_where_it_stands_and_taken_out_again() {
    let rests = Some(ConfigValue::Texts(vec!["mon,tue 08:00-18:00".to_owned()]));
    let once = changed(PACKAGED, &[change("defaults", "mending_rests", rests)]).unwrap();
    let (new, gone) = difference(PACKAGED, &once);
    assert_eq!(new, ["[defaults]", "mending_rests = [\"mon,tue 08:00-18:00\"]"]);
    assert_eq!(gone, ["#: [defaults]", "#: mending_rests = []"]);
    let at = |text: &str, line: &str| text.lines().position(|one| one == line).unwrap();
    assert_eq!(at(&once, &new[1]), at(PACKAGED, &gone[1]), "in its place");
    let both =
        changed(&once, &[change("service", "group", text("disk")), change("defaults", "pace", text("fast"))]).unwrap();
    let (new, gone) = difference(&once, &both);
    assert_eq!(new, ["[service]", "group = \"disk\"", "pace = \"fast\""]);
    assert_eq!(gone, ["#: [service]", "#: group = \"longrun\"", "#: pace = \"invisible\""]);
    let back = changed(&both, &[change("defaults", "pace", None), change("defaults", "mending_rests", None)]).unwrap();
    assert_eq!(difference(PACKAGED, &back).1, ["#: [service]", "#: group = \"longrun\"", "#: [defaults]"]);
}

#[test]
fn a_value_is_replaced_and_everything_around_it_stays() {
    let before = "# mine\n[defaults] # all\n  pace = 'fast'   # because\n\n# two\nexclude = [\n  \"/a\", # a\n  \"/b\",\n]\n[[volume]]\nmount = \"/srv\"\n";
    let after = changed(before, &[change("defaults", "pace", text("balanced"))]).unwrap();
    assert_eq!(after, before.replace("'fast'", "\"balanced\""));
    let after = changed(before, &[change("defaults", "pace", None)]).unwrap();
    assert_eq!(after, before.replace("  pace = 'fast'   # because", "#: pace = \"invisible\" # because"));
    let after =
        changed(before, &[change("defaults", "exclude", Some(ConfigValue::Texts(vec!["/c".to_owned()])))]).unwrap();
    assert!(after.contains("# two\nexclude = [\"/c\"]\n[[volume]]"), "{after}");
    let after = changed(before, &[change("defaults", "mending", Some(ConfigValue::Truth(false)))]).unwrap();
    assert!(after.contains("]\nmending = false\n[[volume]]"), "{after}");
}

#[test]
fn volumes_are_found_by_their_names_and_get_a_section_where_they_have_none() {
    let before = "[[volume]]\nmount = \"/srv\"\npace = \"fast\" # old\n\n[[volume]]\nlabel = \"data\"\n\n[[volume]]\nmount = \"/srv\"\nmending = false\n";
    let after = changed(before, &[change("mount=/srv", "pace", text("balanced"))]).unwrap();
    assert_eq!(after, format!("{before}pace = \"balanced\"\n"), "the later section wins, and is changed");
    let after = changed(before, &[change("mount=/srv", "mending", None)]).unwrap();
    assert_eq!(after, before.replace("mending = false\n", ""));
    let after = changed(before, &[change("label=data", "enabled", Some(ConfigValue::Truth(false)))]).unwrap();
    assert!(after.contains("label = \"data\"\nenabled = false\n\n[[volume]]"), "{after}");
    let after =
        changed(before, &[change("mount=/new \"one\"", "xfs_hint_files", Some(ConfigValue::Number(9)))]).unwrap();
    assert_eq!(after, format!("{before}\n[[volume]]\nmount = \"/new \\\"one\\\"\"\nxfs_hint_files = 9\n"));
    assert_eq!(changed("", &[change("defaults", "pace", text("fast"))]).unwrap(), "[defaults]\npace = \"fast\"\n");
}

#[test]
fn what_would_not_be_valid_is_refused_with_the_words_of_the_checker() {
    let refused = |before: &str, one: Change| changed(before, &[one]).unwrap_err().to_string();
    assert_eq!(
        refused("", change("defaults", "mending_budget", text("much"))),
        "line 2: mending_budget in [defaults] must be a size such as \"16MiB\", \"2G\" or \"0\", from 0 to 9223372036854775807"
    );
    assert!(
        refused("", change("defaults", "longest_runway", text("1MiB"))).contains("must not decrease in this order")
    );
    assert_eq!(refused("", change("defaults", "colour", text("x"))), "unknown key \"colour\" in defaults");
    assert_eq!(refused("", change("service", "pace", text("fast"))), "unknown key \"pace\" in service");
    assert!(refused("[defaults", change("defaults", "pace", text("fast"))).contains("corrected by hand: line 1"));
    assert!(Section::read("volume").is_none() && Section::read("host=x").is_none());
}

#[test]
fn forms_that_are_not_understood_are_refused_and_never_mean_something_else() {
    for (before, one) in [
        ("defaults = { pace = \"fast\" }\n", change("defaults", "mending", Some(ConfigValue::Truth(false)))),
        ("defaults = { pace = \"fast\", mending = true }\n", change("defaults", "pace", None)),
        ("defaults.pace = \"fast\"\n", change("defaults", "mending", Some(ConfigValue::Truth(false)))),
    ] {
        let error = changed(before, &[one]).unwrap_err();
        assert!(matches!(error, EditError::Form { .. }), "{error}");
    }
    // A value can be replaced in every form.
    let one = change("defaults", "pace", text("balanced"));
    assert_eq!(changed("defaults.pace = \"fast\"\n", &[one]).unwrap(), "defaults.pace = \"balanced\"\n");
    // A comment that looks like the header would change what follows it: it is left alone.
    let tricky = "#: [defaults]\n[[volume]]\nmount = \"/a\"\n";
    let after = changed(tricky, &[change("defaults", "pace", text("fast"))]).unwrap();
    assert!(toml::from_str::<Table>(&after).is_ok_and(|table| table.len() == 2), "{after}");
    let hidden = "[service]\n#: [defaults]\nlog_level = \"warn\"\n";
    let after = changed(hidden, &[change("defaults", "pace", text("fast"))]).unwrap();
    assert_eq!(after, format!("{hidden}\n[defaults]\npace = \"fast\"\n"));
}

fn any_value() -> impl Strategy<Value = (&'static str, ConfigValue)> {
    let texts = prop::collection::vec("[/a-z\"\\\\#= \u{e9}]{1,12}", 0..3).prop_map(ConfigValue::Texts);
    prop_oneof![
        any::<bool>().prop_map(|truth| ("mending", ConfigValue::Truth(truth))),
        (2i64..1000).prop_map(|number| ("xfs_hint_files", ConfigValue::Number(number))),
        (0u64..1000).prop_map(|size| ("mending_budget", ConfigValue::Text(format!("{size}GiB")))),
        texts.prop_map(|texts| ("exclude", texts)),
        Just(("pace", ConfigValue::Text("fast".to_owned()))),
    ]
}

proptest! {
    #[test]
    fn any_series_of_changes_of_the_packaged_file_means_what_was_asked_for_and_keeps_its_comments(
        series in prop::collection::vec((any_value(), any::<bool>(), 0..3usize), 1..12)
    ) {
        let mut after = PACKAGED.to_owned();
        let mut wanted = Table::new();
        for ((key, value), keep, section) in series {
            let section = ["defaults", "mount=/srv", "label=x"][section];
            let one = change(section, key, keep.then_some(value));
            let Ok(next) = changed(&after, std::slice::from_ref(&one)) else { continue };
            apply(&mut wanted, &one).unwrap();
            after = next;
            let meant: Table = toml::from_str(&after).unwrap();
            prop_assert_eq!(meant.get("volume"), wanted.get("volume"));
        }
        for comment in PACKAGED.lines().filter(|line| line.starts_with("# ")) {
            prop_assert!(after.contains(comment), "{comment}");
        }
    }
}
