//! Lookups at the owner: the responses that may be shared between machines.

use std::sync::Arc;

use sszip_core::cache::chain::{ChainState, HeightUnit};
use sszip_core::cache::owner_protocol::call_kind::{call_kind, NO_CALL_KIND};
use sszip_core::cache::process::owner_client::BatchLookupOptions;
use sszip_core::cache::process::wake::WokenRequestQueue;
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::cache::CacheKey;
use sszip_core::exchange::{Exchange, Header, LookupAction, LookupRequest, RequestHead};

use crate::batch_owner::{BatchOwner, RecordedLookup};
use crate::setup::{config_of_process, JSON};

const NAMESPACE: &str = "cache_namespace mainnet";

const ONLY_IF_CACHED: Header<'static> = (b"Cache-Control", b"only-if-cached");

const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["TAG",false]}"#;

/// A request, and the configuration of its route and its owner.
#[derive(Clone, Copy)]
struct TestRequest<'a> {
    /// Whether the identity of the chain `mainnet` is known; `None`: the chain is not followed.
    is_chain_known: Option<bool>,
    /// Unit of the chain's heights.
    heights: HeightUnit,
    directives: &'a [&'a str],
    fields: &'a [Header<'a>],
    method: &'a [u8],
    target: &'a [u8],
    body: &'a str,
}

impl Default for TestRequest<'_> {
    fn default() -> Self {
        Self {
            is_chain_known: Some(true),
            heights: HeightUnit::Blocks,
            directives: &["cache on", NAMESPACE],
            fields: &[JSON],
            method: b"POST",
            target: b"/",
            body: "",
        }
    }
}

impl TestRequest<'_> {
    /// Looks the request up in a new process, and returns the lookups at the owner.
    fn look_up(self) -> Vec<RecordedLookup> {
        let owner = Arc::new(BatchOwner::default());
        if let Some(is_known) = self.is_chain_known {
            let mut state = ChainState::new_without_blocks(self.heights, 0);
            state.known = is_known;
            state.last_final = (self.heights == HeightUnit::Slots).then_some(5);
            let namespace = named_cache_namespace(b"mainnet");
            owner.chains.get_or_add_chain(namespace, || state);
        }
        let process = ProcessResources::default();
        let queue = Arc::new(WokenRequestQueue::default());
        let waiter = process.shared.add_event_loop(queue).waiter_of_request(1);
        process.shared.set_owner_client(owner.clone());
        let mut exchange = Exchange::new(config_of_process(process, self.directives));
        let head = RequestHead {
            method: self.method,
            target: self.target,
            fields: self.fields.iter().copied(),
        };
        exchange.read_request_head(head).unwrap();
        let found = exchange.lookup_in_cache(LookupRequest {
            body: self.body.as_bytes(),
            now: 1,
            waiter: Some(waiter),
            coding_allowed: true,
            ..LookupRequest::default()
        });
        // the owner's reply to a batch is awaited
        let expected = match self.body.starts_with('[') {
            true => LookupAction::Wait,
            false if self.fields.contains(&ONLY_IF_CACHED) => LookupAction::Respond,
            false => LookupAction::Forward,
        };
        assert_eq!(found.unwrap(), expected);
        let lookups = std::mem::take(&mut *owner.lookups.lock().unwrap());
        lookups
    }

    /// Looks the request up, and returns whether its response may be shared; `None` if the owner
    /// receives no lookup.
    fn is_shareable(self) -> Option<bool> {
        match &self.look_up()[..] {
            [] => None,
            [RecordedLookup::Single(_, options)] => Some(options.is_shareable),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the key of a single lookup.
fn key_of_call(body: &str) -> CacheKey {
    let request = TestRequest {
        body,
        ..TestRequest::default()
    };
    match request.look_up()[..] {
        [RecordedLookup::Single(key, _)] => key,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn response_about_a_named_block_or_transaction_may_be_shared() {
    let hash = format!("0x{:064x}", 7);
    for (method, params, expected) in [
        ("eth_getBlockByNumber", r#"["0x5",false]"#, Some(true)),
        ("eth_getBlockByHash", r#"["HASH",false]"#, Some(true)),
        ("eth_getTransactionReceipt", r#"["HASH"]"#, Some(true)),
        ("eth_chainId", "[]", Some(true)),
        ("eth_getBlockByNumber", r#"["latest",false]"#, Some(false)),
        (
            "eth_getBlockByNumber",
            r#"["finalized",false]"#,
            Some(false),
        ),
        ("eth_blockNumber", "[]", Some(false)),
        ("eth_gasPrice", "[]", Some(false)),
        ("eth_getBlockByNumber", r#"["pending",false]"#, None),
    ] {
        let params = params.replace("HASH", &hash);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = TestRequest {
            body: &body,
            ..TestRequest::default()
        };
        assert_eq!(request.is_shareable(), expected, "{body}");
    }
}

#[test]
fn response_of_the_beacon_api_about_a_final_slot_may_be_shared() {
    let root = format!("/eth/v2/beacon/blocks/0x{:064x}", 7);
    for (target, expected) in [
        ("/eth/v2/beacon/blocks/5", Some(true)),
        ("/eth/v2/beacon/blocks/6", Some(false)),
        ("/eth/v2/beacon/blocks/genesis", Some(true)),
        // no slot that a reader could compare with its chain
        (&root[..], Some(false)),
        ("/eth/v1/beacon/genesis", Some(false)),
        ("/eth/v2/beacon/blocks/head", Some(false)),
        ("/eth/v2/beacon/blocks/finalized", Some(false)),
        ("/eth/v1/config/spec", Some(false)),
        // not looked up
        ("/page", None),
    ] {
        let request = TestRequest {
            heights: HeightUnit::Slots,
            method: b"GET",
            target: target.as_bytes(),
            fields: &[],
            ..TestRequest::default()
        };
        assert_eq!(request.is_shareable(), expected, "{target}");
        // a slot can't be compared with the numbers of blocks
        let of_blocks = TestRequest {
            heights: HeightUnit::Blocks,
            ..request
        };
        let expected = expected.map(|_| false);
        assert_eq!(of_blocks.is_shareable(), expected, "{target}");
    }
}

#[test]
fn call_is_not_shared_if_its_namespace_follows_slots() {
    let body = BLOCK.replace("TAG", "0x5");
    let request = TestRequest {
        heights: HeightUnit::Slots,
        body: &body,
        ..TestRequest::default()
    };
    assert_eq!(request.is_shareable(), Some(false));
}

#[test]
fn response_is_not_shared_if_its_key_has_credentials() {
    let body = BLOCK.replace("TAG", "0x5");
    let key: Header<'_> = (b"X-Api-Key", b"secret");
    for (policy, fields, expected) in [
        ("key", &[JSON, key][..], Some(false)),
        ("key", &[JSON], Some(false)),
        ("ignore", &[JSON, key], Some(true)),
    ] {
        let credentials = format!("cache_credentials {policy} X-Api-Key");
        let request = TestRequest {
            directives: &["cache on", NAMESPACE, &credentials],
            fields,
            body: &body,
            ..TestRequest::default()
        };
        assert_eq!(request.is_shareable(), expected, "{policy} {fields:?}");
    }
}

#[test]
fn response_is_shared_only_if_the_chain_of_its_namespace_is_known() {
    let body = BLOCK.replace("TAG", "0x5");
    for (directive, is_chain_known, expected) in [
        (NAMESPACE, Some(true), true),
        (NAMESPACE, Some(false), false),
        (NAMESPACE, None, false),
        ("cache_namespace other", Some(true), false),
        // the route is the namespace
        ("cache_lock on", Some(true), false),
    ] {
        let request = TestRequest {
            is_chain_known,
            directives: &["cache on", directive],
            body: &body,
            ..TestRequest::default()
        };
        let is_shareable = request.is_shareable();
        assert_eq!(
            is_shareable,
            Some(expected),
            "{directive} {is_chain_known:?}"
        );
    }
}

#[test]
fn shareable_keys_of_a_batch_are_the_first_ones() {
    let calls = ["latest", "0x5", "finalized", "0x6"].map(|tag| BLOCK.replace("TAG", tag));
    let [latest, five, finalized, six] = calls.each_ref().map(|call| key_of_call(call));
    let numbered = calls.iter().enumerate().map(|(n, call)| {
        let id = format!("\"id\":{n}");
        call.replace("\"id\":1", &id)
    });
    let body = format!("[{}]", numbered.collect::<Vec<_>>().join(","));
    let request = TestRequest {
        body: &body,
        ..TestRequest::default()
    };
    let options = BatchLookupOptions {
        call_kinds: vec![call_kind(b"eth_getBlockByNumber"); 2],
        max_lease_wait_ms: 5_000,
    };
    let expected = RecordedLookup::Batch(vec![five, six, latest, finalized], options.clone());
    assert_eq!(request.look_up(), [expected]);
    let unknown = TestRequest {
        is_chain_known: Some(false),
        ..request
    };
    let options = BatchLookupOptions {
        call_kinds: Vec::new(),
        ..options
    };
    let expected = RecordedLookup::Batch(vec![latest, five, finalized, six], options);
    assert_eq!(unknown.look_up(), [expected]);
}

/// Returns the options of the lookup of a batch with a shareable call of a block and another call.
fn batch_options(other: &str, directives: &[&str], fields: &[Header<'_>]) -> BatchLookupOptions {
    let body = format!("[{},{other}]", BLOCK.replace("TAG", "0x5"));
    let request = TestRequest {
        body: &body,
        directives,
        fields,
        ..TestRequest::default()
    };
    match <[_; 1]>::try_from(request.look_up()) {
        Ok([RecordedLookup::Batch(_, options)]) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn batch_waits_for_other_machines_unless_it_has_a_call_that_is_not_cached() {
    let block = BLOCK.replace("TAG", "latest");
    let transaction =
        r#"{"jsonrpc":"2.0","id":2,"method":"eth_sendRawTransaction","params":["0x00"]}"#;
    let directives = ["cache on", NAMESPACE, "cache_lock_timeout 3s"];
    for (other, expected) in [(&block[..], 3_000), (transaction, 0)] {
        let options = batch_options(other, &directives, &[JSON]);
        assert_eq!(options.max_lease_wait_ms, expected, "{other}");
        assert_eq!(options.call_kinds[0], call_kind(b"eth_getBlockByNumber"));
    }
}

#[test]
fn only_if_cached_takes_no_lease_of_the_fleet() {
    let body = BLOCK.replace("TAG", "0x5");
    let kind = call_kind(b"eth_getBlockByNumber");
    for (fields, expected) in [(&[JSON][..], kind), (&[JSON, ONLY_IF_CACHED], NO_CALL_KIND)] {
        let request = TestRequest {
            fields,
            body: &body,
            ..TestRequest::default()
        };
        match request.look_up()[..] {
            [RecordedLookup::Single(_, options)] => {
                assert!(options.is_shareable, "{fields:?}");
                assert_eq!(options.call_kind, expected, "{fields:?}");
            }
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn calls_of_a_batch_have_no_leases_if_they_are_not_coalesced_or_not_stored() {
    let latest = BLOCK.replace("TAG", "latest");
    let no_store = (&b"Cache-Control"[..], &b"no-store"[..]);
    for (lock, fields) in [
        ("cache_lock off", &[JSON][..]),
        ("cache_lock on", &[JSON, no_store]),
        // it fetches nothing, and a lease of the fleet can't be returned
        ("cache_lock on", &[JSON, ONLY_IF_CACHED]),
    ] {
        let directives = ["cache on", NAMESPACE, lock];
        let expected = BatchLookupOptions {
            call_kinds: vec![NO_CALL_KIND],
            max_lease_wait_ms: 0,
        };
        assert_eq!(batch_options(&latest, &directives, fields), expected);
    }
}
