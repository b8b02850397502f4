//! Events that the owner sends to processes, and their serialization on the event stream
//! (`text/event-stream`, WHATWG HTML, 9.2).

use serde_json::Value;

use super::chain::ChainState;
use super::{CacheKey, CacheNamespace};

/// Version of the protocol in the event `hello`.
const PROTOCOL_VERSION: u32 = 1;

/// A message that the owner sends to one process on its event stream, without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerEvent {
    /// The first event of a stream, with a lease of the process's memory.
    Hello {
        /// Purge generation.
        generation: u64,
        /// Time until which the process may send entries from its memory, in monotonic
        /// milliseconds.
        until: u64,
    },
    /// An extension of the lease of the process's memory.
    Lease {
        /// Purge generation.
        generation: u64,
        /// Time until which the process may send entries from its memory, in monotonic
        /// milliseconds.
        until: u64,
    },
    /// The key was stored.
    Filled(CacheKey),
    /// The key was not stored, and no process fetches it any more.
    LeaseReleased(CacheKey),
    /// The state of a chain has changed.
    Chain {
        /// Namespace of the chain.
        namespace: CacheNamespace,
        /// State of the chain.
        state: Box<ChainState>,
    },
    /// Entries were removed, and must not be sent any more.
    Purge {
        /// Generation of the purge.
        generation: u64,
        /// Key of a purge of one entry.
        key: Option<CacheKey>,
    },
}

/// The error of an event of this protocol version whose data can't be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOwnerEvent;

impl OwnerEvent {
    /// Appends the event to the text of an event stream, in the format of server-sent events.
    pub fn append_event_text(&self, to: &mut String) {
        let (name, data) = match self {
            Self::Hello { generation, until } => {
                let data = format!(
                    r#"{{"version":{PROTOCOL_VERSION},"generation":{generation},"until":{until}}}"#
                );
                ("hello", data)
            }
            Self::Lease { generation, until } => (
                "lease",
                format!(r#"{{"generation":{generation},"until":{until}}}"#),
            ),
            Self::Filled(key) => ("filled", const_hex::encode(key)),
            Self::LeaseReleased(key) => ("given-up", const_hex::encode(key)),
            Self::Chain { namespace, state } => ("chain", chain_event_data(namespace, state)),
            Self::Purge { generation, key } => {
                let key = key.map(|key| format!(r#","key":"{}""#, const_hex::encode(key)));
                let key = key.unwrap_or_default();
                ("purge", format!(r#"{{"generation":{generation}{key}}}"#))
            }
        };
        for part in ["event: ", name, "\ndata: ", &data, "\n\n"] {
            to.push_str(part);
        }
    }

    /// Parses the event of that name. Returns `None` if the name belongs to a later version of the
    /// protocol and has no effect here.
    ///
    /// # Errors
    /// Returns [`InvalidOwnerEvent`] if the data is invalid.
    pub fn parse_owner_event(name: &[u8], data: &[u8]) -> Result<Option<Self>, InvalidOwnerEvent> {
        let json = || serde_json::from_slice::<Value>(data).map_err(|_| InvalidOwnerEvent);
        let number = |json: &Value, name| json[name].as_u64().ok_or(InvalidOwnerEvent);
        let text = |json: &Value, name| json[name].as_str().map(Vec::from);
        Ok(Some(match name {
            b"hello" | b"lease" => {
                let json = json()?;
                let (generation, until) = (number(&json, "generation")?, number(&json, "until")?);
                match name {
                    b"lease" => Self::Lease { generation, until },
                    _ if json["version"] == PROTOCOL_VERSION => Self::Hello { generation, until },
                    _ => return Err(InvalidOwnerEvent),
                }
            }
            b"filled" => Self::Filled(decode_hex_array(data)?),
            b"given-up" => Self::LeaseReleased(decode_hex_array(data)?),
            b"purge" => {
                let json = json()?;
                let key = text(&json, "key").map(|key| decode_hex_array(&key));
                Self::Purge {
                    generation: number(&json, "generation")?,
                    key: key.transpose()?,
                }
            }
            b"chain" => {
                let json = json()?;
                Self::Chain {
                    namespace: decode_hex_array(
                        &text(&json, "namespace").ok_or(InvalidOwnerEvent)?,
                    )?,
                    state: serde_json::from_value(json).map_err(|_| InvalidOwnerEvent)?,
                }
            }
            _ => return Ok(None),
        }))
    }
}

/// Returns the data of the event `chain`: one line of less than 2 KiB.
pub fn chain_event_data(namespace: &CacheNamespace, state: &ChainState) -> String {
    // numbers and strings can always be serialized
    let state = serde_json::to_string(state).unwrap_or_default();
    let members = state.trim_start_matches('{');
    let namespace = const_hex::encode(namespace);
    format!(r#"{{"namespace":"{namespace}",{members}"#)
}

/// Decodes exactly `N` bytes of hex without a prefix.
fn decode_hex_array<const N: usize>(text: &[u8]) -> Result<[u8; N], InvalidOwnerEvent> {
    let mut bytes = [0; N];
    match text.len() == 2 * N && const_hex::decode_to_slice(text, &mut bytes).is_ok() {
        true => Ok(bytes),
        false => Err(InvalidOwnerEvent),
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidOwnerEvent, OwnerEvent};

    #[test]
    fn events_are_serialized_as_they_were_parsed() {
        let key = "ab".repeat(32);
        let (namespace, block) = ("0c".repeat(16), "11".repeat(32));
        for (name, data) in [
            ("hello", r#"{"version":1,"generation":1,"until":2}"#),
            ("lease", r#"{"generation":3,"until":4}"#),
            ("filled", &key),
            ("given-up", &key),
            ("purge", r#"{"generation":5}"#),
            ("purge", &format!(r#"{{"generation":6,"key":"{key}"}}"#)),
            (
                "chain",
                &format!(
                    r#"{{"namespace":"{namespace}","heights":"slots","epoch":9,"head":null,"seen":0,"final":5,"known":true,"wrong":false,"reorgs":[[8,3]],"since":7,"blocks":[[9,"{block}"]],"shown":[{{"height":12,"is_block":true}}]}}"#
                ),
            ),
            (
                "chain",
                &format!(
                    r#"{{"namespace":"{namespace}","heights":"blocks","epoch":9,"head":null,"seen":0,"final":5,"known":true,"wrong":false,"reorgs":[[8,3]],"since":7,"chain_id":137,"genesis":"{block}","blocks":[[9,"{block}"]],"shown":[{{"height":12,"is_block":true}}]}}"#
                ),
            ),
        ] {
            let event = OwnerEvent::parse_owner_event(name.as_bytes(), data.as_bytes());
            let mut text = String::new();
            event.unwrap().unwrap().append_event_text(&mut text);
            assert_eq!(text, format!("event: {name}\ndata: {data}\n\n"));
        }
    }

    #[test]
    fn invalid_events_are_rejected_and_unknown_ones_are_none() {
        for (name, data) in [
            ("hello", "{\"version\":2,\"generation\":4,\"until\":9}"),
            ("hello", "4"),
            ("purge", "{}"),
            ("lease", "{\"generation\":4}"),
            ("filled", "12"),
            ("purge", "{\"generation\":5,\"key\":\"x\"}"),
            ("chain", "{\"namespace\":\"12\"}"),
        ] {
            let read = OwnerEvent::parse_owner_event(name.as_bytes(), data.as_bytes());
            assert_eq!(read, Err(InvalidOwnerEvent), "{name} {data}");
        }
        assert_eq!(OwnerEvent::parse_owner_event(b"weather", b"fine"), Ok(None));
        let more = b"{\"until\":2,\"generation\":1,\"weather\":[]}";
        assert!(matches!(
            OwnerEvent::parse_owner_event(b"lease", more),
            Ok(Some(_))
        ));
    }
}
