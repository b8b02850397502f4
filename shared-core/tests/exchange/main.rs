//! Exchanges as a host drives them, one binary for all that need no process of their own.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod answer_memory;
mod batch_off_loop;
mod bodies;
mod cached;
mod conversion_memory;
mod copied_requests;
#[path = "../support/driven.rs"]
mod driven;
mod herd;
mod herd_of_variants;
mod inquiry;
mod last_job;
mod limits;
mod max_answer;
mod policy;
mod setup;
mod split_batches;
mod ssz_concurrency;
mod stale;
#[path = "../support/mod.rs"]
mod support;
mod unread;
mod verify;
