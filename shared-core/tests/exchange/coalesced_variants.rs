//! Coalesced requests whose response turns out to vary: each variant is fetched once, and each
//! client receives its own variant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::RouteConfig;
use sszip_core::exchange::{Exchange, LookupAction, LookupRequest, ResponseHeadAction};

use crate::setup::{body, config_and_queue, posted, response_head, JSON};

struct Host {
    config: Arc<RouteConfig>,
    process: ProcessResources,
    woken: Arc<WokenRequestQueue>,
}

/// A client of the host: the origin that selects its variant, and its exchange.
struct Client {
    origin: String,
    exchange: Exchange,
}

impl Host {
    fn new() -> Self {
        let (config, woken) = config_and_queue(&["cache on", "cache_namespace x"]);
        let process = config.process.clone();
        Self {
            config,
            process,
            woken,
        }
    }

    fn client(&self, origin: &str) -> Client {
        Client {
            origin: origin.to_owned(),
            exchange: posted(&self.config, &[JSON, (b"Origin", origin.as_bytes())]),
        }
    }

    /// Looks up the same call for each origin before the node has answered any, and returns the
    /// number of fetches per variant.
    fn coalesced_fetches(&self, origins: &[&str], batch: bool) -> BTreeMap<String, usize> {
        let mut fetches = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        let mut at_node = VecDeque::new();
        let mut resume = |id: usize,
                          mut client: Client,
                          waiting: &mut BTreeMap<usize, Client>,
                          at_node: &mut VecDeque<(usize, Client)>| {
            match look_up(&mut client.exchange, id, batch) {
                LookupAction::Wait => drop(waiting.insert(id, client)),
                LookupAction::Respond => {
                    let body = String::from_utf8(body(&client.exchange)).unwrap();
                    assert_eq!(body, answer(id, &client.origin, batch));
                }
                LookupAction::Forward => {
                    *fetches.entry(client.origin.clone()).or_insert(0) += 1;
                    at_node.push_back((id, client));
                }
                other => panic!("{other:?}"),
            }
        };
        for (id, origin) in origins.iter().enumerate() {
            let client = self.client(origin);
            resume(id + 1, client, &mut waiting, &mut at_node);
        }
        while let Some((id, mut client)) = at_node.pop_front() {
            let fields = [JSON, (&b"Vary"[..], &b"Origin"[..])];
            let head = response_head(200, None, &fields);
            assert_eq!(
                client.exchange.evaluate_response_head(head).unwrap(),
                ResponseHeadAction::Tee
            );
            // a client that arrives while the body is transferred
            let late = self.client(&client.origin);
            resume(1000 + id, late, &mut waiting, &mut at_node);
            let wake = |waiting: &mut BTreeMap<usize, Client>| {
                let mut woken = Vec::new();
                while let Some(id) = self.woken.next_woken_id() {
                    woken.extend(waiting.remove(&id).map(|client| (id, client)));
                }
                woken
            };
            for (id, client) in wake(&mut waiting) {
                resume(id, client, &mut waiting, &mut at_node);
            }
            let body = answer(id, &client.origin, batch);
            client
                .exchange
                .observe_passed_piece(body.as_bytes())
                .unwrap();
            let mut fill = client.exchange.take_complete_fill().unwrap();
            fill.build_collected_entries();
            fill.store_and_publish_entries(1);
            for (id, client) in wake(&mut waiting) {
                resume(id, client, &mut waiting, &mut at_node);
            }
        }
        assert!(waiting.is_empty());
        assert_eq!(self.process.shared.flights.flight_count(), 0);
        fetches
    }
}

fn look_up(exchange: &mut Exchange, id: usize, batch: bool) -> LookupAction {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getTransactionReceipt","params":["0x{}"]}}"#,
        "ab".repeat(32)
    );
    let body = match batch {
        true => format!("[{call}]"),
        false => call,
    };
    exchange
        .lookup_in_cache(LookupRequest {
            body: body.as_bytes(),
            now: 1,
            waiter: Some(EventLoopId::default().waiter_of_request(id)),
            coding_allowed: true,
            ..LookupRequest::default()
        })
        .unwrap()
}

fn answer(id: usize, origin: &str, batch: bool) -> String {
    let one = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"blockNumber":"0x1","for":"{origin}"}}}}"#
    );
    match batch {
        true => format!("[{one}]"),
        false => one,
    }
}

#[test]
fn coalesced_requests_of_one_variant_reach_the_node_once() {
    for batch in [false, true] {
        let fetches = Host::new().coalesced_fetches(&["https://a"; 200], batch);
        assert_eq!(
            fetches,
            BTreeMap::from([("https://a".into(), 1)]),
            "{batch}"
        );
    }
}

#[test]
fn coalesced_requests_of_several_variants_reach_the_node_once_per_variant() {
    for batch in [false, true] {
        let origins: Vec<_> = (0..200)
            .map(|n| ["https://a", "https://b", "https://c"][n * n % 3 + n % 2])
            .collect();
        let fetches = Host::new().coalesced_fetches(&origins, batch);
        assert!(
            fetches.values().all(|times| *times == 1),
            "{batch}: {fetches:?}"
        );
        assert_eq!(fetches.len(), 3);
    }
}
