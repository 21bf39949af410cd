//! Compiles the BPF programs, and writes the Rust form of the records that they share with us into OUT_DIR.

use libbpf_cargo::SkeletonBuilder;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for source in ["growth.bpf.c", "growth.h", "kernel.h"] {
        println!("cargo::rerun-if-changed=src/bpf/{source}");
    }
    println!("cargo::rerun-if-changed=../bpf/include");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo has not set OUT_DIR")?);
    SkeletonBuilder::new()
        .source("src/bpf/growth.bpf.c")
        .obj(out.join("growth.bpf.o"))
        // Atomic exchange is an instruction from version 3 on (Linux 5.12).
        .clang_args(["-I../bpf/include", "-mcpu=v3", "-Wall", "-Wno-missing-declarations"])
        .build_and_generate(out.join("growth.skel.rs"))
        .map_err(|error| format!("the BPF programs do not compile (clang 11 or later is needed): {error:#}").into())
}
