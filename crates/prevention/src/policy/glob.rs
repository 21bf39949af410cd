//! Patterns of what is excluded: matched in bounded time, whatever the pattern and the name.

use super::SettingsError;
use std::path::Path;

/// Longer patterns are refused: time is bounded by the product of the lengths.
const LONGEST: usize = 1024;

/// Compiled patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Globs {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// Compared with names alone.
    name: bool,
    tokens: Vec<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: one byte but '/' (a character of UTF-8 may need several).
    One,
    /// `*`: anything but '/'.
    Many,
    /// `**`: anything.
    All,
}

impl Globs {
    pub(super) fn new(patterns: &[String]) -> Result<Self, SettingsError> {
        let patterns = patterns.iter().map(|pattern| Pattern::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether the file at `path`, or a directory above it, is excluded.
    pub(super) fn matches(&self, path: &Path) -> bool {
        self.patterns.iter().any(|pattern| {
            path.ancestors().any(|part| {
                let part = if pattern.name { part.file_name() } else { Some(part.as_os_str()) };
                part.is_some_and(|part| matches(&pattern.tokens, part.as_encoded_bytes()))
            })
        })
    }
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self, SettingsError> {
        let refused = |fault| SettingsError::Pattern { pattern: pattern.chars().take(80).collect(), fault };
        let trimmed = match pattern.trim_end_matches('/') {
            "" if !pattern.is_empty() => "/",
            trimmed => trimmed,
        };
        let name = !trimmed.contains('/');
        match trimmed {
            "" => return Err(refused("empty")),
            _ if trimmed.len() > LONGEST => return Err(refused("too long")),
            _ if !name && !trimmed.starts_with('/') && !trimmed.starts_with("**/") => {
                return Err(refused("a relative path"));
            }
            _ => {}
        }
        let mut tokens = Vec::new();
        for byte in trimmed.bytes() {
            match (byte, tokens.last()) {
                (b'*', Some(Token::Many | Token::All)) => {
                    tokens.pop();
                    tokens.push(Token::All);
                }
                (b'*', _) => tokens.push(Token::Many),
                (b'?', _) => tokens.push(Token::One),
                _ => tokens.push(Token::Byte(byte)),
            }
        }
        Ok(Self { name, tokens })
    }
}

/// All states at once, so that no pattern makes it slow: `reached` says after which tokens the text so far can stand.
fn matches(tokens: &[Token], text: &[u8]) -> bool {
    let mut reached = vec![false; tokens.len() + 1];
    reached[0] = true;
    skip_stars(tokens, &mut reached);
    for byte in text {
        let mut next = vec![false; tokens.len() + 1];
        for (at, token) in tokens.iter().enumerate() {
            if !reached[at] {
                continue;
            }
            match token {
                Token::Byte(expected) if expected == byte => next[at + 1] = true,
                Token::One if *byte != b'/' => next[at + 1] = true,
                Token::Many if *byte != b'/' => next[at] = true,
                Token::All => next[at] = true,
                _ => {}
            }
        }
        skip_stars(tokens, &mut next);
        reached = next;
    }
    reached[tokens.len()]
}

/// A star may stand for nothing.
fn skip_stars(tokens: &[Token], reached: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if reached[at] && matches!(token, Token::Many | Token::All) {
            reached[at + 1] = true;
        }
    }
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
