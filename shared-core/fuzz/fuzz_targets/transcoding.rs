//! Transcoded responses, request bodies and results of calls, through the whole driver: from
//! chosen nodes, in chosen pieces, damaged or not, to clients that accept chosen formats.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::reference::FuzzedChoices;
use sszip_fuzz::transcoding::exchanges::check_exchange;

fuzz_target!(|input: &[u8]| check_exchange(&mut FuzzedChoices(input)));
