//! What our BPF programs have in common: on the kernel's side `include/longrun.h`, `include/kernel.h` and `include/pages.h`;
//! `compile.rs` for the build scripts; on ours, device numbers and fields of records as the kernel has them, what the kernel tells
//! of hooks and of loaded programs, and what libbpf has to say.
//!
//! Owns no program: each crate that has one loads it itself.

mod constants;
mod device;
mod field;
mod messages;
mod programs;

pub use constants::set_constants;
pub use device::KernelDevice;
pub use field::{put, u32_at, u64_at};
pub use messages::{explained, quieten};
pub use programs::{figure, has_hook};
