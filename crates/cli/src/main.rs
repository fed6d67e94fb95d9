//! The `helio` program.
fn main() {}
