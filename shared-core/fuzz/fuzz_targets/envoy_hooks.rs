//! Hooks of Envoy's filter, with the events of streams in any order: clients and nodes that send
//! in pieces, pause and abort, jobs, wakeups, deadlines, background requests, and filters that
//! are configured again.
//!
//! The properties are defined in `envoy-filter/native/src/simulated`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sszip_envoy_simulated::simulated::simulate_streams(bytes));
