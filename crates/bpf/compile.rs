// What the build scripts of the crates with a BPF program have in common (include!): it is no build dependency, because that
// would compile libbpf a second time.

/// Compiles `src/bpf/NAME.bpf.c`, and writes its skeleton, the Rust form of the records that it shares with us included, into
/// OUT_DIR.
fn compile(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    for directory in ["src/bpf", "../bpf/include", "../bpf/compile.rs"] {
        println!("cargo::rerun-if-changed={directory}");
    }
    // Where the sources are is in the program's line information: relative, so that the same sources make the same bytes anywhere.
    let here = std::env::current_dir()?;
    let workspace = here.ancestors().nth(2).ok_or("the crate is not in crates/")?.display();
    let relative_paths = format!("-ffile-prefix-map={workspace}=.");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo has not set OUT_DIR")?);
    libbpf_cargo::SkeletonBuilder::new()
        .source(format!("src/bpf/{name}.bpf.c"))
        .obj(out.join(format!("{name}.bpf.o")))
        // Atomic exchange is an instruction from version 3 on (Linux 5.12).
        .clang_args(["-I../bpf/include", "-mcpu=v3", "-Wall", "-Wno-missing-declarations", &relative_paths])
        .build_and_generate(out.join(format!("{name}.skel.rs")))
        .map_err(|error| format!("{name}.bpf.c does not compile (clang 11 or later is needed): {error:#}").into())
}
