//! What a program is told before it is loaded.

use libbpf_rs::OpenObject;

/// Has `edit` change the read-only constants of a program that is not loaded yet.
///
/// # Errors
/// libbpf's.
pub fn set_constants(open: &mut OpenObject, edit: impl Fn(&mut [u8])) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with("rodata")) {
        let mut constants = map.initial_value().unwrap_or_default().to_vec();
        edit(&mut constants);
        map.set_initial_value(&constants)?;
    }
    Ok(())
}
