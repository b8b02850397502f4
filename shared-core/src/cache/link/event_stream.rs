//! The owner's event stream (`text/event-stream`, WHATWG HTML, 9.2).

use crate::cache::owner_event::{InvalidOwnerEvent, OwnerEvent};

/// A longer event is not the owner's. Bytes.
const MAX_EVENT: usize = 4 << 10;

/// Puts events together.
#[derive(Debug, Default)]
pub(super) struct EventStreamParser {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
}

impl EventStreamParser {
    /// More of the stream.
    ///
    /// # Errors
    /// [`InvalidOwnerEvent`]: the rest is not to be trusted either.
    pub(super) fn parse_event_bytes(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(OwnerEvent),
    ) -> Result<(), InvalidOwnerEvent> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(line);
            if self.line.len() + self.data.len() > MAX_EVENT {
                return Err(InvalidOwnerEvent);
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

    fn read_line(&mut self, line: &[u8]) -> Result<Option<OwnerEvent>, InvalidOwnerEvent> {
        if line.is_empty() {
            let (name, data) = (
                std::mem::take(&mut self.name),
                std::mem::take(&mut self.data),
            );
            return match name.is_empty() {
                true => Ok(None),
                false => OwnerEvent::parse_owner_event(&name, &data),
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

#[cfg(test)]
mod tests {
    use super::{EventStreamParser, InvalidOwnerEvent, OwnerEvent};

    fn all(text: &str, size: usize) -> Result<Vec<OwnerEvent>, InvalidOwnerEvent> {
        let mut events = EventStreamParser::default();
        let mut all = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            events.parse_event_bytes(piece, |event| all.push(event))?;
        }
        Ok(all)
    }

    #[test]
    fn events_are_read_in_any_pieces() {
        let key = [10; 32];
        let (generation, until) = (4, 99);
        let purge = |key| OwnerEvent::Purge { generation, key };
        let expected = [
            OwnerEvent::Hello { generation, until },
            OwnerEvent::Lease { generation, until },
            OwnerEvent::Filled(key),
            OwnerEvent::LeaseReleased(key),
            purge(None),
            purge(Some(key)),
        ];
        let mut text = String::new();
        for event in &expected {
            event.append_event_text(&mut text);
        }
        // also in another notation
        let more = text.replace(": ", ":").replace('\n', "\r\n");
        let expected = [&expected[..], &expected[..]].concat();
        let text =
            text + ": nothing\n\nevent: weather\ndata: fine\n\n" + &more + "event: lease\nda";
        for size in 1..text.len() {
            assert_eq!(all(&text, size).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn invalid_events_end_the_stream() {
        assert_eq!(all("event: purge\ndata: {}\n\n", 7), Err(InvalidOwnerEvent));
        assert_eq!(all(&"x".repeat(5000), 100), Err(InvalidOwnerEvent));
    }
}
