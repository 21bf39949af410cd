//! The log, written to standard error in the form of the systemd journal.

use crate::config::LogLevel;
use std::io::{self, IsTerminal};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, reload};

/// Changes the log level.
#[derive(Clone, Default)]
pub struct LogControl {
    handle: Option<reload::Handle<LevelFilter, tracing_subscriber::Registry>>,
}

impl LogControl {
    /// From now on.
    pub fn set(&self, level: LogLevel) {
        if let Some(handle) = &self.handle
            && let Err(error) = handle.reload(filter(level))
        {
            tracing::warn!("changing the log level failed; it is unchanged: {error}");
        }
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Begins to log. Once per process; later calls change nothing.
#[must_use]
pub fn start(level: LogLevel) -> LogControl {
    let (filter, handle) = reload::Layer::new(filter(level));
    let terminal = io::stderr().is_terminal();
    // The journal knows the time by itself.
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(terminal).with_target(false);
    let started = if terminal {
        tracing_subscriber::registry().with(filter).with(lines).try_init()
    } else {
        tracing_subscriber::registry().with(filter).with(lines.without_time()).try_init()
    };
    LogControl { handle: started.is_ok().then_some(handle) }
}
