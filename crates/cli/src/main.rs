//! `longrun`: the command line.
fn main() {}
