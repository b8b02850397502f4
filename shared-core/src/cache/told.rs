//! What the owner of a store tells processes: values, and the events of a stream
//! (`text/event-stream`, WHATWG HTML, 9.2) that they are written as.

use serde_json::Value;

use super::chain::State;
use super::{Key, Namespace};

/// The version of the protocol that `hello` says.
const VERSION: u32 = 1;

/// What a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first event of a stream.
    Hello {
        /// How many purges there were.
        generation: u64,
        /// Until when it may use its memory, monotonic milliseconds.
        until: u64,
    },
    /// It may go on using its memory.
    Lease {
        /// As above.
        generation: u64,
        /// As above.
        until: u64,
    },
    /// The key is there.
    Filled(Key),
    /// The key isn't there, and nobody fetches it any more.
    GivenUp(Key),
    /// What is known of a chain now.
    Chain {
        /// Behind which namespace.
        namespace: Namespace,
        /// All of it.
        state: Box<State>,
    },
    /// Entries were removed, and must not be sent any more.
    Purge {
        /// The purge's.
        generation: u64,
        /// If it was about this one only.
        key: Option<Key>,
    },
}

/// It can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnEvent;

impl Event {
    /// Adds it to a stream.
    pub fn write(&self, to: &mut String) {
        let (name, data) = match self {
            Self::Hello { generation, until } => {
                let data =
                    format!(r#"{{"version":{VERSION},"generation":{generation},"until":{until}}}"#);
                ("hello", data)
            }
            Self::Lease { generation, until } => (
                "lease",
                format!(r#"{{"generation":{generation},"until":{until}}}"#),
            ),
            Self::Filled(key) => ("filled", const_hex::encode(key)),
            Self::GivenUp(key) => ("given-up", const_hex::encode(key)),
            Self::Chain { namespace, state } => ("chain", chain(namespace, state)),
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

    /// The event of that name; `None`: it is of a later version, and changes
    /// nothing here.
    ///
    /// # Errors
    /// [`NotAnEvent`].
    pub fn read(name: &[u8], data: &[u8]) -> Result<Option<Self>, NotAnEvent> {
        let said = || serde_json::from_slice::<Value>(data).map_err(|_| NotAnEvent);
        let number = |said: &Value, name| said[name].as_u64().ok_or(NotAnEvent);
        let text = |said: &Value, name| said[name].as_str().map(Vec::from);
        Ok(Some(match name {
            b"hello" | b"lease" => {
                let said = said()?;
                let (generation, until) = (number(&said, "generation")?, number(&said, "until")?);
                match name {
                    b"lease" => Self::Lease { generation, until },
                    _ if said["version"] == VERSION => Self::Hello { generation, until },
                    _ => return Err(NotAnEvent),
                }
            }
            b"filled" => Self::Filled(digits(data)?),
            b"given-up" => Self::GivenUp(digits(data)?),
            b"purge" => {
                let said = said()?;
                let key = text(&said, "key").map(|key| digits(&key));
                Self::Purge {
                    generation: number(&said, "generation")?,
                    key: key.transpose()?,
                }
            }
            b"chain" => {
                let said = said()?;
                Self::Chain {
                    namespace: digits(&text(&said, "namespace").ok_or(NotAnEvent)?)?,
                    state: serde_json::from_value(said).map_err(|_| NotAnEvent)?,
                }
            }
            _ => return Ok(None),
        }))
    }
}

/// The data of the event that tells of a chain: one line, of less than 2 KiB.
pub fn chain(namespace: &Namespace, state: &State) -> String {
    // numbers and words always can be
    let state = serde_json::to_string(state).unwrap_or_default();
    let members = state.trim_start_matches('{');
    let namespace = const_hex::encode(namespace);
    format!(r#"{{"namespace":"{namespace}",{members}"#)
}

fn digits<const N: usize>(text: &[u8]) -> Result<[u8; N], NotAnEvent> {
    let mut bytes = [0; N];
    match text.len() == 2 * N && const_hex::decode_to_slice(text, &mut bytes).is_ok() {
        true => Ok(bytes),
        false => Err(NotAnEvent),
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, NotAnEvent};

    #[test]
    fn what_is_read_is_written_as_the_protocol_says() {
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
            let event = Event::read(name.as_bytes(), data.as_bytes());
            let mut text = String::new();
            event.unwrap().unwrap().write(&mut text);
            assert_eq!(text, format!("event: {name}\ndata: {data}\n\n"));
        }
    }

    #[test]
    fn what_is_no_event_is_refused_and_a_later_one_is_none() {
        for (name, data) in [
            ("hello", "{\"version\":2,\"generation\":4,\"until\":9}"),
            ("hello", "4"),
            ("purge", "{}"),
            ("lease", "{\"generation\":4}"),
            ("filled", "12"),
            ("purge", "{\"generation\":5,\"key\":\"x\"}"),
            ("chain", "{\"namespace\":\"12\"}"),
        ] {
            let read = Event::read(name.as_bytes(), data.as_bytes());
            assert_eq!(read, Err(NotAnEvent), "{name} {data}");
        }
        assert_eq!(Event::read(b"weather", b"fine"), Ok(None));
        let more = b"{\"until\":2,\"generation\":1,\"weather\":[]}";
        assert!(matches!(Event::read(b"lease", more), Ok(Some(_))));
    }
}
