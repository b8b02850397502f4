//! Logs that are derived from stored receipts: the comparisons before, and the calls to which it
//! applies.

use std::sync::Arc;

use sszip_core::cache::process::derived_logs::REQUIRED_EQUAL_RESPONSES;
use sszip_core::cache::process::wake::{WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::status::CacheStatus;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{Exchange, LookupAction, LookupRequest, ResponseHeadAction};

use crate::batch_owner::BatchOwner;
use crate::setup::{body, config_of_process, posted, response_head, JSON};

/// Number of blocks after which logs are derived.
const COMPARED: u64 = REQUIRED_EQUAL_RESPONSES as u64;

const DIRECTIVES: &[&str] = &[
    "cache on",
    "cache_namespace mainnet",
    "logs_from_receipts on",
];

/// A process with a route, and the node behind it.
struct Host {
    config: Arc<RouteConfig>,
    waiter: WaitingRequestId,
}

impl Host {
    fn new(directives: &[&str], owner: Option<BatchOwner>) -> Self {
        let process = ProcessResources::default();
        process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
        let queue = Arc::new(WokenRequestQueue::default());
        let waiter = process.shared.add_event_loop(queue).waiter_of_request(1);
        if let Some(owner) = owner {
            process.shared.set_owner_client(Arc::new(owner));
        }
        Self {
            config: config_of_process(process, directives),
            waiter,
        }
    }

    /// Creates a process that follows a chain whose block 900 is final.
    fn for_followed_chain() -> Self {
        let owner = BatchOwner::following_chain("mainnet", 1_000, 900);
        Self::new(DIRECTIVES, Some(owner))
    }

    fn look_up(&self, exchange: &mut Exchange, call: &str) -> LookupAction {
        let lookup = LookupRequest {
            body: call.as_bytes(),
            now: 1,
            waiter: Some(self.waiter),
            coding_allowed: true,
            ..LookupRequest::default()
        };
        exchange.lookup_in_cache(lookup).unwrap()
    }

    /// Sends a call, and waits for the owner if the lookup does.
    fn request(&self, call: &str) -> (Exchange, LookupAction) {
        let mut exchange = posted(&self.config, &[JSON]);
        let mut found = self.look_up(&mut exchange, call);
        if found == LookupAction::Wait {
            found = self.look_up(&mut exchange, call);
        }
        (exchange, found)
    }

    /// Sends a call, to which the node responds with this result.
    fn fetch(&self, call: &str, result: &str) {
        let (mut exchange, found) = self.request(call);
        assert_eq!(found, LookupAction::Forward, "{call}");
        let action = exchange
            .evaluate_response_head(response_head(200, None, &[JSON]))
            .unwrap();
        assert_eq!(action, ResponseHeadAction::Tee);
        exchange
            .observe_passed_piece(response(1, result).as_bytes())
            .unwrap();
        let mut fill = exchange.take_complete_fill().unwrap();
        fill.build_collected_entries();
        fill.store_and_publish_entries(1);
    }

    /// Compares the logs of the first blocks, by their hashes or numbers.
    fn compare_blocks(&self, logs_call: fn(u64) -> String, receipts_call: fn(u64) -> String) {
        for block in 1..=COMPARED {
            self.fetch(&receipts_call(block), &receipts(block));
            self.fetch(&logs_call(block), &logs(block));
        }
    }

    /// Returns the response without the node, if there is one.
    fn response_to_hit(&self, call: &str) -> Option<String> {
        let (exchange, found) = self.request(call);
        if found != LookupAction::Respond {
            assert_eq!(found, LookupAction::Forward, "{call}");
            return None;
        }
        assert_eq!(exchange.cache_status(), CacheStatus::Hit);
        Some(String::from_utf8(body(&exchange)).unwrap())
    }

    fn take_log_line(&self) -> Option<String> {
        self.config.process.shared.verified.take_log_line()
    }
}

fn response(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{params}]}}"#)
}

fn hash(number: u64) -> String {
    format!("0x{number:064x}")
}

/// A log of the address with this number.
fn log(block: u64, index: u64, address: u64) -> String {
    format!(
        r#"{{"address":"0x{address:040x}","topics":["{}"],"data":"0x","blockNumber":"0x{block:x}","blockHash":"{}","logIndex":"0x{index:x}","removed":false}}"#,
        hash(7),
        hash(block)
    )
}

/// The receipts of a block with three logs, of the addresses 1, 2 and 1.
fn receipts(block: u64) -> String {
    let receipt = |number: u64, logs: &[String]| {
        format!(
            r#"{{"blockNumber":"0x{block:x}","blockHash":"{}","transactionIndex":"0x{number:x}","status":"0x1","logs":[{}]}}"#,
            hash(block),
            logs.join(",")
        )
    };
    format!(
        "[{},{}]",
        receipt(0, &[log(block, 0, 1), log(block, 1, 2)]),
        receipt(1, &[log(block, 2, 1)])
    )
}

/// The logs of address 1.
fn logs(block: u64) -> String {
    format!("[{},{}]", log(block, 0, 1), log(block, 2, 1))
}

fn receipts_by_hash(block: u64) -> String {
    call("eth_getBlockReceipts", &format!("\"{}\"", hash(block)))
}

fn receipts_by_number(block: u64) -> String {
    call("eth_getBlockReceipts", &format!("\"0x{block:x}\""))
}

/// A call for the logs of address 1 in a block, with more members of the filter.
fn logs_by_filter(block: u64, members: &str) -> String {
    let filter = format!(r#"{{"blockHash":"{}",{members}}}"#, hash(block));
    call("eth_getLogs", &filter)
}

fn logs_by_hash(block: u64) -> String {
    logs_by_filter(block, &format!(r#""address":"0x{:040X}""#, 1))
}

fn logs_by_number(block: u64) -> String {
    let filter = format!(
        r#"{{"fromBlock":"0x{block:x}","toBlock":"0x{block:x}","address":["0x{:040x}"]}}"#,
        1
    );
    call("eth_getLogs", &filter)
}

#[test]
fn logs_are_derived_after_equal_responses_of_the_node() {
    let host = Host::new(DIRECTIVES, None);
    host.compare_blocks(logs_by_hash, receipts_by_hash);
    let block = COMPARED + 1;
    assert_eq!(host.response_to_hit(&logs_by_hash(block)), None);
    host.fetch(&receipts_by_hash(block), &receipts(block));
    let derived = Some(response(1, &logs(block)));
    assert_eq!(host.response_to_hit(&logs_by_hash(block)), derived);
    let shared = &host.config.process.shared;
    let counts = shared.derived_logs.events.take_event_counts();
    assert_eq!(counts, Some([1, COMPARED, 0]));
    // the derived response was stored
    let other_id = logs_by_hash(block).replace("\"id\":1", "\"id\":2");
    let stored = Some(response(2, &logs(block)));
    assert_eq!(host.response_to_hit(&other_id), stored);
    assert_eq!(shared.derived_logs.events.take_event_counts(), None);
    assert_eq!(host.take_log_line(), None);
}

#[test]
fn different_response_of_the_node_ends_the_derivation() {
    let host = Host::new(DIRECTIVES, None);
    let other_order = |text: &str| text.replace(r#""data":"0x","#, "");
    host.fetch(&receipts_by_hash(100), &receipts(100));
    host.fetch(&logs_by_hash(100), &other_order(&logs(100)));
    let line = host.take_log_line().unwrap();
    assert!(line.contains("are not derived"), "{line}");
    assert!(line.contains("block 100 "), "{line}");
    host.compare_blocks(logs_by_hash, receipts_by_hash);
    host.fetch(&receipts_by_hash(101), &receipts(101));
    assert_eq!(host.response_to_hit(&logs_by_hash(101)), None);
    assert_eq!(host.take_log_line(), None);
}

#[test]
fn empty_responses_prove_nothing() {
    let host = Host::new(DIRECTIVES, None);
    let no_logs = |block| logs_by_filter(block, &format!(r#""address":"0x{:040x}""#, 9));
    for block in 1..=2 * COMPARED {
        host.fetch(&receipts_by_hash(block), &receipts(block));
        host.fetch(&no_logs(block), "[]");
    }
    host.fetch(&receipts_by_hash(100), &receipts(100));
    assert_eq!(host.response_to_hit(&no_logs(100)), None);
    assert_eq!(host.take_log_line(), None);
}

#[test]
fn other_calls_are_sent_to_the_node() {
    let host = Host::new(DIRECTIVES, None);
    host.compare_blocks(logs_by_hash, receipts_by_hash);
    host.fetch(&receipts_by_hash(100), &receipts(100));
    host.fetch(&receipts_by_number(100), &receipts(100));
    for call in [
        // the chain is not followed
        logs_by_number(100),
        logs_by_hash(101),
        logs_by_filter(100, r#""address":[]"#),
        logs_by_filter(100, r#""limit":1"#),
        // nodes disagree on any topic at a position without one
        logs_by_filter(100, r#""topics":[null,null]"#),
        logs_by_hash(100).replace("eth_getLogs", "erigon_getLogs"),
        format!("[{}]", logs_by_hash(100)),
    ] {
        assert_eq!(host.response_to_hit(&call), None, "{call}");
    }
    // the node's response is stored as usual
    let disputed = logs_by_filter(100, r#""topics":[null,null]"#);
    host.fetch(&disputed, &logs(100));
    assert_eq!(
        host.response_to_hit(&disputed),
        Some(response(1, &logs(100)))
    );
    assert!(host.response_to_hit(&logs_by_hash(100)).is_some());
}

#[test]
fn logs_are_not_derived_unless_the_directive_is_on() {
    for directives in [&["cache on"][..], &["cache on", "logs_from_receipts off"]] {
        let host = Host::new(directives, None);
        host.compare_blocks(logs_by_hash, receipts_by_hash);
        host.fetch(&receipts_by_hash(100), &receipts(100));
        assert_eq!(host.response_to_hit(&logs_by_hash(100)), None);
        let shared = &host.config.process.shared;
        let counts = shared.derived_logs.events.take_event_counts();
        assert_eq!(counts, None);
    }
}

#[test]
fn logs_by_number_are_derived_for_final_blocks_only() {
    let host = Host::for_followed_chain();
    host.compare_blocks(logs_by_number, receipts_by_number);
    for (block, is_derived) in [(900, true), (901, false)] {
        host.fetch(&receipts_by_number(block), &receipts(block));
        let derived = host.response_to_hit(&logs_by_number(block));
        let expected = is_derived.then(|| response(1, &logs(block)));
        assert_eq!(derived, expected, "{block}");
    }
    // receipts of another block under the number
    host.fetch(&receipts_by_number(800), &receipts(801));
    assert_eq!(host.response_to_hit(&logs_by_number(800)), None);
}

#[test]
fn receipts_of_the_owner_are_awaited() {
    let host = Host::for_followed_chain();
    host.compare_blocks(logs_by_hash, receipts_by_hash);
    host.fetch(&receipts_by_hash(100), &receipts(100));
    host.config.process.shared.hot_tier().unwrap().clear();
    let mut exchange = posted(&host.config, &[JSON]);
    let call = logs_by_hash(100);
    assert_eq!(host.look_up(&mut exchange, &call), LookupAction::Wait);
    assert_eq!(host.look_up(&mut exchange, &call), LookupAction::Respond);
    let derived = String::from_utf8(body(&exchange)).unwrap();
    assert_eq!(derived, response(1, &logs(100)));
    // a block whose receipts the owner has not
    let (mut exchange, call) = (posted(&host.config, &[JSON]), logs_by_hash(101));
    assert_eq!(host.look_up(&mut exchange, &call), LookupAction::Wait);
    assert_eq!(host.look_up(&mut exchange, &call), LookupAction::Forward);
}
