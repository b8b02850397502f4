//! The C ABI: its header, its numbers, and hosts in C.

#![allow(unsafe_code)] // as a host in C would call it
#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod c_hosts;
mod header;
mod null_arguments;
mod numbers;
#[path = "../support/mod.rs"]
mod support;
