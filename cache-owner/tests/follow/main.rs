//! The follower against nodes of every kind, well and unwell.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod beacon;
mod chain;
mod execution;
mod node;
mod owner;
mod secure;
mod trouble;
mod websocket;
