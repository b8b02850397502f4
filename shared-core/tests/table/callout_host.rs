//! A host like a proxy-wasm sandbox: it has no memory, no connection and no timer, and queries
//! its owner by callouts, which the host makes after each of its own calls.

use sszip_core::hash_keys::HashMap;
use std::sync::{Arc, Mutex};

use sszip_core::cache::link::callout::{CalloutLimits, OwnerCalloutClient};
use sszip_core::cache::link::{OwnerReply as OfOwner, OwnerRequest};
use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;

use super::host::{ClientResponse, HostRequest, NextAction, RequestTask, TestHost};

/// A host in memory that queries its owner by callouts, as a proxy-wasm sandbox does.
pub struct CalloutHost {
    pub process: ProcessResources,
    calls: Arc<OwnerCalloutClient>,
    woken: Arc<WokenRequestQueue>,
    event_loop: EventLoopId,
    /// Entries of the owner.
    entries: Mutex<HashMap<String, StoredEntry>>,
    /// Namespaces of wrong chains, in hex digits.
    wrong: Mutex<Vec<String>>,
}

/// An entry of the owner: its expiry time, the time of its storage, and its bytes.
type StoredEntry = (u64, u64, Vec<u8>);

/// Waiter of the only client.
const CLIENT: usize = 7;

impl CalloutHost {
    pub fn new() -> Self {
        let process = ProcessResources::default();
        let woken = Arc::new(WokenRequestQueue::default());
        let event_loop = process.shared.add_event_loop(woken.clone());
        let calls = Arc::new(OwnerCalloutClient::new(
            "sandbox".into(),
            CalloutLimits::default(),
        ));
        process.shared.set_owner_client(calls.clone());
        Self {
            process,
            calls,
            woken,
            event_loop,
            entries: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Executes all pending callouts.
    fn execute_callouts(&self, now: u64) {
        let shared = &self.process.shared;
        while let Some(call) = self.calls.next_callout(shared, now) {
            let mut answer = self.reply_as_owner(&call.message, now);
            let of = |name| {
                let mut fields = call.message.fields.iter();
                fields.find_map(|(other, value)| (*other == name).then_some(&value[..]))
            };
            let namespace = of("sszip-namespace").unwrap_or_default();
            let is_wrong = self.wrong.lock().unwrap().iter().any(|it| it == namespace);
            let number = if is_wrong { "2" } else { "none" };
            for (name, value) in [("sszip-generation", "5"), ("sszip-chain", number)] {
                answer.parse_reply_header(name, value.as_bytes()).unwrap();
            }
            if is_wrong && of("sszip-chain-known") != Some("2") {
                let state = format!(
                    r#"{{"namespace":"{namespace}","heights":"blocks","epoch":9,"head":null,"seen":0,"final":null,"known":false,"wrong":true,"reorgs":[],"since":9}}"#
                );
                answer
                    .parse_reply_header("sszip-chain-state", state.as_bytes())
                    .unwrap();
            }
            self.calls
                .callout_answered(shared, call.ticket, answer, now);
        }
    }

    fn reply_as_owner(&self, message: &OwnerRequest, now: u64) -> OfOwner {
        let mut entries = self.entries.lock().unwrap();
        let body = message.whole_body().unwrap().into_owned();
        let path = message.target.split('?').next().unwrap();
        let key = path.rsplit('/').next().unwrap().to_string();
        let reply = |status, body| OfOwner {
            status,
            body,
            ..OfOwner::default()
        };
        let find = |key: &str| {
            let (until, since, body) = entries.get(key)?;
            let fresh = until.checked_sub(now).filter(|fresh| *fresh > 0)?;
            Some((fresh, (now - since) / 1_000, body.clone()))
        };
        match (message.method, path) {
            ("GET", _) => match find(&key) {
                Some((fresh, age, body)) => OfOwner {
                    fresh,
                    age,
                    ..reply(200, body)
                },
                None => OfOwner {
                    granted: message.target.contains("?lease=").then_some(true),
                    ..reply(404, Vec::new())
                },
            },
            ("POST", "/v1/lookups") => {
                let mut all = Vec::new();
                for key in String::from_utf8(body).unwrap().lines() {
                    if let Some((fresh, _, body)) = find(key) {
                        all.extend(const_hex::decode(key).unwrap());
                        all.extend(fresh.to_be_bytes());
                        all.extend((body.len() as u64).to_be_bytes());
                        all.extend(body);
                    }
                }
                reply(200, all)
            }
            ("PUT", _) => {
                let mut fields = message.fields.iter();
                let fresh = fields.find(|(name, _)| *name == "sszip-fresh").unwrap();
                let until = now + fresh.1.parse::<u64>().unwrap();
                entries.insert(key, (until, now, body));
                reply(201, Vec::new())
            }
            ("DELETE", _) => reply(204, Vec::new()),
            ("POST", "/v1/purges") => {
                entries.clear();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let namespace = body["wrong-chain"].as_str().unwrap().to_owned();
                self.wrong.lock().unwrap().push(namespace);
                reply(200, Vec::new())
            }
            other => panic!("{other:?}"),
        }
    }
}

impl TestHost for CalloutHost {
    fn request(&self, request: HostRequest) -> Result<ClientResponse, String> {
        let mut task = RequestTask::new(request)?;
        let waiter = self.event_loop.waiter_of_request(CLIENT);
        let mut next = task.look_up(Some(waiter))?;
        let answer = loop {
            next = match next {
                NextAction::Wait => {
                    self.execute_callouts(task.now());
                    let woken = self.woken.next_woken_id().ok_or("nobody wakes it")?;
                    assert_eq!(woken, CLIENT);
                    task.look_up(Some(waiter))?
                }
                NextAction::Run(mut job) => {
                    job.run_job();
                    task.done(job)?
                }
                NextAction::FetchFromNode(body) => {
                    let node = task.at_node()(&body).ok_or("the node is asked")?;
                    let (answer, job) = task.answered(body, &node)?;
                    if let Some(mut job) = job {
                        job.run_job();
                        job.store_built_entry(task.now());
                    }
                    break answer;
                }
                NextAction::Respond(answer) => break answer,
            };
        };
        let now = task.now();
        drop(task);
        self.execute_callouts(now);
        match self.process.shared.flights.flight_count() {
            0 => Ok(answer),
            count => Err(format!("{count} flights never end")),
        }
    }
}
