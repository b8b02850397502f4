//! HTTP/1.1 over one connection to the owner, without the connection: requests that are sent
//! together (RFC 9112, 9.3.2), and their responses.

use super::message::{parse_decimal, OwnerProtocolError, OwnerReply, OwnerRequest};
use crate::bytes::{try_push, SharedBytes};

/// What is between a target and the fields. Who wants an answer without an end
/// gets it in no chunks by the older version (RFC 9112, 2.5 and 6.3).
const START: &str = " HTTP/1.1\r\nhost: sszip\r\n";
const START_ENDLESS: &str = " HTTP/1.0\r\nhost: sszip\r\n";

/// A longer head is not the owner's. Bytes.
const MAX_HEAD: usize = 8 << 10;

/// Bytes that are read at a time until the head is complete: usual entries come
/// with it, in one read.
const HEAD_ROOM: usize = 16 << 10;

/// Bytes of the event stream that are read at a time.
const EVENTS_ROOM: usize = 4 << 10;

/// What is shared and not longer is copied: that costs less than a piece of its
/// own. Bytes.
const LITTLE: usize = 2 << 10;

/// To requests that are as long another one is not added. Bytes.
const BURST: usize = 64 << 10;

/// Requests, as they go over the wire.
#[derive(Debug, Default)]
pub(super) struct RequestWriter {
    parts: Vec<OutgoingRequestPiece>,
    /// How many bytes of them are written, and how many there are.
    written: usize,
    length: usize,
}

/// Heads and what is copied, and then a piece that is not.
#[derive(Debug, Default)]
struct OutgoingRequestPiece {
    own: Vec<u8>,
    shared: Option<SharedBytes>,
}

impl RequestWriter {
    /// Adds a message as HTTP/1.1 text, before anything is written. `None` when
    /// memory is refused: nothing is added then.
    pub(super) fn add_message(&mut self, message: OwnerRequest) -> Option<()> {
        let mut length = itoa::Buffer::new();
        let length = message
            .has_body()
            .then(|| length.format(message.body_length()));
        let start = match message.is_endless {
            true => START_ENDLESS,
            false => START,
        };
        let mut texts = [message.method, " ", &message.target, start].to_vec();
        if let Some(length) = length {
            texts.extend(["content-length: ", length, "\r\n"]);
        }
        for (name, value) in &message.fields {
            texts.extend([name, ": ", value, "\r\n"]);
        }
        texts.push("\r\n");
        let (little, shared) = match &message.rest {
            Some(rest) if rest.len() <= LITTLE => (&rest[..], None),
            rest => (&[][..], rest.clone()),
        };
        let is_full = |last: &OutgoingRequestPiece| last.shared.is_some();
        if self.parts.last().is_none_or(is_full) {
            try_push(&mut self.parts, OutgoingRequestPiece::default())?;
        }
        let last = self.parts.last_mut()?;
        let texts = texts.into_iter().map(str::as_bytes);
        let pieces = || texts.clone().chain([&message.body[..], little]);
        last.own.try_reserve(pieces().map(<[u8]>::len).sum()).ok()?;
        for piece in pieces() {
            last.own.extend_from_slice(piece);
            self.length += piece.len();
        }
        self.length += shared.as_ref().map_or(0, |shared| shared.len());
        last.shared = shared;
        Some(())
    }

    /// Whether more may be [added](Self::add_message).
    pub(super) fn has_room(&self) -> bool {
        self.length < BURST
    }

    /// The pieces that are to be written next; none: all is.
    pub(super) fn unwritten_pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.written;
        let pieces = self
            .parts
            .iter()
            .flat_map(|part| [&part.own[..], part.shared.as_deref().unwrap_or(&[])]);
        pieces.filter_map(move |piece| {
            let (written, rest) = piece.split_at(skip.min(piece.len()));
            skip -= written.len();
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// So many bytes of it are written.
    pub(super) fn mark_bytes_written(&mut self, bytes: usize) {
        self.written += bytes;
    }
}

/// Reads responses.
#[derive(Debug)]
pub(super) struct OwnerResponseReader {
    buffer: Vec<u8>,
    state: ReaderState,
    /// Longer bodies are refused. Bytes.
    max_body: usize,
}

#[derive(Debug)]
enum ReaderState {
    Head,
    Body {
        response: OwnerReply,
        length: usize,
    },
    /// A stream without an end.
    Events,
}

/// What the bytes that came amount to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnerReadResult {
    /// More are needed.
    More,
    /// A response is complete.
    Response(OwnerReply),
    /// More of the event stream.
    Events(Vec<u8>),
}

impl OwnerResponseReader {
    pub(super) fn new(max_body: usize) -> Self {
        Self {
            buffer: Vec::new(),
            state: ReaderState::Head,
            max_body,
        }
    }

    /// Whether a response has begun, and its body is not complete.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.state, ReaderState::Body { .. })
    }

    /// Room for what comes next: the bytes of a body are read to where they
    /// stay. `None` when memory is refused.
    pub(super) fn reserve_read_buffer(&mut self) -> Option<&mut [std::mem::MaybeUninit<u8>]> {
        let (buffer, wanted, most) = match &mut self.state {
            ReaderState::Head => (&mut self.buffer, HEAD_ROOM, usize::MAX),
            ReaderState::Body { response, length } => {
                let left = *length - response.body.len();
                // not beyond it: the connection is read for one response
                (&mut response.body, left, left)
            }
            ReaderState::Events => (&mut self.buffer, EVENTS_ROOM, usize::MAX),
        };
        if buffer.len() == buffer.capacity() {
            buffer.try_reserve_exact(wanted).ok()?;
        }
        let room = buffer.spare_capacity_mut();
        let most = most.min(room.len());
        Some(&mut room[..most])
    }

    /// `bytes` came into [`reserve_read_buffer`](Self::reserve_read_buffer).
    ///
    /// # Errors
    /// [`OwnerProtocolError`].
    ///
    /// # Safety
    /// So many bytes of it are written.
    #[allow(unsafe_code)]
    pub(super) unsafe fn handle_read_bytes(
        &mut self,
        bytes: usize,
    ) -> Result<OwnerReadResult, OwnerProtocolError> {
        let buffer = match &mut self.state {
            ReaderState::Body { response, .. } => &mut response.body,
            _ => &mut self.buffer,
        };
        let length = buffer.len() + bytes.min(buffer.capacity() - buffer.len());
        // SAFETY: within the capacity, and written by the contract.
        unsafe { buffer.set_len(length) };
        self.next()
    }

    /// What else has come: to be asked until there is no more after something
    /// was complete.
    ///
    /// # Errors
    /// [`OwnerProtocolError`].
    pub(super) fn next(&mut self) -> Result<OwnerReadResult, OwnerProtocolError> {
        if matches!(self.state, ReaderState::Head) && !self.read_reply_head()? {
            return Ok(OwnerReadResult::More);
        }
        match &mut self.state {
            ReaderState::Head => Ok(OwnerReadResult::More),
            ReaderState::Body { response, length } if response.body.len() == *length => {
                let response = std::mem::take(response);
                self.state = ReaderState::Head;
                Ok(OwnerReadResult::Response(response))
            }
            ReaderState::Body { .. } => Ok(OwnerReadResult::More),
            ReaderState::Events if self.buffer.is_empty() => Ok(OwnerReadResult::More),
            ReaderState::Events => Ok(OwnerReadResult::Events(std::mem::take(&mut self.buffer))),
        }
    }

    /// Whether it is complete.
    fn read_reply_head(&mut self) -> Result<bool, OwnerProtocolError> {
        let Some(head) = OwnerReplyHead::parse(&self.buffer)? else {
            return match self.buffer.len() < MAX_HEAD {
                true => Ok(false),
                false => Err(OwnerProtocolError),
            };
        };
        let OwnerReplyHead {
            end,
            mut response,
            length,
        } = head;
        let Some(length) = length else {
            self.buffer.drain(..end);
            self.state = ReaderState::Events;
            return Ok(true);
        };
        if length > self.max_body {
            return Err(OwnerProtocolError);
        }
        // what follows is of the next one
        let begun = length.min(self.buffer.len() - end);
        let mut body = Vec::new();
        body.try_reserve_exact(length)
            .map_err(|_| OwnerProtocolError)?;
        body.extend_from_slice(&self.buffer[end..end + begun]);
        self.buffer.drain(..end + begun);
        response.body = body;
        self.state = ReaderState::Body { response, length };
        Ok(true)
    }
}

/// Serializes a request as HTTP/1.1 text, in one piece, for a host that sends it by itself. Returns
/// `None` if memory is refused.
pub fn serialize_owner_request(message: OwnerRequest) -> Option<Vec<u8>> {
    let mut out = RequestWriter::default();
    out.add_message(message)?;
    let mut text = Vec::new();
    text.try_reserve_exact(out.length).ok()?;
    out.unwritten_pieces()
        .for_each(|piece| text.extend_from_slice(piece));
    Some(text)
}

/// The head of an owner's HTTP/1.1 response, parsed.
#[derive(Debug)]
pub struct OwnerReplyHead {
    /// Where it ends.
    end: usize,
    /// Parsed response without its body.
    pub response: OwnerReply,
    /// Length of the body in bytes; `None`: a stream without an end.
    pub length: Option<usize>,
}

impl OwnerReplyHead {
    /// Parses the head of an owner's response at the start of `text`. Returns `None` if it is
    /// incomplete.
    ///
    /// # Errors
    /// Returns [`OwnerProtocolError`] if no owner sends such a head.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, OwnerProtocolError> {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let end = match head.parse(text) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(OwnerProtocolError),
        };
        let mut response = OwnerReply {
            status: head.code.ok_or(OwnerProtocolError)?,
            ..OwnerReply::default()
        };
        let mut length = None;
        for field in head.headers.iter() {
            match field.name.eq_ignore_ascii_case("content-length") {
                true => length = Some(parse_decimal(field.value)?),
                false => response.parse_reply_header(field.name, field.value)?,
            }
        }
        let length = match (response.status, length) {
            (204, _) => Some(0),
            (200, None) => None,
            (_, None) => return Err(OwnerProtocolError),
            (_, Some(length)) => Some(usize::try_from(length).map_err(|_| OwnerProtocolError)?),
        };
        Ok(Some(Self {
            end,
            response,
            length,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        OwnerProtocolError, OwnerReadResult, OwnerReply, OwnerRequest, OwnerResponseReader,
        RequestWriter, LITTLE,
    };

    #[allow(unsafe_code)]
    fn read(pieces: &[&[u8]]) -> Result<Vec<OwnerReadResult>, OwnerProtocolError> {
        let mut reader = OwnerResponseReader::new(1000);
        let mut all = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let room = reader.reserve_read_buffer().unwrap();
                let (now, later) = piece.split_at(room.len().min(piece.len()));
                for (to, from) in room.iter_mut().zip(now) {
                    to.write(*from);
                }
                // SAFETY: just written.
                let mut read = unsafe { reader.handle_read_bytes(now.len()) }?;
                while read != OwnerReadResult::More {
                    all.push(read);
                    read = reader.next()?;
                }
                piece = later;
            }
        }
        Ok(all)
    }

    #[test]
    fn request_is_written_with_its_headers_and_its_length() {
        let text = |message| {
            let mut out = RequestWriter::default();
            out.add_message(message).unwrap();
            let bytes: Vec<u8> = out.unwritten_pieces().flatten().copied().collect();
            String::from_utf8(bytes).unwrap()
        };
        let message = || OwnerRequest {
            method: "PUT",
            target: "/here".into(),
            fields: vec![("one", "1".into()), ("two", "2".into())],
            body: b"SZE".to_vec(),
            rest: Some(b"true".to_vec().into()),
            is_endless: false,
        };
        let expected = "PUT /here HTTP/1.1\r\nhost: sszip\r\ncontent-length: 7\r\n\
                        one: 1\r\ntwo: 2\r\n\r\nSZEtrue";
        assert_eq!(text(message()), expected);
        let without = OwnerRequest {
            method: "DELETE",
            fields: Vec::new(),
            body: Vec::new(),
            rest: None,
            ..message()
        };
        let expected = "DELETE /here HTTP/1.1\r\nhost: sszip\r\n\r\n";
        assert_eq!(text(without), expected);
        let expected = "GET /v1/events?process=a HTTP/1.0\r\nhost: sszip\r\n\r\n";
        assert_eq!(
            text(OwnerRequest::owner_event_stream_request("a")),
            expected
        );
    }

    const FOUND: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nsszip-fresh: 700\r\n\
        Age: 3\r\n\r\nentry";

    #[test]
    fn response_is_read_from_any_pieces() {
        let expected = || {
            Ok(vec![OwnerReadResult::Response(OwnerReply {
                status: 200,
                fresh: 700,
                age: 3,
                body: b"entry".to_vec(),
                ..OwnerReply::default()
            })])
        };
        for at in 1..FOUND.len() {
            let (first, second) = FOUND.split_at(at);
            assert_eq!(read(&[first, second]), expected(), "{at}");
        }
        let bytes: Vec<&[u8]> = FOUND.chunks(1).collect();
        assert_eq!(read(&bytes), expected());
    }

    #[test]
    fn consecutive_responses_are_read_separately() {
        let miss = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nsszip-lease: granted\r\n\r\n";
        let gone = b"HTTP/1.1 204 No Content\r\n\r\n";
        let all = read(&[miss, FOUND, gone]).unwrap();
        assert_eq!(all.len(), 3);
        assert!(matches!(&all[0], OwnerReadResult::Response(miss)
            if miss.granted == Some(true) && miss.status == 404));
        assert!(matches!(&all[2], OwnerReadResult::Response(gone) if gone.status == 204));
        // at any position of the cut
        let whole = [&miss[..], FOUND, gone, FOUND].concat();
        for at in 0..whole.len() {
            let (first, second) = whole.split_at(at);
            let read = read(&[first, second]).unwrap();
            assert_eq!((read.len(), &read[..3]), (4, &all[..]), "{at}");
        }
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            b"HTTP/1.1 201 Created\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nage: -1\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab\r\n",
        ] {
            assert_eq!(
                read(&[bytes]),
                Err(OwnerProtocolError),
                "{}",
                bytes.escape_ascii()
            );
        }
        let long = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 9000]].concat();
        assert_eq!(read(&[&long]), Err(OwnerProtocolError));
    }

    #[test]
    fn response_without_a_length_is_a_stream() {
        let stream = b"HTTP/1.0 200 OK\r\n\r\nevent: hello\n\n";
        for size in 1..stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            let data = read(&pieces).unwrap().into_iter().map(|read| match read {
                OwnerReadResult::Events(data) => data,
                other => panic!("{other:?}"),
            });
            assert_eq!(
                data.collect::<Vec<_>>().concat(),
                b"event: hello\n\n",
                "{size}"
            );
        }
    }

    fn put(body: &[u8], load: &[u8]) -> OwnerRequest {
        OwnerRequest {
            method: "PUT",
            target: "/".into(),
            fields: Vec::new(),
            body: body.to_vec(),
            rest: Some(load.to_vec().into()),
            is_endless: false,
        }
    }

    #[test]
    fn requests_sent_together_are_joined_into_few_pieces() {
        let (little, long) = (vec![b'l'; LITTLE], vec![b'x'; LITTLE + 1]);
        let mut out = RequestWriter::default();
        for load in [&little, &little, &long, &little, &long] {
            out.add_message(put(b"", load)).unwrap();
        }
        let pieces: Vec<&[u8]> = out.unwritten_pieces().collect();
        let heads = [pieces[0], pieces[2]]
            .map(|piece| piece.windows(5).filter(|part| part == b"PUT /").count());
        assert_eq!((heads, pieces.len()), ([3, 2], 4));
        assert!(pieces[1] == long && pieces[3] == long && out.has_room());
        out.add_message(put(b"", &vec![b'x'; super::BURST]))
            .unwrap();
        assert!(!out.has_room());
    }

    #[test]
    fn request_is_written_completely_in_any_pieces() {
        for (length, count) in [(4, 1), (LITTLE, 1), (LITTLE + 1, 2)] {
            let load = vec![b'x'; length];
            for step in [1, 3, 12, 70_000] {
                let mut out = RequestWriter::default();
                out.add_message(put(b"body", &load)).unwrap();
                assert_eq!(out.unwritten_pieces().count(), count);
                let whole = out.unwritten_pieces().collect::<Vec<_>>().concat();
                assert!(whole.ends_with(&[b"\r\n\r\nbody", &load[..]].concat()));
                let mut written = Vec::new();
                loop {
                    let next = out.unwritten_pieces().flatten().take(step).copied();
                    let next: Vec<u8> = next.collect();
                    if next.is_empty() {
                        break;
                    }
                    out.mark_bytes_written(next.len());
                    written.extend(next);
                }
                assert_eq!(written, whole, "{length}, {step}");
            }
        }
    }
}
