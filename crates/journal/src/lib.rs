//! The embedded engine: a crash-safe, memory-mapped, multi-process log in a folder.
