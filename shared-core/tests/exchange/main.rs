//! Exchanges as a host drives them, one binary for all that need no process of their own.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod answer_memory;
mod batch_log_splits;
mod batch_off_loop;
#[path = "../support/batch_owner.rs"]
mod batch_owner;
mod block_ranges;
mod bodies;
mod cached;
mod coalesced_variants;
mod coalescing;
mod conversion_memory;
mod copied_requests;
mod derived_logs;
#[path = "../support/driver_host.rs"]
mod driver_host;
mod inlined_payloads;
mod limits;
mod log_splits;
mod max_answer;
mod only_if_cached;
mod policy;
mod probes;
mod query;
mod setup;
mod shareable_lookups;
mod split_batches;
mod ssz_concurrency;
mod stale;
#[path = "../support/mod.rs"]
mod support;
mod teardown_job;
#[path = "../support/tier.rs"]
mod tier;
mod unchecked_entries;
#[path = "../support/unzstd.rs"]
mod unzstd;
mod verify;
mod zstd_bodies;
mod zstd_hits;
mod zstd_nodes;
