//! Drawing the live view. Pure: a state in, a frame out.

use super::model::App;
use crate::text::{count, duration, percent, printable, size};
use longrun_api::jobs::{Job, JobState};
use longrun_api::model::{HealthLevel, Probes, Status, Volume};
use longrun_layout::Bytes;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};
use std::time::Duration;

const HELP: &str = "\
q, Esc, Ctrl-C  quit
s               sort by the next column
h, ?            show or hide this help

Prevented  excess fragments that were prevented
Slipped    excess fragments that were not prevented
Mended     excess fragments that mending removed
Runways    files with preallocated space; Held: its size
disk load  while there is something to mend";

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let areas = Layout::vertical([Constraint::Length(5), Constraint::Min(2), Constraint::Length(1)]);
    let [head, table, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(header(app)), head);
    frame.render_widget(volumes(app), table);
    let keys = format!("q quit  s sort (by {})  h help", app.sort.name());
    frame.render_widget(Paragraph::new(keys).style(dim(app)), foot);
    if app.help {
        let area = frame.area();
        let [_, middle, _] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(12), Constraint::Fill(1)]).areas(area);
        let [_, middle, _] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(62), Constraint::Fill(1)]).areas(middle);
        frame.render_widget(Clear, middle);
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" Help ")), middle);
    }
}

fn dim(app: &App) -> Style {
    if app.colors { Style::new().fg(Color::DarkGray) } else { Style::new() }
}

fn loud(app: &App) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if app.colors { style.fg(Color::Red) } else { style }
}

fn header(app: &App) -> Vec<Line<'static>> {
    let status = app.status();
    let up = duration(Duration::from_secs(status.uptime_seconds));
    let rates = app.rates;
    let cpu = rates.map_or_else(|| "-".to_owned(), |rates| format!("{:.1} %", rates.cpu_percent));
    let memory = size(Bytes(status.own.resident_bytes));
    let title = format!("longrun {}  up {up}  cpu {cpu}  memory {memory}", printable(&status.version));
    let per_second = |of: fn(super::model::Rates) -> f64| {
        rates.map_or_else(|| "-".to_owned(), |rates| format!("{:.0}/s", of(rates)))
    };
    let sensor = status.sensor.as_ref().map_or_else(
        || "sensor none".to_owned(),
        |sensor| {
            let (signals, lost) = (per_second(|rates| rates.signals), count(sensor.lost));
            format!("sensor {}  signals {signals}  lost {lost}", printable(&sensor.kind))
        },
    );
    let sensor = format!("{sensor}  prevented {}", per_second(|rates| rates.prevented));
    let ms = |us: u64| us as f64 / 1000.0;
    let reaction = format!(
        "reaction {:.1} ms median, {:.1} ms 99 %  queue {}  to mend {}{}",
        ms(status.reaction.p50_us),
        ms(status.reaction.p99_us),
        count(status.queue),
        count(status.mending.queued),
        waits(status),
    );
    let trouble = app.trouble.as_ref().or_else(|| status.troubles.first());
    let state = trouble.map_or_else(Line::default, |why| Line::styled(format!("! {}", printable(why)), loud(app)));
    let title = Line::styled(title, Style::new().add_modifier(Modifier::BOLD));
    vec![title, Line::raw(sensor), Line::raw(reaction), Line::raw(load(app)), state]
}

/// The job that is at work, or the load of the disks while there is something to mend. Of the probes the slowest are shown, relative to the usual.
fn load(app: &App) -> String {
    let megabytes = |of: fn(super::model::Rates) -> f64| {
        app.rates.map_or_else(|| "-".to_owned(), |rates| format!("{:.1} MB/s", of(rates) / 1e6))
    };
    let volumes = &app.status().volumes;
    let slowness = |probes: &Probes| probes.recent_us as f64 / probes.usual_us.max(1) as f64;
    let slowest = volumes.iter().filter_map(|volume| volume.governor.probes);
    let outside = slowest
        .max_by(|a, b| slowness(a).total_cmp(&slowness(b)))
        .map_or_else(|| "-".to_owned(), |probes| format!("reads take {:.1} x usual", slowness(&probes)));
    if let Some(job) = app.status().jobs.iter().find(|job| job.state == JobState::Running) {
        return told_job(job);
    }
    let (own, foreign) = (megabytes(|rates| rates.own_bytes), megabytes(|rates| rates.foreign_bytes));
    format!("disk load: Longrun {own}  other processes {foreign}  outside this machine {outside}")
}

/// The job that is at work.
fn told_job(job: &Job) -> String {
    let progress = &job.progress;
    let left = progress.eta_seconds.map(|eta| format!("  {} left", duration(Duration::from_secs(eta))));
    format!(
        "job {}: {} {}  {} {:.0} %  {} moved{}",
        job.id,
        job.task.name(),
        printable(&job.mount),
        printable(&progress.phase),
        progress.fraction * 100.0,
        size(Bytes(job.moved_bytes)),
        left.unwrap_or_default(),
    )
}

/// Why mending waits.
fn waits(status: &Status) -> String {
    let why = |volume: &Volume| volume.mending_rests.clone().or_else(|| volume.governor.pausing.clone());
    status.volumes.iter().find_map(why).map_or_else(String::new, |why| format!(" (waiting: {})", printable(&why)))
}

fn volumes(app: &App) -> Table<'static> {
    let head = ["Volume", "Type", "Prevented", "Slipped", "Mended", "Runways", "Held", "Free", "Pieces", "Health"];
    let rows: Vec<Row<'static>> = app.volumes().into_iter().map(|volume| row(app, volume)).collect();
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(5),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(15),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let style = Style::new().add_modifier(if app.colors { Modifier::REVERSED } else { Modifier::BOLD });
    Table::new(rows, widths).header(Row::new(head).style(style))
}

fn row(app: &App, volume: &Volume) -> Row<'static> {
    let (health, style) = match (volume.health.level, &volume.trouble) {
        (HealthLevel::Alert, _) => ("ALERT", loud(app)),
        (_, Some(_)) => ("trouble", loud(app)),
        (HealthLevel::Good, None) => ("good", Style::new()),
        (HealthLevel::Unknown, None) => ("-", Style::new()),
    };
    let space = &volume.space;
    let free = format!("{} {}", size(Bytes(space.free_bytes)), percent(space.free_bytes, space.total_bytes));
    if !volume.enabled {
        return Row::new([printable(&volume.mount), printable(&volume.filesystem), "disabled".to_owned()])
            .style(dim(app));
    }
    let prevented = if volume.prevention { count(volume.prevented.fragments) } else { "off".to_owned() };
    Row::new([
        Cell::new(printable(&volume.mount)),
        Cell::new(printable(&volume.filesystem)),
        Cell::new(prevented),
        Cell::new(count(volume.prevented.slipped)),
        Cell::new(count(volume.mended.fragments)),
        Cell::new(count(volume.prevented.runways)),
        Cell::new(size(Bytes(volume.prevented.held_bytes))),
        Cell::new(free),
        Cell::new(space.free_pieces.map_or_else(|| "-".to_owned(), count)),
        Cell::new(health).style(style),
    ])
}
