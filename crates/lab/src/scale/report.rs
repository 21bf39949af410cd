//! The report: two tables and a picture.

use super::{RealCost, SimulatedCost};
use crate::bench::{load, machine};
use crate::{Curve, curves};
use anyhow::Result;
use longrun_layout::Bytes;
use std::fmt::Write as _;

const MIB: f64 = 1_048_576.0;

/// The report, and its picture, which it names `picture`. `simulated` are the costs of 1, 2, 3 … times `step` files.
///
/// # Errors
/// Never: writing to a string does not fail.
pub fn scale_report(
    simulated: &[SimulatedCost],
    step: u64,
    real: &[RealCost],
    picture: &str,
) -> Result<(String, String)> {
    let mut text =
        String::from("# Cost against the number of files\n\nWritten by `make bench-scale`; do not edit.\n\n");
    writeln!(text, "- Machine: {}", machine())?;
    writeln!(text, "- Processes that wanted to run: {}\n", load())?;
    if !simulated.is_empty() {
        plans(&mut text, simulated)?;
        writeln!(text, "\n![Time and memory of a plan against the number of files]({picture})")?;
    }
    if !real.is_empty() {
        volumes(&mut text, real)?;
    }
    let of = |name: &str, value: &dyn Fn(&SimulatedCost) -> f64| Curve {
        name: name.to_owned(),
        values: std::iter::once(0.0).chain(simulated.iter().map(value)).collect(),
    };
    let unit = if step == 1_000_000 { "million files".to_owned() } else { format!("times {step} files") };
    let drawn = curves(&[
        (&format!("Seconds of a full plan; {unit}"), vec![of("plan", &|cost| cost.plan_seconds)]),
        (
            &format!("Memory in MiB; {unit}"),
            vec![
                of("model", &|cost| cost.model_memory as f64 / MIB),
                of("model and plan", &|cost| cost.memory as f64 / MIB),
            ],
        ),
    ]);
    Ok((text, drawn))
}

fn plans(text: &mut String, costs: &[SimulatedCost]) -> Result<()> {
    writeln!(
        text,
        "## Plans for simulated files\n\nFiles of a few blocks, one in ten in pieces, on a volume that is full to about 85 %; a full plan, all \
         windows. Memory is the most that the process had.\n\n\
         | files | volume, GiB | plan, s | µs a file | model, MiB | model and plan, MiB | moved / used | excess | free pieces (fewest possible) |\n\
         |---:|---:|---:|---:|---:|---:|---:|---|---|"
    )?;
    for cost in costs {
        writeln!(
            text,
            "| {} | {:.0} | {:.1} | {:.2} | {:.0} | {:.0} | {:.2} | {} → {} | {} → {} ({}) |",
            cost.files,
            gibibytes(cost.bytes),
            cost.plan_seconds,
            cost.plan_seconds * 1e6 / cost.files as f64,
            cost.model_memory as f64 / MIB,
            cost.memory as f64 / MIB,
            cost.moved.0 as f64 / cost.used.0 as f64,
            cost.excess[0],
            cost.excess[1],
            cost.pieces[0],
            cost.pieces[1],
            cost.floor_pieces,
        )?;
    }
    Ok(())
}

fn volumes(text: &mut String, costs: &[RealCost]) -> Result<()> {
    writeln!(
        text,
        "\n## Real volumes\n\nFiles of up to 24 KiB, one in twenty in pieces, a sixth deleted, on a sparse image; cold. A full pass at the pace \
         `fast`, from the start of the program to its end; the file system's own check was clean afterwards.\n\n\
         | | files | volume, GiB | used, GiB | analysis, s | its memory, MiB | full pass, s | its memory, MiB | moved, GiB | excess | free pieces (fewest possible) |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|"
    )?;
    for cost in costs {
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} | {} → {} | {} → {} ({}) |",
            cost.kind.name(),
            cost.files,
            gibibytes(cost.bytes),
            gibibytes(cost.used),
            cost.analyze_seconds,
            cost.analyze_memory as f64 / MIB,
            cost.pass_seconds,
            cost.pass_memory as f64 / MIB,
            gibibytes(cost.moved),
            cost.excess[0],
            cost.excess[1],
            cost.pieces[0],
            cost.pieces[1],
            cost.floor_pieces,
        )?;
    }
    Ok(())
}

fn gibibytes(bytes: Bytes) -> f64 {
    bytes.0 as f64 / (1024.0 * MIB)
}
