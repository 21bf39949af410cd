//! The seed of what tests draw at random: the gate repeats itself, campaigns do not.

/// Names the seed.
const VARIABLE: &str = "LONGRUN_SEED";

/// The number in `LONGRUN_SEED`, else 1. Prints it, so that the output of a failed test says how to repeat it.
///
/// # Panics
/// When the variable is no number: a run with another seed than was asked for would prove nothing.
#[must_use]
pub fn seed() -> u64 {
    let seed = match std::env::var(VARIABLE) {
        Err(_) => 1,
        Ok(text) => text.parse().unwrap_or_else(|_| unreachable!("{VARIABLE} is {text:?}; it must be a number")),
    };
    eprintln!("{VARIABLE}={seed}");
    seed
}
