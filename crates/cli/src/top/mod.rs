//! `top`: the live view of a running service.
//!
//! Owns the terminal while it runs, and restores it at the end. Asks the service, never the volumes.

mod model;
mod view;

use crate::args::service::TopArgs;
use crate::exit::Failure;
use crate::report::print;
use longrun_api::Client;
use longrun_api::model::Status;
use model::{Action, App};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::IsTerminal as _;
use std::time::Instant;

/// Shows the view until the user quits.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let client = Client::new(&args.socket);
    // Ask before the terminal is changed: if no service answers, one line says so.
    let mut app = App::new(client.get("/v1/status")?, std::env::var_os("NO_COLOR").is_none());
    if args.once || !std::io::stdout().is_terminal() {
        return print(&frame(&app, 120, u16::try_from(app.status().volumes.len()).unwrap_or(100).min(100) + 10));
    }
    let mut terminal = ratatui::try_init().map_err(Failure::output)?;
    let shown = show(&mut terminal, &client, &mut app, args);
    ratatui::restore();
    shown
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    app: &mut App,
    args: &TopArgs,
) -> Result<(), Failure> {
    let mut next = Instant::now() + args.every;
    loop {
        terminal.draw(|frame| view::draw(frame, app)).map_err(Failure::output)?;
        if event::poll(next.saturating_duration_since(Instant::now())).map_err(Failure::output)? {
            // Other events (mainly a new size) only redraw the view.
            if let Event::Key(key) = event::read().map_err(Failure::output)?
                && key.kind != KeyEventKind::Release
                && app.press(key.code, key.modifiers) == Action::End
            {
                return Ok(());
            }
        }
        if Instant::now() >= next {
            match client.get::<Status>("/v1/status") {
                Ok(status) => app.update(status, args.every),
                // The service may be restarting: the last figures stay, with the error.
                Err(error) => app.lost(error.to_string()),
            }
            next = Instant::now() + args.every;
        }
    }
}

/// One frame as text, without colours.
fn frame(app: &App, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(drawn) = terminal.draw(|frame| view::draw(frame, app));
    let mut text = String::new();
    for y in 0..drawn.area.height {
        let line: String = (0..drawn.area.width).filter_map(|x| Some(drawn.buffer.cell((x, y))?.symbol())).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_api::model::{
        Governor, Health, HealthLevel, Mended, Mending, OwnUse, Prevented, Probes, Reaction, Sensor, Space, Volume,
    };
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};
    use std::time::Duration;

    fn volume(mount: &str, fragments: u64) -> Volume {
        Volume {
            mount: mount.into(),
            filesystem: "xfs".into(),
            enabled: true,
            prevention: true,
            prevented: Prevented { fragments, slipped: 3, runways: 8, held_bytes: 128 << 20, ..Prevented::default() },
            mended: Mended { files: 2, fragments: 40, moved_bytes: 64 << 20, ..Mended::default() },
            space: Space {
                total_bytes: 1 << 40,
                free_bytes: 300 << 30,
                free_pieces: Some(1234),
                largest_free_bytes: Some(9 << 30),
                ..Space::default()
            },
            health: Health { level: HealthLevel::Good, sentence: String::new() },
            ..Volume::default()
        }
    }

    fn status(fragments: u64, cpu_seconds: f64, signals: u64) -> Status {
        let mut hurt = volume("/srv/\u{1b}[31mdata", fragments / 2);
        hurt.health.level = HealthLevel::Alert;
        hurt.governor = Governor {
            own_bytes: signals << 20,
            foreign_bytes: 3 * (signals << 20),
            probes: Some(Probes { usual_us: 400, recent_us: 950 }),
            pausing: Some("other I/O is using the device".into()),
            ..Governor::default()
        };
        Status {
            version: "0.1.0".into(),
            healthy: true,
            uptime_seconds: 3725,
            sensor: Some(Sensor { kind: "bpf".into(), signals, ..Sensor::default() }),
            reaction: Reaction { count: 9, total_us: 9900, p50_us: 900, p99_us: 2100, max_us: 13_500 },
            queue: 4,
            mending: Mending { queued: 7, ..Mending::default() },
            own: OwnUse { cpu_seconds, resident_bytes: 20 << 20, ..OwnUse::default() },
            volumes: vec![volume("/mnt/a", fragments), hurt],
            ..Status::default()
        }
    }

    #[test]
    fn a_frame_shows_volumes_rates_and_the_service() {
        let mut app = App::new(status(1000, 1.0, 100), false);
        app.update(status(1500, 1.02, 300), Duration::from_secs(2));
        insta::assert_snapshot!("frame", frame(&app, 110, 12));
    }

    #[test]
    fn a_small_terminal_and_no_volume_do_no_harm() {
        let app = App::new(status(1, 0.0, 1), true);
        for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 90)] {
            frame(&app, width, height);
        }
        insta::assert_snapshot!("small_frame", frame(&App::new(Status::default(), false), 60, 8));
    }

    #[test]
    fn keys_end_sort_and_help() {
        let mut app = App::new(status(1000, 1.0, 100), false);
        let none = KeyModifiers::NONE;
        assert_eq!(app.press(KeyCode::Char('s'), none), Action::Stay);
        assert!(frame(&app, 110, 12).contains("s sort (by prevented)"));
        assert_eq!(app.press(KeyCode::Char('?'), none), Action::Stay);
        assert!(frame(&app, 110, 20).contains("show or hide this help"), "{}", frame(&app, 110, 20));
        assert_eq!(app.press(KeyCode::Esc, none), Action::Stay);
        assert_eq!(app.press(KeyCode::Char('q'), none), Action::End);
        assert_eq!(app.press(KeyCode::Char('c'), KeyModifiers::CONTROL), Action::End);
        app.lost("nobody answers".into());
        assert!(frame(&app, 110, 12).contains("nobody answers"));
    }
}
