//! The protocol between components and their callers: inputs in, effects out.
//!
//! Constraints: no I/O, no clock, no threads, no bus. The time of day comes in as an argument, and
//! what is to be done comes out as effects, so that every rule can be tested by text and every
//! language follows the same ones.
