//! Tests of the engine on simulated volumes: every safety rule, every operation failing, every point of a crash.

mod crashes;
mod evasions;
mod exhaustive;
mod faults;
mod foreigners;
mod meddler;
mod parts;
mod real;
mod rounds;
mod scenarios;
mod support;
