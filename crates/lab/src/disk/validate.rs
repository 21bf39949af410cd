//! Checks with fio that a modelled disk does what its model predicts.
//!
//! Owns the loads and the comparison. The prediction is the same load in virtual time, by a host that takes no time.
//! The difference to the result of fio is what this machine adds.

use super::ModelledDisk;
use super::model::{Access, DiskModel, Request, closed_loop};
use crate::tool;
use anyhow::{Context, Result};
use longrun_layout::Bytes;
use std::fmt;

/// Fewer are not representative, more take long.
const SECONDS: u64 = 5;
/// Requests that the model is asked about.
const ASKED: u64 = 3000;

#[derive(Clone, Copy, Debug)]
struct Load {
    access: Access,
    random: bool,
    kib: u64,
    depth: usize,
}

const LOADS: [Load; 7] = [
    Load { access: Access::Read, random: true, kib: 4, depth: 1 },
    Load { access: Access::Read, random: true, kib: 4, depth: 32 },
    Load { access: Access::Read, random: true, kib: 64, depth: 4 },
    Load { access: Access::Read, random: false, kib: 128, depth: 2 },
    Load { access: Access::Read, random: false, kib: 512, depth: 2 },
    Load { access: Access::Write, random: true, kib: 4, depth: 1 },
    Load { access: Access::Write, random: false, kib: 512, depth: 4 },
];

/// One load, as the model has it and as fio measured it.
#[derive(Clone, Debug)]
pub struct Validation {
    /// The load in words.
    pub load: String,
    /// Requests a second by the model.
    pub model: f64,
    /// Requests a second by fio.
    pub measured: f64,
    /// By how much answers were late on average.
    pub late_micros: f64,
}

impl Validation {
    /// What [`fmt::Display`] has in its columns.
    pub const HEADER: &str =
        "load                              model, requests/s    fio, requests/s    fio / model    late, µs";
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, model, measured, late_micros } = self;
        write!(f, "{load:<32}{model:>21.1}{measured:>19.1}{:>15.3}{late_micros:>12.0}", measured / model)
    }
}

/// Runs every load on the first client's device, which must be `size` large. What is on it is lost.
///
/// # Errors
/// When fio fails or says something unknown.
pub fn validate(disk: &ModelledDisk, size: Bytes, seed: u64) -> Result<Vec<Validation>> {
    LOADS.iter().map(|load| one(disk, *load, size, seed)).collect()
}

fn one(disk: &ModelledDisk, load: Load, size: Bytes, seed: u64) -> Result<Validation> {
    let before = disk.statistics()?;
    let measured = measure(disk, load, seed)?;
    let late_micros = disk.statistics()?.since(before).late_micros();
    let order = if load.random { "random" } else { "sequential" };
    let verb = if load.access == Access::Read { "reads" } else { "writes" };
    let Load { kib, depth, .. } = load;
    let load_in_words = format!("{order} {verb}, {kib} KiB, {depth} at a time");
    Ok(Validation { load: load_in_words, model: foretell(disk.model(), load, size, seed), measured, late_micros })
}

/// Requests a second, by the model.
fn foretell(model: DiskModel, load: Load, size: Bytes, seed: u64) -> f64 {
    let length = load.kib << 10;
    let mut random = fastrand::Rng::with_seed(seed);
    let places = (size.0 / length).max(1);
    let place = |number: u64| if load.random { random.u64(0..places) } else { number % places };
    let at: Vec<u64> = (0..ASKED).map(place).collect();
    let request = |(id, at): (usize, &u64)| Request {
        id: id as u64,
        access: load.access,
        at: Bytes(at * length),
        length: Bytes(length),
    };
    let requests: Vec<Request> = at.iter().enumerate().map(request).collect();
    let took = closed_loop(&mut model.device(size, seed), &requests, load.depth);
    ASKED as f64 / (took.0 as f64 / 1e9)
}

/// Requests a second, by fio.
fn measure(disk: &ModelledDisk, load: Load, seed: u64) -> Result<f64> {
    let (field, pattern) = match (load.access, load.random) {
        (Access::Read, true) => ("read", "randread"),
        (Access::Read, false) => ("read", "read"),
        (Access::Write, true) => ("write", "randwrite"),
        (Access::Write, false) => ("write", "write"),
    };
    let arguments = [
        "--name=load".to_owned(),
        "--direct=1".to_owned(),
        "--ioengine=libaio".to_owned(),
        "--time_based".to_owned(),
        "--output-format=json".to_owned(),
        format!("--filename={}", disk.device(0)?.display()),
        format!("--rw={pattern}"),
        format!("--bs={}k", load.kib),
        format!("--iodepth={}", load.depth),
        format!("--runtime={SECONDS}"),
        format!("--randseed={seed}"),
    ];
    let said = tool::run("fio", arguments)?;
    let json: serde_json::Value = serde_json::from_str(&said).with_context(|| format!("fio said {said:?}"))?;
    let rate = json.pointer(&format!("/jobs/0/{field}/iops")).and_then(serde_json::Value::as_f64);
    rate.with_context(|| format!("the output of fio has no {field} rate: {said}"))
}
