//! Filters of `eth_getLogs` compared with serde_json: each is read with the same ends, spans,
//! addresses and topics, or by neither.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::log_filter::{LogFilter, LogFilterEnd};
use sszip_core::jsonrpc::plausible::BlockHashOrNumber;
use sszip_fuzz::log_oracle::{expand_short_values, read_filter};

fuzz_target!(|input: &[u8]| {
    let params = expand_short_values(input);
    let filter = LogFilter::read(&params);
    assert_eq!(filter, read_filter(&params));
    let Some(filter) = filter else {
        return;
    };
    let ends = [filter.from_block, filter.to_block];
    match filter.only_block() {
        Some(BlockHashOrNumber::Hash(hash)) => {
            assert_eq!(filter.block_hash, Some(hash));
            assert_eq!(ends, [LogFilterEnd::Absent; 2]);
        }
        Some(BlockHashOrNumber::Number(number)) => {
            assert_eq!(filter.block_hash, None);
            assert_eq!(ends, [LogFilterEnd::Number(number); 2]);
        }
        None => {
            let is_number = matches!(ends[0], LogFilterEnd::Number(_));
            assert!(filter.block_hash.is_none() && !(is_number && ends[0] == ends[1]));
        }
    }
});
