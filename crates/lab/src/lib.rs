//! Loop volumes, ageing recipes, oracles.
