//! Compiles the BPF program, and writes the Rust form of the record that it shares with us into OUT_DIR.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for source in ["arrivals.bpf.c", "arrivals.h"] {
        println!("cargo::rerun-if-changed=src/bpf/{source}");
    }
    println!("cargo::rerun-if-changed=../bpf/include");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo has not set OUT_DIR")?);
    SkeletonBuilder::new()
        .source("src/bpf/arrivals.bpf.c")
        .obj(out.join("arrivals.bpf.o"))
        .clang_args(["-I../bpf/include", "-mcpu=v3", "-Wall", "-Wno-missing-declarations"])
        .build_and_generate(out.join("arrivals.skel.rs"))
        .map_err(|error| format!("the BPF program does not compile (clang 11 or later is needed): {error:#}").into())
}
