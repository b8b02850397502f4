//! What a process asks its owner for, and how that is written.

use std::sync::Arc;

use super::channel::Outgoing;
use crate::bytes::Bytes;
use crate::cache::entry::Entry;
use crate::cache::flights::Token;
use crate::cache::freshness::IfFinal;
use crate::cache::wake::Waiter;
use crate::cache::wire::Encoded;
use crate::cache::Key;

pub use crate::cache::chain::Namespace;

/// For how long a lease is asked for, in milliseconds: some calls take a node
/// that long. It ends with the process.
const LEASE: u64 = 60_000;

/// What the owner has to know of an entry besides its bytes.
#[derive(Clone, Debug)]
pub struct About {
    /// The name of its class, in the protocol's words.
    pub class: &'static str,
    /// What it is purged with.
    pub namespace: Namespace,
    /// The JSON-RPC method, if it is an answer to a call.
    pub method: Option<Vec<u8>>,
    /// Purges up to this one were known when the node was asked.
    pub generation: u64,
    /// It may be kept for longer, as only the owner can tell.
    pub if_final: Option<IfFinal>,
}

/// One request to the owner.
#[derive(Debug)]
pub(super) enum Job {
    LookUp(LookUp),
    LookUps {
        keys: Vec<Key>,
        waiter: Waiter,
        due: u64,
        generation: u64,
    },
    Store {
        key: Key,
        entry: Arc<Entry>,
        about: Box<About>,
    },
    GiveBack(Key),
    Acknowledge(u64),
    /// What an operator wants to be purged.
    Purge {
        body: String,
        /// `None`: it has gone, and the purge is done all the same.
        waiter: Option<Waiter>,
        due: u64,
        /// How often it was sent.
        sent: u8,
    },
    /// The event stream.
    Listen,
    /// Whoever asked has gone on, perhaps for this key to the node.
    Late(Option<Key>),
}

#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) key: Key,
    pub(super) token: Token,
    /// Only one is to ask the node, so the owner is asked for its lease.
    pub(super) leases: bool,
    /// When its time is over, in milliseconds of the host's clock.
    pub(super) due: u64,
    /// The last purge that was known when it was sent.
    pub(super) generation: u64,
    /// What another process fetches is of no use here: its lease is not asked
    /// for.
    pub(super) waits_in_vain: bool,
    /// An event came before the answer that it belongs to.
    pub(super) missed_event: bool,
}

impl Job {
    /// The request; `None`: there is no way to send it, perhaps for want of
    /// memory. `now` is in
    /// milliseconds of the host's clock.
    pub(super) fn outgoing(&self, process: &str, now: u64) -> Option<Outgoing> {
        match self {
            Self::LookUp(look_up) => {
                let query = match look_up.leases && !look_up.waits_in_vain {
                    true => format!("?lease={process}&for={LEASE}"),
                    false => String::new(),
                };
                let path = format!("/v1/entries/{}{query}", hex(&look_up.key));
                request("GET", &path, "", &[], None)
            }
            Self::LookUps { keys, .. } => {
                let mut body = Vec::new();
                body.try_reserve_exact(keys.len() * (2 * size_of::<Key>() + 1))
                    .ok()?;
                for key in keys {
                    body.extend_from_slice(blake3::Hash::from_bytes(*key).to_hex().as_bytes());
                    body.push(b'\n');
                }
                request("POST", "/v1/lookups", "", &body, None)
            }
            Self::Store { key, entry, about } => {
                let fresh = entry.meta().expires_at.checked_sub(now)?;
                let mut fields = format!(
                    "sszip-generation: {}\r\nsszip-fresh: {fresh}\r\nsszip-class: {}\r\n\
                     sszip-namespace: {}\r\nsszip-process: {process}\r\n",
                    about.generation,
                    about.class,
                    hex_of(&about.namespace),
                );
                if let Some(method) = &about.method {
                    if !method.iter().all(u8::is_ascii_graphic) {
                        return None;
                    }
                    let method = std::str::from_utf8(method).ok()?;
                    fields.push_str(&format!("sszip-method: {method}\r\n"));
                }
                let meta = entry.meta();
                let epoch = meta.follows.map(|(_, epoch)| epoch);
                for (name, number) in [
                    ("block", meta.block_number),
                    ("epoch", epoch),
                    ("height", meta.height.filter(|_| epoch.is_some())),
                ] {
                    if let Some(number) = number {
                        fields.push_str(&format!("sszip-{name}: {number}\r\n"));
                    }
                }
                if let Some(IfFinal {
                    transaction,
                    last,
                    valid,
                }) = &about.if_final
                {
                    let hash = hex(transaction);
                    fields.push_str(&format!("sszip-if-final: {hash} {last} {valid}\r\n"));
                }
                let path = format!("/v1/entries/{}", hex(key));
                let encoded = Encoded::of(entry)?;
                request("PUT", &path, &fields, &encoded.head, Some(encoded.payload))
            }
            Self::GiveBack(key) => {
                let path = format!("/v1/leases/{}?process={process}", hex(key));
                request("DELETE", &path, "", &[], None)
            }
            Self::Acknowledge(generation) => {
                let path = format!("/v1/acknowledgements?process={process}");
                request("POST", &path, "", generation.to_string().as_bytes(), None)
            }
            Self::Purge { body, .. } => request("POST", "/v1/purges", "", body.as_bytes(), None),
            Self::Listen => {
                let path = format!("/v1/events?process={process}");
                request("GET", &path, "", &[], None)
            }
            Self::Late(_) => None,
        }
    }
}

fn request(
    method: &str,
    path: &str,
    fields: &str,
    body: &[u8],
    shared: Option<Bytes>,
) -> Option<Outgoing> {
    let length = body.len() + shared.as_ref().map_or(0, |shared| shared.len());
    let length = match method {
        "GET" | "DELETE" => String::new(),
        _ => format!("content-length: {length}\r\n"),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: sszip\r\n{length}{fields}\r\n");
    Outgoing::new(head.into(), body, shared)
}

fn hex(key: &Key) -> String {
    blake3::Hash::from_bytes(*key).to_hex().to_string()
}

pub(super) fn hex_of(namespace: &Namespace) -> String {
    let mut whole = [0; 32];
    whole[..16].copy_from_slice(namespace);
    let mut text = hex(&whole);
    text.truncate(32);
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{About, Job};
    use crate::cache::entry::{Entry, Envelope, Meta, Payload};

    /// Its bytes are not UTF-8: each stands for a character.
    fn text(job: &Job) -> String {
        let out = job.outgoing("w-1", 1000).unwrap();
        let bytes = out.pieces().flatten();
        bytes.map(|byte| char::from(*byte)).collect()
    }

    fn store(method: Option<&[u8]>, expires_at: u64) -> Job {
        let meta = Meta {
            status: 200,
            expires_at,
            block_number: Some(7),
            ..Meta::default()
        };
        let entry = Entry::new(
            Envelope::none(),
            Payload::Raw(b"true".to_vec().into()),
            meta,
        );
        Job::Store {
            key: [0xab; 32],
            entry: Arc::new(entry),
            about: Box::new(About {
                class: "immutable",
                namespace: [1; 16],
                method: method.map(<[u8]>::to_vec),
                generation: 3,
                if_final: None,
            }),
        }
    }

    #[test]
    fn an_entry_is_stored_with_all_that_the_owner_has_to_know() {
        let text = text(&store(Some(b"eth_chainId"), 5000));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let expected = format!(
            "PUT /v1/entries/{} HTTP/1.1\r\nhost: sszip\r\ncontent-length: {}\r\n\
             sszip-generation: 3\r\nsszip-fresh: 4000\r\nsszip-class: immutable\r\n\
             sszip-namespace: {}\r\nsszip-process: w-1\r\nsszip-method: eth_chainId\r\n\
             sszip-block: 7",
            "ab".repeat(32),
            body.chars().count(),
            "01".repeat(16),
        );
        assert_eq!(head, expected);
        assert!(body.starts_with("SZE") && body.ends_with("true"));
    }

    #[test]
    fn what_would_be_another_request_is_not_sent() {
        for method in [&b"a b"[..], b"a\r\nsszip-class: tip", b"\xff", b"a\0"] {
            assert!(store(Some(method), 5000).outgoing("w-1", 0).is_none());
        }
        // over before it is sent
        assert!(store(None, 999).outgoing("w-1", 1000).is_none());
    }

    #[test]
    fn requests_without_a_body_have_no_length() {
        let text = text(&Job::GiveBack([0; 32]));
        assert!(!text.contains("content-length"), "{text}");
        assert!(text.starts_with("DELETE /v1/leases/0000"), "{text}");
    }
}
