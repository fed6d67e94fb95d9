//! Checks of the house: layers and style limits.
fn main() {}
