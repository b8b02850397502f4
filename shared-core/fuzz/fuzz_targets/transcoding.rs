//! Answers that change their format, bodies of requests that do, and results of
//! calls, through the whole driver: from chosen nodes, in chosen pieces, damaged or
//! not, to clients that take what was chosen.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::naive::Choices;
use sszip_fuzz::transcoding::exchanges::an_exchange;

fuzz_target!(|input: &[u8]| an_exchange(&mut Choices(input)));
