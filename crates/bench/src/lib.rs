//! Benchmarks that show what Longrun does, or that it does nothing.
