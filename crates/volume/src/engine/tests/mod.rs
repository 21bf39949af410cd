//! Tests of the engine on simulated volumes: every safety rule, every operation failing, every point of a crash.

mod crashes;
mod faults;
mod foreigners;
mod real;
mod support;
