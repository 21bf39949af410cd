//! Compiles the BPF program.

include!("../bpf/compile.rs");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compile("heat")
}
