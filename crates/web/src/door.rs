//! Who may enter: one-time tokens, and the sessions that they open.
//!
//! Owns both, in memory and as digests: the secrets themselves are known only to the browser and to who read the link.

use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So long a link can be used.
const TOKEN_LASTS: Duration = Duration::from_secs(600);
/// So long a session lasts.
const SESSION_LASTS: Duration = Duration::from_secs(12 * 3600);
/// So many sessions there are at most; the oldest one ends.
const SESSIONS: usize = 16;

type Digest = [u8; 32];

/// What opens, and until when.
#[derive(Clone, Copy, Debug)]
struct Key {
    digest: Digest,
    until: Instant,
}

/// Tokens and sessions.
#[derive(Debug, Default)]
pub struct Door {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    token: Option<Key>,
    sessions: VecDeque<Key>,
}

impl Door {
    /// A token for a new link; `None` while an unused one is valid.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_token(&self, now: Instant) -> io::Result<Option<String>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.token.is_some_and(|key| key.until > now) {
            return Ok(None);
        }
        let secret = secret()?;
        keys.token = Some(Key { digest: digest(&secret), until: now + TOKEN_LASTS });
        Ok(Some(secret))
    }

    /// The secret of a new session, if `token` is valid. It is not valid again.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn enter(&self, token: &str, now: Instant) -> io::Result<Option<String>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let offered = digest(token);
        if keys.token.take_if(|key| key.digest == offered).is_none_or(|key| key.until <= now) {
            return Ok(None);
        }
        let secret = secret()?;
        keys.sessions.push_back(Key { digest: digest(&secret), until: now + SESSION_LASTS });
        if keys.sessions.len() > SESSIONS {
            keys.sessions.pop_front();
        }
        Ok(Some(secret))
    }

    /// Whether `secret` is that of a session.
    pub fn knows(&self, secret: &str, now: Instant) -> bool {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let offered = digest(secret);
        keys.sessions.iter().any(|key| key.digest == offered && key.until > now)
    }
}

/// Digests are compared, not secrets: how long that takes tells nothing about a secret.
fn digest(secret: &str) -> Digest {
    Sha256::digest(secret.as_bytes()).into()
}

/// 256 random bits, in hexadecimal.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_one_session_once_and_in_time() {
        let (door, now) = (Door::default(), Instant::now());
        let token = door.new_token(now).unwrap().unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(door.new_token(now).unwrap(), None, "one at a time");
        assert_eq!(door.enter("", now).unwrap(), None);
        assert_eq!(door.enter(&token[1..], now).unwrap(), None);
        let session = door.enter(&token, now).unwrap().unwrap();
        assert_eq!(door.enter(&token, now).unwrap(), None, "used");
        assert!(door.knows(&session, now) && !door.knows(&token, now) && !door.knows("", now));
        assert!(!door.knows(&session, now + SESSION_LASTS));
        let late = door.new_token(now).unwrap().unwrap();
        assert_ne!(late, token);
        assert_eq!(door.enter(&late, now + TOKEN_LASTS).unwrap(), None, "too late");
        assert!(door.new_token(now + TOKEN_LASTS).unwrap().is_some());
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let (door, now) = (Door::default(), Instant::now());
        let enter = || door.enter(&door.new_token(now).unwrap().unwrap(), now).unwrap().unwrap();
        let sessions: Vec<String> = (0..=SESSIONS).map(|_| enter()).collect();
        assert!(!door.knows(&sessions[0], now));
        assert!(sessions[1..].iter().all(|session| door.knows(session, now)));
    }
}
