//! The hooks of Envoy's filter, with what happens to streams in any order: clients and
//! nodes that send in pieces, pause and leave, jobs, wakes, deadlines, requests in the
//! background, filters that are configured anew.
//!
//! What must hold is in `envoy-filter/native/src/simulated`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sszip_envoy_simulated::simulated::streams(bytes));
