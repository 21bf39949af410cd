//! What a document may say, what is refused and with which line, and what follows for a host.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

const GOOD: &str = r#"
name = "servers 2026-11"
[defaults]
pace = "invisible"
exclude = ["*.iso"]
pass = "efficient"
pass_windows = ["sat 01:00-05:00"]
[[rule]]
where = { role = "database", site = ["fra", "muc"] }
settings = { mending_budget = "50GiB", exclude = ["*.ibd"] }
[[rule]]
where = { site = "muc" }
settings = { mending_budget = "5GiB", mending = false }
"#;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

fn problems(text: &str) -> String {
    Document::parse(text).unwrap_err().iter().fold(String::new(), |mut all, problem| {
        writeln!(all, "{problem}").unwrap();
        all
    })
}

#[test]
fn later_rules_win_exclusions_add_up_and_hosts_without_the_labels_are_left_alone() {
    let document = Document::parse(GOOD).unwrap();
    assert_eq!(document.name, "servers 2026-11");
    let shown = |pairs: &[(&str, &str)]| document.settings_for(&labels(pairs)).unwrap();
    let all = "[defaults]\nexclude = [\"*.iso\"]\npace = \"invisible\"\npass = \"efficient\"\npass_windows = [\"sat 01:00-05:00\"]\n";
    assert_eq!(shown(&[]), all);
    assert_eq!(shown(&[("role", "database")]), all, "every label must match");
    assert_eq!(shown(&[("role", "database"), ("site", "ber")]), all);
    let fra = shown(&[("role", "database"), ("site", "fra"), ("more", "x")]);
    assert!(
        fra.contains("exclude = [\"*.iso\", \"*.ibd\"]\n") && fra.contains("mending_budget = \"50GiB\"\n"),
        "{fra}"
    );
    let muc = shown(&[("role", "database"), ("site", "muc")]);
    assert!(
        muc.contains("mending_budget = \"5GiB\"\n") && muc.contains("*.ibd") && muc.contains("mending = false"),
        "{muc}"
    );
    assert!(longrun_config::parse(&muc).is_ok(), "the service reads it as its own file");
}

#[test]
fn what_a_policy_must_not_say_is_refused_with_its_line() {
    let text = "name = \"x\"\n[service]\nsocket = \"/etc/passwd\"\n[defaults]\nstorage_group = \"other\"\nsocket = \"/x\"\n\
        pace = \"furious\"\nexclude = [\"/srv/../etc\"]\n[[volume]]\nmount = \"/etc\"\n[[rule]]\nsettings = { run = \"rm -rf /\" }\n\
        [[rule]]\nwhere = { role = 3 }\nsettings = { state_directory = \"/etc\" }\n[[rule]]\nwhere = { a = [] }\nfile = \"/etc/shadow\"\n";
    let shown = problems(text);
    for wanted in [
        "line 2: service in the top level of the file is refused: it is for the configuration file of each host",
        "line 4: exclude must have at most 200 patterns, each of at most 1024 bytes, without \"..\"",
        "line 5: storage_group in [defaults] is refused",
        "line 6: unknown key \"socket\" in [defaults]",
        "line 7: pace in [defaults] must be",
        "line 9: volume in the top level of the file is refused",
        "line 11: each [[rule]] must say for which labels it is",
        "line 12: unknown key \"run\" in settings",
        "line 14: \"role\" in where",
        "line 15: unknown key \"state_directory\" in settings",
        "line 17: a label must have 1 to 200 values",
        "line 18: unknown key \"file\" in [[rule]]",
    ] {
        assert!(shown.contains(wanted), "{wanted}\nis not in\n{shown}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused_alone_and_together() {
    let alone = "[defaults]\nlongest_runway = \"1MiB\"\n";
    assert!(problems(alone).starts_with("line 1: fragmented_runway, first_runway and longest_runway"));
    // Each rule fits the defaults, both together do not.
    let together = "[[rule]]\nwhere = { a = \"1\" }\nsettings = { longest_runway = \"16MiB\" }\n\
        [[rule]]\nwhere = { b = \"1\" }\nsettings = { first_runway = \"64MiB\" }\n";
    let document = Document::parse(together).unwrap();
    assert!(
        document.settings_for(&labels(&[("a", "1")])).is_ok() && document.settings_for(&labels(&[("b", "1")])).is_ok()
    );
    assert!(document.settings_for(&labels(&[("a", "1"), ("b", "1")])).is_err());
}

#[test]
fn hostile_documents_are_refused() {
    let rules = "[[rule]]\nwhere={a=\"b\"}\n".repeat(MOST_RULES);
    assert!(Document::parse(&rules).is_ok());
    assert_eq!(problems(&format!("{rules}[[rule]]\nwhere={{a=\"b\"}}\n")), "line 401: there are more than 200 rules\n");
    let many: String = (0..=MOST_LABELS).map(|label| format!("l{label}=\"x\",")).collect();
    assert!(
        problems(&format!("[[rule]]\nwhere={{{}}}", many.trim_end_matches(',')))
            .contains("line 2: there are more than 50 labels")
    );
    let long = format!("name = \"x\"\n# {}\n", "x".repeat(MOST_BYTES));
    assert!(problems(&long).starts_with("line 2: the document is longer than 64 KiB"));
    let array = format!("[defaults]\nexclude = [{}]\n", "\"a\",".repeat(1_000_000));
    assert!(problems(&array).starts_with("line 2: the document is longer"));
    let within = format!("[defaults]\nexclude = [{}]\n", "\"a\",".repeat(15_000));
    assert!(problems(&within).contains("at most 200 patterns"));
    for deep in [
        format!("x = {}", "[".repeat(60_000)),
        format!("x = {}1{}", "[".repeat(30_000), "]".repeat(30_000)),
        format!("x = {}", "{a=".repeat(20_000)),
        format!("x{} = 1", ".x".repeat(30_000)),
        format!("[x{}]", ".x".repeat(30_000)),
        format!("[[rule{}]]", ".rule".repeat(10_000)),
    ] {
        assert!(problems(&deep).starts_with("line 1: "), "{}", &deep[..20]);
    }
    assert!(
        problems("[defaults]\npace = \"fast\"\npace = \"fast\"\n").starts_with("line 3: not valid TOML: duplicate key")
    );
    assert!(problems("[defaults]\nexclude = [\"a\\u0000b\"]\n").contains("line 2: exclude in [defaults] must be"));
    assert!(problems("name = \"a\0b\"").starts_with("line 1: not valid TOML"));
    let unknown: String = (0..7_000).map(|key| format!("k{key}=1\n")).collect();
    assert_eq!(problems(&unknown).lines().count(), Problems::MOST);
    let hostile = problems("\"\\u001b[31m\" = 1\n[[rule]]\nwhere = { \"\\u001b\" = 3 }\n");
    assert!(!hostile.contains('\x1b'), "{hostile:?}");
}

proptest! {
    #[test]
    fn no_text_makes_it_fail_in_another_way(text in "(\\[|\\]|\\{|\\}|=|\"|\n|,|rule|where|settings|defaults|exclude|[a-z]| |\\.|[0-9])*") {
        match Document::parse(&text) {
            Err(problems) => prop_assert!(!problems.is_empty()),
            Ok(document) => drop(document.settings_for(&BTreeMap::new())),
        }
    }

    #[test]
    fn what_holds_is_of_the_last_rule_that_matches_and_nothing_excluded_is_taken_back(
        rules in prop::collection::vec((0..3u8, 0..3u8, prop::option::of(any::<bool>()), prop::option::of("[a-z]{1,3}")), 0..8),
        own in prop::collection::btree_map(0..3u8, 0..3u8, 0..3),
    ) {
        let mut text = String::new();
        for (label, value, mending, pattern) in &rules {
            let mending = mending.map(|mending| format!("mending = {mending}"));
            let pattern = pattern.as_ref().map(|pattern| format!("exclude = [\"*.{pattern}\"]"));
            let settings: Vec<String> = mending.into_iter().chain(pattern).collect();
            write!(text, "[[rule]]\nwhere = {{ l{label} = \"{value}\" }}\nsettings = {{ {} }}\n", settings.join(", ")).unwrap();
        }
        let labels = own.iter().map(|(label, value)| (format!("l{label}"), value.to_string())).collect();
        let resolved = Document::parse(&text).unwrap().resolve(&labels);
        // The same, said in another way.
        let matching: Vec<_> = rules.iter().filter(|(label, value, ..)| own.get(label) == Some(value)).collect();
        prop_assert_eq!(resolved.mending, matching.iter().rev().find_map(|rule| rule.2));
        let expected: BTreeSet<String> = matching.iter().filter_map(|rule| Some(format!("*.{}", rule.3.as_ref()?))).collect();
        prop_assert_eq!(resolved.exclude.into_iter().flatten().collect::<BTreeSet<_>>(), expected);
    }
}
