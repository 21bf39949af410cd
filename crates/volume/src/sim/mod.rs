//! Volumes that exist in memory only.
//!
//! Owns synthetic aged layouts ([`recipes`]). Never touches a disk, and depends on nothing but its seed.

mod ager;
mod geometry;
pub mod recipes;
