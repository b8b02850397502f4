//! A generated sample of mainnet's responses, used without recordings.
//!
//! The same seed generates the same bytes. Sizes range from 24 B to about 5 MB in steps, so that
//! every path of a proxy is used; the entropy is tuned to recorded responses, and the tests check
//! it by bands of gzip ratios.

mod beacon;
pub mod chain;
pub mod receipts;
mod small;
pub mod traces;
pub mod values;
pub mod world;

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::responses::{RecordedResponse, ResponseTable};
use chain::GeneratedBlock;
use values::{hex_prefixed, Quantity};
use world::{SampleAccounts, SeededGenerator};

/// Number of the newest block.
const HEAD_NUMBER: u64 = 22_020_096;

/// Approximate bytes of `eth_getBlockByNumber` with full transactions, for each block counted
/// back from the head.
const BLOCK_SIZES: [usize; 8] = [
    250_000, 30_000, 300_000, 100_000, 10_000, 3_000, 60_000, 740_000,
];
/// Distance of the finalized block from the head.
const FINALIZED_DISTANCE: usize = 6;
/// Number of transactions of the first blocks that can be requested one by one.
const SINGLE_TRANSACTIONS: usize = 10;

/// The builder of the response table for the generated sample.
struct SampleResponsesBuilder {
    answers: ResponseTable,
}

impl SampleResponsesBuilder {
    /// Adds a result under one or more params.
    fn add_sample_result(&mut self, method: &str, params: &[String], result: &impl Serialize) {
        // The results are plain data, so serialization can't fail.
        if let Ok(answer) = RecordedResponse::from_generated_result(result) {
            self.add_answer(method, params, answer);
        }
    }

    /// Adds one response under several spellings of its params.
    fn add_answer(&mut self, method: &str, params: &[String], answer: RecordedResponse) {
        let answer = Arc::new(answer);
        for params in params {
            let params = serde_json::from_str::<&RawValue>(params).ok();
            self.answers
                .insert_recorded_response(method, params, answer.clone());
        }
    }
}

/// Generates a table of responses that resemble mainnet's, from `seed`.
pub fn generate_sample_responses(seed: u64, lenient: bool) -> ResponseTable {
    let mut dice = SeededGenerator::new(seed);
    let world = SampleAccounts::new(&mut dice);
    let mut builder = SampleResponsesBuilder {
        answers: ResponseTable::new(lenient),
    };
    for (age, size) in BLOCK_SIZES.into_iter().enumerate() {
        let block =
            GeneratedBlock::generate_block(&world, &mut dice, HEAD_NUMBER - age as u64, size);
        add_block(&mut builder, &world, &mut dice, age, &block);
    }
    small::add_small_responses(&mut builder, &world, &mut dice);
    builder.answers
}

/// Adds the responses about a block. `age` 0 is the head, which is `latest` too, and the only block
/// with responses about single transactions.
fn add_block(
    builder: &mut SampleResponsesBuilder,
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    age: usize,
    block: &GeneratedBlock,
) {
    let number = format!("{:#x}", block.header.number.0);
    let hash = hex_prefixed(&block.header.hash.0);
    let mut names = vec![number.clone()];
    match age {
        0 => names.push("latest".to_owned()),
        FINALIZED_DISTANCE => names.push("finalized".to_owned()),
        _ => (),
    }
    let by_name = |rest: &str| -> Vec<String> {
        names
            .iter()
            .map(|name| format!("[\"{name}\"{rest}]"))
            .collect()
    };
    let by_hash = |rest: &str| [format!("[\"{hash}\"{rest}]")];

    let full = block.view_with_transactions();
    builder.add_sample_result("eth_getBlockByNumber", &by_name(",true"), &full);
    builder.add_sample_result("eth_getBlockByHash", &by_hash(",true"), &full);
    let short = block.view_with_hashes();
    builder.add_sample_result("eth_getBlockByNumber", &by_name(",false"), &short);
    builder.add_sample_result("eth_getBlockByHash", &by_hash(",false"), &short);

    let either: Vec<String> = by_name("").into_iter().chain(by_hash("")).collect();
    let count = Quantity(block.transactions.len());
    builder.add_sample_result("eth_getBlockTransactionCountByNumber", &by_name(""), &count);
    builder.add_sample_result("eth_getBlockReceipts", &either, &block.receipts);

    let logs: Vec<_> = block
        .receipts
        .iter()
        .flat_map(|receipt| &receipt.logs)
        .collect();
    let filters = [
        format!("[{{\"blockHash\":\"{hash}\"}}]"),
        format!("[{{\"fromBlock\":\"{number}\",\"toBlock\":\"{number}\"}}]"),
    ];
    builder.add_sample_result("eth_getLogs", &filters, &logs);
    let transfer = world::decode_fixed_digits(world::TRANSFER);
    let transfers: Vec<_> = logs
        .iter()
        .filter(|log| log.topics.first() == Some(&transfer))
        .collect();
    let topic = hex_prefixed(&transfer.0);
    let filter = format!(
        "[{{\"fromBlock\":\"{number}\",\"toBlock\":\"{number}\",\"topics\":[\"{topic}\"]}}]"
    );
    builder.add_sample_result("eth_getLogs", &[filter], &transfers);

    let traces = traces::block_traces(world, dice, block);
    let tracer = ",{\"tracer\":\"callTracer\"}";
    builder.add_sample_result("debug_traceBlockByNumber", &by_name(tracer), &traces);
    builder.add_sample_result("debug_traceBlockByHash", &by_hash(tracer), &traces);
    builder.add_sample_result(
        "trace_block",
        &by_name(""),
        &traces::flatten_traces(block, &traces),
    );

    if age == 0 {
        let singles = block.transactions.iter().zip(&block.receipts).zip(&traces);
        for ((transaction, receipt), trace) in singles.take(SINGLE_TRANSACTIONS) {
            let hash = hex_prefixed(&transaction.hash.0);
            let by_hash = [format!("[\"{hash}\"]")];
            builder.add_sample_result("eth_getTransactionByHash", &by_hash, transaction);
            builder.add_sample_result("eth_getTransactionReceipt", &by_hash, receipt);
            let traced = [format!("[\"{hash}\"{tracer}]")];
            builder.add_sample_result("debug_traceTransaction", &traced, &trace.result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{CallResponder, ReplayLookupResult};

    /// The compressed size at zlib's level 6 determines the meaning of a benchmark on this data.
    /// The bands were measured on recorded mainnet responses.
    #[test]
    fn sample_compresses_like_recorded_responses() {
        let answers = generate_sample_responses(1, false);
        let tracer = "{\"tracer\":\"callTracer\"}";
        let bands = [
            (
                "eth_getBlockByNumber",
                "[\"latest\",true]".to_owned(),
                240_000,
                3.4,
                4.3,
            ),
            (
                "eth_getBlockByNumber",
                "[\"0x14fffff\",true]".to_owned(),
                30_000,
                3.0,
                4.3,
            ),
            (
                "eth_getBlockByNumber",
                "[\"0x14ffffe\",true]".to_owned(),
                290_000,
                3.4,
                4.3,
            ),
            (
                "eth_getBlockByNumber",
                "[\"latest\",false]".to_owned(),
                20_000,
                1.7,
                2.1,
            ),
            (
                "eth_getBlockReceipts",
                "[\"0x14ffffd\"]".to_owned(),
                200_000,
                8.0,
                10.0,
            ),
            (
                "eth_getBlockReceipts",
                "[\"latest\"]".to_owned(),
                560_000,
                8.0,
                10.0,
            ),
            (
                "debug_traceBlockByNumber",
                format!("[\"0x14ffffd\",{tracer}]"),
                400_000,
                4.5,
                7.5,
            ),
            (
                "debug_traceBlockByNumber",
                format!("[\"latest\",{tracer}]"),
                1_100_000,
                4.5,
                7.5,
            ),
            (
                "trace_block",
                "[\"0x14ffffd\"]".to_owned(),
                600_000,
                3.7,
                11.0,
            ),
        ];
        for (method, params, size, low, high) in bands {
            let params: &RawValue = serde_json::from_str(&params).unwrap();
            let ReplayLookupResult::Answer(answer) =
                answers.find_response_to_call(method, Some(params))
            else {
                panic!("{method} {params} has no answer");
            };
            let len = answer.body_with_id("1").len();
            assert!(len.abs_diff(size) < size / 8, "{method} {params}: {len} B");
            let ratio = len as f64 / answer.gzipped_with_id("1").len() as f64;
            assert!((low..high).contains(&ratio), "{method} {params}: {ratio}");
        }
        let sizes: Vec<usize> = answers
            .response_size_rows()
            .into_iter()
            .map(|row| row.2)
            .collect();
        assert_eq!(sizes.iter().min(), Some(&24));
        assert!(matches!(sizes.iter().max(), Some(4_500_000..5_500_000)));
    }

    #[test]
    fn sample_depends_only_on_the_seed() {
        let small = |seed| {
            let mut dice = SeededGenerator::new(seed);
            let world = SampleAccounts::new(&mut dice);
            let block = GeneratedBlock::generate_block(&world, &mut dice, HEAD_NUMBER, 20_000);
            let traces = traces::block_traces(&world, &mut dice, &block);
            let flat = traces::flatten_traces(&block, &traces);
            let full = block.view_with_transactions();
            let all = serde_json::to_string(&(full, &block.receipts, &traces, flat));
            all.unwrap()
        };
        assert!(small(1) == small(1));
        assert!(small(1) != small(2));
    }
}
