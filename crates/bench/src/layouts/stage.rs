//! Receives the progress of a measurement of layouts.

use crate::BenchError;

/// Where a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// What is being made or measured now.
    pub what: &'a str,
    /// Which one that is, from 0.
    pub number: u64,
    /// How many there are.
    pub of: u64,
}

/// Shows the progress, and does what only the owner of the disk can do.
pub trait Stage {
    /// Something is being made; none of it is measured.
    fn making(&mut self, step: Step<'_>);

    /// A measurement begins. Files to be read are out of the page cache already, but what the file system remembers
    /// of them is not.
    ///
    /// # Errors
    /// When it could not be made colder.
    fn begin(&mut self, step: Step<'_>) -> Result<(), BenchError>;

    /// It has ended. On a modelled disk, how many seconds that was busy by its model.
    ///
    /// # Errors
    /// When the disk does not tell.
    fn end(&mut self) -> Result<Option<f64>, BenchError> {
        Ok(None)
    }

    /// Does what is not measured: on a modelled disk, in no time.
    ///
    /// # Errors
    /// What `act` says.
    fn aside(&mut self, act: &mut dyn FnMut() -> Result<(), BenchError>) -> Result<(), BenchError> {
        act()
    }
}
