//! The limit on block ranges: tags are resolved by the followed chain of the route's namespace.

use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, ChainState, HeightUnit};
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::exchange::drive::HostStep;

use crate::batch_owner::BatchOwner;
use crate::driver_host::body_to_send;
use crate::setup::{config, config_of_process, look_up};

/// Directives of a route with a limit of 100 blocks, in the namespace `mainnet`.
const LIMITED: &[&str] = &["logs_max_range 100", "cache_namespace mainnet"];

/// Returns a process that follows `mainnet`, if `changes` are its changes: `None` is a chain that is
/// not followed.
fn process(heights: HeightUnit, changes: Option<&[ChainChange]>) -> ProcessResources {
    let owner = Arc::new(BatchOwner::default());
    if let Some(changes) = changes {
        let mut state = ChainState::new_without_blocks(heights, 0);
        for change in changes {
            state.apply_chain_change(*change);
        }
        let namespace = named_cache_namespace(b"mainnet");
        owner.chains.get_or_add_chain(namespace, || state);
    }
    let process = ProcessResources::default();
    process.shared.set_owner_client(owner);
    process
}

fn logs(id: u32, filter: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getLogs","params":[{filter}]}}"#)
}

fn too_wide(id: u32, from: u64, to: u64) -> String {
    let count = to - from + 1;
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"the block range from {from} to {to} ({count} blocks) is longer than the limit of 100"}}}}"#
    )
}

/// Returns the response of the process to a request, or `None` if the request is forwarded.
fn response(process: ProcessResources, directives: &[&str], body: &str) -> Option<String> {
    let config = config_of_process(process, directives);
    let (driver, step) = look_up(&config, body, "identity");
    match step {
        HostStep::Forward => None,
        HostStep::Respond => Some(String::from_utf8(body_to_send(&driver)).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn open_ranges_are_limited_by_the_followed_head() {
    let known = [ChainChange::Head(1_000), ChainChange::Final(Some(900))];
    for (filter, denied) in [
        (r#"{"fromBlock":"0x385"}"#, None),
        (r#"{"fromBlock":"0x384"}"#, Some((900, 1_000))),
        (
            r#"{"fromBlock":"0x384","toBlock":"latest"}"#,
            Some((900, 1_000)),
        ),
        (r#"{"fromBlock":"finalized"}"#, Some((900, 1_000))),
        (r#"{"fromBlock":"safe"}"#, None),
        (
            r#"{"fromBlock":"earliest","toBlock":"safe"}"#,
            Some((0, 900)),
        ),
        (r#"{"toBlock":"0x44c"}"#, Some((1_000, 1_100))),
        (r#"{"fromBlock":"0x3e9"}"#, None),
        (r#"{"blockHash":"0x00"}"#, None),
    ] {
        let process = process(HeightUnit::Blocks, Some(&known));
        let response = response(process, LIMITED, &logs(7, filter));
        let expected = denied.map(|(from, to)| too_wide(7, from, to));
        assert_eq!(response, expected, "{filter}");
    }
}

#[test]
fn open_ranges_are_not_limited_without_a_followed_head() {
    const OPEN: &str = r#"{"fromBlock":"0x1"}"#;
    let head = ChainChange::Head(1_000);
    for (heights, changes) in [
        (HeightUnit::Blocks, None),
        (HeightUnit::Blocks, Some(&[][..])),
        // the heights of the Beacon API are slots
        (HeightUnit::Slots, Some(&[head][..])),
        (
            HeightUnit::Blocks,
            Some(&[head, ChainChange::Wrong(true)][..]),
        ),
    ] {
        let unknown = process(heights, changes);
        assert_eq!(response(unknown, LIMITED, &logs(7, OPEN)), None);
        // a range of numbers needs no head
        let wide = logs(7, r#"{"fromBlock":"0x1","toBlock":"0x65"}"#);
        let unknown = process(heights, changes);
        assert_eq!(response(unknown, LIMITED, &wide), Some(too_wide(7, 1, 101)));
    }
    let other = process(HeightUnit::Blocks, Some(&[head]));
    let directives = ["logs_max_range 100", "cache_namespace other"];
    assert_eq!(response(other, &directives, &logs(7, OPEN)), None);
}

#[test]
fn range_is_limited_with_the_cache_enabled_and_in_batches() {
    let known = [ChainChange::Head(1_000), ChainChange::Final(Some(900))];
    let directives = ["logs_max_range 100", "cache_namespace mainnet", "cache on"];
    let wide = format!(
        "[{},{}]",
        logs(1, r#"{"fromBlock":"0x1"}"#),
        logs(2, r#"{"toBlock":"0x7d0"}"#)
    );
    let denied = format!("[{},{}]", too_wide(1, 1, 1_000), too_wide(2, 1_000, 2_000));
    let process = process(HeightUnit::Blocks, Some(&known));
    assert_eq!(response(process, &directives, &wide), Some(denied));
}

#[test]
fn errors_of_a_long_batch_name_the_limit_only() {
    let wide = |id| logs(id, r#"{"fromBlock":"0x1","toBlock":"0x65"}"#);
    for (count, message) in [
        (
            1_000,
            "the block range from 1 to 101 (101 blocks) is longer than the limit of 100",
        ),
        (1_001, "the block range is longer than the limit of 100"),
    ] {
        let calls: Vec<_> = (0..count).map(wide).collect();
        let body = format!("[{}]", calls.join(","));
        let (driver, step) = look_up(&config(LIMITED), &body, "identity");
        assert!(matches!(step, HostStep::Respond));
        let response: serde_json::Value = serde_json::from_slice(&body_to_send(&driver)).unwrap();
        let elements = response.as_array().unwrap();
        assert_eq!(elements.len(), count as usize);
        for (id, element) in elements.iter().enumerate() {
            assert_eq!(element["id"], id);
            assert_eq!(element["error"]["code"], -32602);
            assert_eq!(element["error"]["message"], message);
        }
    }
}
