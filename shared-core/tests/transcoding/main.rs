//! Transcoded responses, request bodies and results of calls, through the whole driver: chosen
//! values, with damage on their way. `make fuzz` continues with more inputs.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../support/driver_host.rs"]
mod driver_host;
mod exchanges;
#[allow(dead_code)] // the parity table uses the rest
#[path = "../table/fields.rs"]
mod fields;
#[allow(dead_code)]
#[path = "../table/host.rs"]
mod host;
#[allow(dead_code)]
#[path = "../ssz/properties.rs"]
mod properties;
#[allow(dead_code)]
#[path = "../ssz/reference.rs"]
mod reference;
#[path = "../ssz/roots.rs"]
mod roots;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tier.rs"]
mod tier;
#[allow(dead_code)] // the tests of SSZ use the rest
#[path = "../ssz/tree.rs"]
mod tree;
#[path = "../support/unzstd.rs"]
mod unzstd;

use std::path::Path;

use proptest::prelude::*;

use exchanges::check_exchange;
use reference::FuzzedChoices;
use tier::times;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(1_000, 4_000)))]

    #[test]
    fn any_transcoded_exchange_satisfies_the_properties(choices in prop::collection::vec(any::<u8>(), 0..1500)) {
        check_exchange(&mut FuzzedChoices(&choices));
    }
}

/// Seeds of the fuzz target, and the inputs that it has found.
#[test]
fn seeds_of_the_fuzz_target_satisfy_the_properties() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/transcoding");
    let mut count = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        let choices = std::fs::read(seed.unwrap().path()).unwrap();
        check_exchange(&mut FuzzedChoices(&choices));
        count += 1;
    }
    assert!(count > 10, "{count} seeds");
}
