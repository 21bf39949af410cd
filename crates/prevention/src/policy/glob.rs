//! Patterns of excluded files.
//!
//! Owns which patterns are accepted, and the rule that a directory includes everything below it. globset does the
//! matching, in time linear in the length of the path.

use super::SettingsError;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::Path;

/// Longer patterns are refused: they would take much memory.
const LONGEST: usize = 1024;

/// Compiled patterns.
#[derive(Clone, Debug, Default)]
pub(super) struct Globs {
    patterns: Vec<String>,
    /// Patterns without a slash: compared with names.
    names: GlobSet,
    /// The others: compared with whole paths.
    paths: GlobSet,
}

impl PartialEq for Globs {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl Eq for Globs {}

impl Globs {
    pub(super) fn new(patterns: &[String]) -> Result<Self, SettingsError> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let refused = |fault| SettingsError::Pattern { pattern: pattern.chars().take(80).collect(), fault };
            let trimmed = match pattern.trim_end_matches('/') {
                "" if !pattern.is_empty() => "/",
                trimmed => trimmed,
            };
            let is_name = !trimmed.contains('/');
            match trimmed {
                "" => return Err(refused("empty")),
                _ if trimmed.len() > LONGEST => return Err(refused("too long")),
                _ if !is_name && !trimmed.starts_with('/') && !trimmed.starts_with("**/") => {
                    return Err(refused("a relative path"));
                }
                _ => {}
            }
            let glob = GlobBuilder::new(&plain(trimmed)).literal_separator(true).build();
            (if is_name { &mut names } else { &mut paths }).add(glob.map_err(|_| refused("not a valid pattern"))?);
        }
        let too_large = |_| SettingsError::Pattern { pattern: patterns.join(", "), fault: "too complex" };
        Ok(Self {
            patterns: patterns.to_vec(),
            names: names.build().map_err(too_large)?,
            paths: paths.build().map_err(too_large)?,
        })
    }

    /// Whether the file at `path`, or a directory above it, is excluded.
    pub(super) fn matches(&self, path: &Path) -> bool {
        path.ancestors().any(|part| {
            self.paths.is_match(part) || part.file_name().is_some_and(|name| self.names.is_match(Path::new(name)))
        })
    }
}

/// Only stars and question marks are special: names with brackets are common.
fn plain(pattern: &str) -> String {
    pattern.chars().fold(String::with_capacity(pattern.len()), |mut plain, character| {
        if matches!(character, '[' | ']' | '{' | '}' | '\\') {
            plain.push('\\');
        }
        plain.push(character);
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(pattern: &str, path: &str) -> bool {
        Globs::new(&[pattern.to_owned()]).unwrap().matches(Path::new(path))
    }

    #[test]
    fn a_directory_stands_for_all_that_lies_below_it() {
        assert!(excluded("/srv/cache", "/srv/cache/a/b.dat"));
        assert!(excluded("/srv/cache/", "/srv/cache/a/b.dat"));
        assert!(!excluded("/srv/cache", "/srv/cached/b.dat"));
        assert!(!excluded("/srv/cache", "/data/srv/cache/b.dat"));
    }

    #[test]
    fn a_pattern_without_a_slash_is_compared_with_names() {
        assert!(excluded("*.tmp", "/srv/a/x.tmp"));
        assert!(excluded("node_modules", "/srv/a/node_modules/b/c.js"));
        assert!(!excluded("*.tmp", "/srv/a/x.tmpl"));
        assert!(excluded("core.?", "/core.1"));
        assert!(!excluded("core.?", "/core.12"));
    }

    #[test]
    fn one_star_stays_in_its_directory_and_two_do_not() {
        assert!(excluded("/srv/*/x", "/srv/a/x"));
        assert!(!excluded("/srv/*/x", "/srv/a/b/x"));
        assert!(excluded("/srv/**/x", "/srv/a/b/x"));
        assert!(excluded("**/x/*.db", "/srv/a/b/x/y.db"));
    }

    #[test]
    fn brackets_and_braces_stand_for_themselves() {
        assert!(excluded("/srv/[a]{b,c}", "/srv/[a]{b,c}/x"));
        assert!(!excluded("/srv/[a]", "/srv/a"));
        assert!(excluded(r"/srv/a\*", r"/srv/a\b"));
    }

    #[test]
    fn patterns_that_match_nothing_are_refused() {
        for pattern in ["", "a/b", "./a", &"x".repeat(2000)] {
            assert!(Globs::new(&[pattern.to_owned()]).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_time() {
        let pattern = format!("/{}b", "*a".repeat(300));
        assert!(!excluded(&pattern, &format!("/{}", "a".repeat(4000))));
    }

    #[test]
    fn names_that_are_not_utf8_are_compared_by_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/srv/\xff\xfe.tmp"));
        assert!(Globs::new(&["*.tmp".to_owned()]).unwrap().matches(path));
    }
}
