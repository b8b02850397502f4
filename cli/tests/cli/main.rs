//! The command line as a user runs it: input, output and exit code.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod errors;
mod files;
mod fleet;
mod manuals;
mod purge;
mod status;
mod support;
mod updates;
mod values;
