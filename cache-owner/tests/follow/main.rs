//! The follower against healthy and failing nodes of every kind.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod backfill;
mod beacon;
mod chain;
mod execution;
mod node;
mod owner;
mod secure;
mod trouble;
mod websocket;
