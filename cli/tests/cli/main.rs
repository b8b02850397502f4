//! The command line as a user has it: what goes in, what comes out, and how it
//! ends.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod errors;
mod files;
mod support;
mod updates;
mod values;
