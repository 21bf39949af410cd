//! Grants runways and takes them back.
