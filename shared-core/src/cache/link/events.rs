//! The owner's event stream (`text/event-stream`, WHATWG HTML, 9.2).

use serde::Deserialize;

use crate::cache::chain::State;
use crate::cache::{Key, Namespace};

/// A longer event is not the owner's. Bytes.
const MAX_EVENT: usize = 4 << 10;

/// What the owner says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It begins; purges up to `generation` have been.
    Hello { generation: u64, until: u64 },
    /// Memory may be used until then.
    Lease { until: u64 },
    /// It can be looked up.
    Filled(Key),
    /// Nobody fetches it any more.
    GivenUp(Key),
    /// `key`, or more than that, must not be sent any more.
    Purge { generation: u64, key: Option<Key> },
    /// What is known of a chain now.
    Chain { namespace: Namespace, state: State },
    /// Of another time: it changes nothing.
    Unknown,
}

/// It can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAnEvent;

#[derive(Deserialize)]
struct Data<'a> {
    version: Option<u32>,
    generation: Option<u64>,
    until: Option<u64>,
    #[serde(borrow)]
    key: Option<&'a str>,
}

#[derive(Deserialize)]
struct Chain<'a> {
    #[serde(borrow)]
    namespace: &'a str,
    #[serde(flatten)]
    state: State,
}

/// The bytes of so many hex digits.
fn hex_to(text: &str, bytes: &mut [u8]) -> Option<()> {
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |n: usize| char::from(pair[n]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(())
}

/// Puts events together.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// More of the stream.
    ///
    /// # Errors
    /// [`NotAnEvent`]: the rest is not to be trusted either.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(Event),
    ) -> Result<(), NotAnEvent> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(line);
            if self.line.len() + self.data.len() > MAX_EVENT {
                return Err(NotAnEvent);
            }
            if line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if let Some(whole) = self.read_line(line.trim_ascii_end())? {
                    event(whole);
                }
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) -> Result<Option<Event>, NotAnEvent> {
        if line.is_empty() {
            let (name, data) = (
                std::mem::take(&mut self.name),
                std::mem::take(&mut self.data),
            );
            return match name.is_empty() {
                true => Ok(None),
                false => event(&name, &data).map(Some),
            };
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (field, value) = (parts.next(), parts.next().unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            Some(b"event") => self.name = value.to_vec(),
            Some(b"data") => self.data.extend_from_slice(value),
            // a comment, or what later versions may add
            _ => {}
        }
        Ok(None)
    }
}

fn event(name: &[u8], data: &[u8]) -> Result<Event, NotAnEvent> {
    let data = std::str::from_utf8(data).map_err(|_| NotAnEvent)?;
    let object = || serde_json::from_str::<Data<'_>>(data).map_err(|_| NotAnEvent);
    let key = |text: &str| blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes());
    let named = || key(data).map_err(|_| NotAnEvent);
    Ok(match name {
        b"hello" => {
            let said = object()?;
            if said.version != Some(1) {
                return Err(NotAnEvent);
            }
            Event::Hello {
                generation: said.generation.ok_or(NotAnEvent)?,
                until: said.until.ok_or(NotAnEvent)?,
            }
        }
        b"lease" => Event::Lease {
            until: object()?.until.ok_or(NotAnEvent)?,
        },
        b"filled" => Event::Filled(named()?),
        b"given-up" => Event::GivenUp(named()?),
        b"purge" => {
            let said = object()?;
            Event::Purge {
                generation: said.generation.ok_or(NotAnEvent)?,
                key: match said.key {
                    Some(text) => Some(key(text).map_err(|_| NotAnEvent)?),
                    None => None,
                },
            }
        }
        b"chain" => {
            let said: Chain<'_> = serde_json::from_str(data).map_err(|_| NotAnEvent)?;
            let mut namespace = Namespace::default();
            hex_to(said.namespace, &mut namespace).ok_or(NotAnEvent)?;
            Event::Chain {
                namespace,
                state: said.state,
            }
        }
        _ => Event::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, Events, NotAnEvent};

    fn all(text: &str, size: usize) -> Result<Vec<Event>, NotAnEvent> {
        let mut events = Events::default();
        let mut all = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            events.push(piece, |event| all.push(event))?;
        }
        Ok(all)
    }

    #[test]
    fn events_are_read_in_any_pieces() {
        let key = "0a".repeat(32);
        let text = format!(
            "event: hello\ndata: {{\"version\":1,\"generation\":4,\"until\":99}}\n\n\
             : nothing\n\n\
             event: lease\r\ndata: {{\"generation\":4,\"until\":100}}\r\n\r\n\
             event: filled\ndata: {key}\n\n\
             event: given-up\ndata:{key}\n\n\
             event: purge\ndata: {{\"generation\":5}}\n\n\
             event: purge\ndata: {{\"generation\":6,\"key\":\"{key}\"}}\n\n\
             event: weather\ndata: fine\n\n\
             event: lease\ndata: {{\"until\":1"
        );
        let key = [10; 32];
        let expected = [
            Event::Hello {
                generation: 4,
                until: 99,
            },
            Event::Lease { until: 100 },
            Event::Filled(key),
            Event::GivenUp(key),
            Event::Purge {
                generation: 5,
                key: None,
            },
            Event::Purge {
                generation: 6,
                key: Some(key),
            },
            Event::Unknown,
        ];
        for size in 1..text.len() {
            assert_eq!(all(&text, size).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn what_is_no_event_ends_the_stream() {
        for text in [
            "event: hello\ndata: {\"version\":2,\"generation\":4,\"until\":9}\n\n",
            "event: hello\ndata: 4\n\n",
            "event: purge\ndata: {}\n\n",
            "event: lease\ndata: {}\n\n",
            "event: filled\ndata: 12\n\n",
            "event: purge\ndata: {\"generation\":5,\"key\":\"x\"}\n\n",
        ] {
            assert_eq!(all(text, 7), Err(NotAnEvent), "{text}");
        }
        assert_eq!(all(&"x".repeat(5000), 100), Err(NotAnEvent));
    }
}
