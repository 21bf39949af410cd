//! A service that is not real: it answers the agent as the service of Longrun does, and notes when work was permitted.

use super::observer::Observer;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How a service wants to work: for a random time, then not, and so on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Seed of the times.
    pub(super) seed: u64,
    /// The times are parts of this.
    pub(super) term: Duration,
}

/// What a test can set, and see.
#[derive(Debug)]
pub struct Said {
    /// `rest` or `go-on`.
    pub mode: &'static str,
    /// Whether it always wants to work; else by turns.
    pub always: bool,
    /// What it says of the latency of its storage.
    pub latency_us: Option<f64>,
    /// What it says that it has moved.
    pub moved_bytes: u64,
    /// Until when the agent counts as in touch.
    pub in_touch_until: Duration,
    /// Since when work is permitted, or was last, and until when.
    pub permitted: Option<(Duration, Duration)>,
    /// When work was over that was permitted before.
    ended: Duration,
    rests_until: Duration,
    done: Duration,
}

struct Shared {
    host: String,
    group: String,
    work: Work,
    said: Mutex<(Said, fastrand::Rng)>,
    observer: Arc<Observer>,
    ended: AtomicBool,
}

/// A service, which ends when dropped.
pub struct FakeService {
    shared: Arc<Shared>,
    socket: PathBuf,
}

impl FakeService {
    /// Begins to listen on `socket`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(socket: &Path, host: &str, group: &str, work: Work, observer: Arc<Observer>) -> Result<Self> {
        let said = Said {
            mode: "rest",
            always: false,
            latency_us: None,
            moved_bytes: 0,
            in_touch_until: Duration::ZERO,
            permitted: None,
            ended: Duration::ZERO,
            rests_until: Duration::ZERO,
            done: Duration::ZERO,
        };
        let shared = Arc::new(Shared {
            host: host.to_owned(),
            group: group.to_owned(),
            work,
            said: Mutex::new((said, fastrand::Rng::with_seed(work.seed))),
            observer,
            ended: AtomicBool::new(false),
        });
        let listener = UnixListener::bind(socket)?;
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.ended.load(Ordering::SeqCst) {
                    return;
                }
                // An agent that was killed or stopped breaks off in the middle.
                _ = served.serve(stream);
            }
        });
        Ok(Self { shared, socket: socket.to_owned() })
    }

    /// What it says, to be looked at or changed.
    pub fn said<T>(&self, act: impl FnOnce(&mut Said) -> T) -> T {
        act(&mut self.shared.lock().0)
    }

    /// Whether work is permitted now.
    #[must_use]
    pub fn is_permitted(&self) -> bool {
        self.said(|said| said.permitted.is_some_and(|(_, until)| until > longrun_sys::since_boot()))
    }

    /// Whether the agent counts as in touch.
    #[must_use]
    pub fn is_in_touch(&self) -> bool {
        self.end_of_touch() > longrun_sys::since_boot()
    }

    /// When the last permission ends, or ended.
    pub(super) fn end_of_work(&self) -> Duration {
        self.said(|said| said.permitted.map_or(said.ended, |(_, until)| until))
    }

    /// When the agent counts no more as in touch.
    pub(super) fn end_of_touch(&self) -> Duration {
        self.said(|said| said.in_touch_until)
    }
}

impl Drop for FakeService {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        _ = UnixStream::connect(&self.socket);
        self.shared.permit(None);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Said, fastrand::Rng)> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: UnixStream) -> Result<()> {
        // The agent is stopped in the middle of a request: the next agent must get through.
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let answer = if first.starts_with("GET /v1/fleet ") {
            self.tell().to_string()
        } else if first.starts_with("PUT /v1/fleet/permission ") {
            let permission: Value = serde_json::from_slice(&body)?;
            let time = |value: &Value| value.as_u64().map(Duration::from_nanos);
            let touch = permission.get("in_touch_until").and_then(time).context("no in_touch_until")?;
            self.lock().0.in_touch_until = touch;
            self.permit(permission.get("groups").and_then(|groups| groups.get(&self.group)).and_then(time));
            "{}".to_owned()
        } else {
            anyhow::bail!("the agent asked for {first}");
        };
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}", answer.len())?;
        Ok(())
    }

    fn tell(&self) -> Value {
        let now = longrun_sys::since_boot();
        let (said, random) = &mut *self.lock();
        let permitted = said.permitted.is_some_and(|(_, until)| until > now);
        if permitted && now >= said.done {
            said.rests_until = now + self.work.term.mul_f64(random.f64() * 0.25);
        }
        let wants = said.always || now >= said.rests_until;
        json!({
            "mode": said.mode, "in_touch": said.in_touch_until > now,
            "groups": [{
                "name": self.group, "source": "configured", "rotational": false, "volumes": ["/srv"], "wants": wants,
                "permitted": permitted, "moved_bytes": said.moved_bytes, "latency_us": said.latency_us,
            }],
        })
    }

    /// From now on, work is permitted until then, or is not.
    fn permit(&self, until: Option<Duration>) {
        let now = longrun_sys::since_boot();
        let (said, random) = &mut *self.lock();
        let until = until.filter(|&until| until > now);
        if let Some((since, before)) = said.permitted
            && (before <= now || until.is_none())
        {
            // It is over: by itself, or now.
            self.observer.note(&self.group, &self.host, since, before.min(now));
            said.ended = before.min(now);
            said.permitted = None;
        }
        if let Some(until) = until {
            let since = said.permitted.map_or(now, |(since, _)| since);
            if said.permitted.is_none() {
                said.done = now + self.work.term.mul_f64(random.f64() * 0.5);
            }
            said.permitted = Some((since, until));
        }
    }
}
