//! Whether the speeds at sixteen places are a gradient or chance. Pure.
//!
//! Three tests must agree, because each alone is fooled by something: the slope of the straight line through the speeds must be
//! six times its standard error (a few odd places), the ranks must follow the places (one very odd end), and the ends must differ
//! by so much that placing files could be felt. On modelled disks the first two are −30 and −0.99 for a hard disk, and at most 0.8
//! and 0.25 for others.

use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// The least slope, in its standard errors.
const LEAST_T: f64 = 6.0;
/// The least correlation of the ranks (Spearman).
const LEAST_RHO: f64 = 0.8;
/// The least gain of the faster end over the slower one, as a share of the slower one.
const LEAST_GAIN: f64 = 0.15;
/// Two measurements are alike that differ by less than this share.
const ALIKE: f64 = 0.1;

/// A place, and how fast it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Where it begins on the device.
    pub at: Bytes,
    /// What was measured in each pass, in bytes a second.
    pub speeds: Vec<f64>,
}

impl Place {
    /// The second fastest of what was measured, in bytes a second; zero where nothing was. Others at work only make it slower, so that
    /// the fast ones count, but one alone may be chance.
    #[must_use]
    pub fn speed(&self) -> f64 {
        let speeds = self.sorted();
        speeds.get(1).or(speeds.first()).copied().unwrap_or_default()
    }

    /// Whether the two fastest are alike: one alone may be that of a moment at which others did not use the disk.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(*self.sorted(), [fastest, second, ..] if second >= fastest * (1.0 - ALIKE))
    }

    /// From the fastest to the slowest.
    fn sorted(&self) -> Vec<f64> {
        let mut speeds = self.speeds.clone();
        speeds.sort_by(|a, b| b.total_cmp(a));
        speeds
    }
}

/// Which end is the faster one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fastest {
    /// The beginning, as on all hard disks: their first blocks lie on the outer tracks.
    Beginning,
    /// The end.
    End,
}

/// What the speeds say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The faster end if there is a gradient.
    pub gradient: Option<Fastest>,
    /// The slope of the line through the speeds, in its standard errors; at most 1000.
    pub t: f64,
    /// The correlation of the ranks of places and speeds, from −1 to 1.
    pub rho: f64,
    /// By how much the faster end of the line exceeds the slower one, as a share of the slower one.
    pub gain: f64,
}

impl Verdict {
    /// Of places in their order.
    #[must_use]
    pub fn of(places: &[Place]) -> Self {
        let speeds: Vec<f64> = places.iter().map(Place::speed).collect();
        let (line, rho) = (Line::through(&speeds), correlation(&ranks(&positions(&speeds)), &ranks(&speeds)));
        let (first, last) = (line.at(0.0), line.at(speeds.len().saturating_sub(1) as f64));
        let slower = first.min(last);
        // A line that reaches zero is none of a disk.
        let gain = if slower > 0.0 { (first - last).abs() / slower } else { 0.0 };
        let is_gradient = line.t.abs() >= LEAST_T && rho.abs() >= LEAST_RHO && gain >= LEAST_GAIN;
        let fastest = if line.t < 0.0 { Fastest::Beginning } else { Fastest::End };
        Self { gradient: is_gradient.then_some(fastest), t: line.t, rho, gain }
    }
}

fn positions(speeds: &[f64]) -> Vec<f64> {
    (0..speeds.len()).map(|nth| nth as f64).collect()
}

/// A straight line by least squares.
struct Line {
    slope: f64,
    from: f64,
    t: f64,
}

impl Line {
    /// What is divided by an error of zero.
    const MOST_T: f64 = 1000.0;

    fn through(speeds: &[f64]) -> Self {
        let count = speeds.len() as f64;
        let level = mean(speeds);
        // Of three points and more a line has an error.
        if speeds.len() < 3 {
            return Self { slope: 0.0, from: level, t: 0.0 };
        }
        let middle = (count - 1.0) / 2.0;
        let apart = |x: f64| x - middle;
        let points = || positions(speeds).into_iter().zip(speeds.iter().copied());
        let spread: f64 = points().map(|(x, _)| apart(x) * apart(x)).sum();
        let slope = points().map(|(x, y)| apart(x) * (y - level)).sum::<f64>() / spread;
        let from = level - slope * middle;
        let left: f64 = points().map(|(x, y)| (y - from - slope * x).powi(2)).sum();
        let error = (left / (count - 2.0) / spread).sqrt();
        // A difference in the last digits is none.
        let flat = slope.abs() * count <= level.abs() * 1e-9;
        let t = if flat { 0.0 } else { (slope / error).clamp(-Self::MOST_T, Self::MOST_T) };
        Self { slope, from, t }
    }

    fn at(&self, x: f64) -> f64 {
        self.from + self.slope * x
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The rank of each value; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let less = values.iter().filter(|other| other.total_cmp(value).is_lt()).count();
        let equal = values.iter().filter(|other| other.total_cmp(value).is_eq()).count();
        less as f64 + (equal as f64 - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Pearson's correlation; 0 where one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let both: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    let spread = |values: &[f64], mean: f64| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let spreads = (spread(a, mean_a) * spread(b, mean_b)).sqrt();
    if spreads > 0.0 { both / spreads } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(speed: impl Fn(usize) -> f64) -> Vec<Place> {
        (0..16).map(|nth| Place { at: Bytes(nth as u64), speeds: vec![speed(nth)] }).collect()
    }

    #[test]
    fn a_straight_fall_is_a_gradient_and_its_ends_are_compared() {
        let verdict = Verdict::of(&places(|nth| 160.0 - 80.0 * nth as f64 / 15.0));
        assert_eq!(verdict.gradient, Some(Fastest::Beginning));
        assert!(verdict.t < -100.0 && verdict.rho < -0.999 && (verdict.gain - 1.0).abs() < 1e-6, "{verdict:?}");
        let rising = Verdict::of(&places(|nth| 100.0 + nth as f64 * 3.0));
        assert_eq!(rising.gradient, Some(Fastest::End));
    }

    #[test]
    fn what_is_equal_everywhere_or_differs_too_little_is_none() {
        assert_eq!(Verdict::of(&places(|_| 300.0)), Verdict { gradient: None, t: 0.0, rho: 0.0, gain: 0.0 });
        let slight = Verdict::of(&places(|nth| 100.0 + nth as f64 * 0.5));
        assert!(slight.t > 100.0 && slight.gradient.is_none(), "{slight:?}");
        assert_eq!(Verdict::of(&[]).gradient, None);
    }

    #[test]
    fn one_very_slow_end_is_none() {
        let end = Verdict::of(&places(|nth| if nth == 15 { 10.0 } else { 150.0 + (nth % 3) as f64 }));
        assert_eq!(end.gradient, None, "{end:?}");
    }

    #[test]
    fn the_gradient_of_a_disk_is_always_found_and_chance_hardly_ever_taken_for_one() {
        let mut random = fastrand::Rng::with_seed(18);
        let mut found = [0, 0];
        for _ in 0..10_000 {
            let mut noise = |share: f64| 1.0 + share * (random.f64() - 0.5);
            let noises: Vec<f64> = (0..16).map(|_| noise(0.2)).collect();
            let disk = Verdict::of(&places(|nth| (160.0 - 80.0 * nth as f64 / 15.0) * noises[nth]));
            let flat = Verdict::of(&places(|nth| 300.0 * (1.0 + (noises[nth] - 1.0) * 4.0)));
            found[0] += u32::from(disk.gradient == Some(Fastest::Beginning));
            found[1] += u32::from(flat.gradient.is_some());
        }
        // A t of 6 by chance alone has a probability of 3 in 100,000 (two-sided, 14 degrees of freedom).
        assert!(found[0] == 10_000 && found[1] <= 3, "{found:?} of 10,000");
    }

    #[test]
    fn a_place_is_settled_when_two_measurements_agree() {
        let place = |speeds: &[f64]| Place { at: Bytes(0), speeds: speeds.to_vec() };
        assert!(place(&[100.0, 40.0, 104.0]).is_settled());
        assert!(!place(&[100.0, 40.0, 160.0]).is_settled());
        assert!(!place(&[100.0]).is_settled() && !place(&[]).is_settled());
        assert!((place(&[1.0, 3.0, 2.0]).speed() - 2.0).abs() < 1e-9 && (place(&[4.0]).speed() - 4.0).abs() < 1e-9);
    }
}
