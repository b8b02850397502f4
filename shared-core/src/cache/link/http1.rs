//! Requests to the owner as HTTP/1.1 text, and the heads of its responses, for scripts that have
//! connections of their own.

use super::callout::message::{parse_decimal, OwnerProtocolError, OwnerReply, OwnerRequest};

/// Serializes a request as HTTP/1.1 text. Returns `None` if memory is refused.
pub fn serialize_owner_request(message: &OwnerRequest) -> Option<Vec<u8>> {
    let mut digits = itoa::Buffer::new();
    let mut texts = vec![message.method, " ", &message.target];
    texts.push(" HTTP/1.1\r\nhost: sszip\r\n");
    if message.has_body() {
        let length = digits.format(message.body_length());
        texts.extend(["content-length: ", length, "\r\n"]);
    }
    for (name, value) in &message.fields {
        texts.extend([name, ": ", value, "\r\n"]);
    }
    texts.push("\r\n");
    let rest = message.rest.as_deref().unwrap_or(&[]);
    let texts = texts.into_iter().map(str::as_bytes);
    let pieces = texts.chain([&message.body[..], rest]);
    let mut text = Vec::new();
    text.try_reserve_exact(pieces.clone().map(<[u8]>::len).sum())
        .ok()?;
    pieces.for_each(|piece| text.extend_from_slice(piece));
    Some(text)
}

/// The head of an owner's HTTP/1.1 response, parsed.
#[derive(Debug)]
pub struct OwnerReplyHead {
    /// Parsed response without its body.
    pub response: OwnerReply,
    /// Length of the body in bytes.
    pub length: usize,
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
        match head.parse(text) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(OwnerProtocolError),
        }
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
        let length = match response.status {
            204 => 0,
            _ => length.ok_or(OwnerProtocolError)?,
        };
        let length = usize::try_from(length).map_err(|_| OwnerProtocolError)?;
        Ok(Some(Self { response, length }))
    }
}

#[cfg(test)]
mod tests {
    use super::{serialize_owner_request, OwnerReply, OwnerReplyHead, OwnerRequest};

    #[test]
    fn request_is_written_with_its_headers_and_its_length() {
        let text = |message| String::from_utf8(serialize_owner_request(&message).unwrap()).unwrap();
        let message = || OwnerRequest {
            method: "PUT",
            target: "/here".into(),
            fields: vec![("one", "1".into()), ("two", "2".into())],
            body: b"SZE".to_vec(),
            rest: Some(b"true".to_vec().into()),
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
    }

    const FOUND: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nsszip-fresh: 700\r\n\
        Age: 3\r\n\r\nentry";

    #[test]
    fn head_is_parsed_when_it_is_complete() {
        let end = FOUND.len() - "entry".len();
        for at in 0..FOUND.len() {
            let head = OwnerReplyHead::parse(&FOUND[..at]).unwrap();
            assert_eq!(head.is_some(), at >= end, "{at}");
        }
        let head = OwnerReplyHead::parse(FOUND).unwrap().unwrap();
        let expected = OwnerReply {
            status: 200,
            fresh: 700,
            age: 3,
            ..OwnerReply::default()
        };
        assert_eq!((head.response, head.length), (expected, 5));
    }

    #[test]
    fn malformed_heads_are_rejected() {
        for bad in [
            &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nsszip-fresh: x\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        ] {
            assert!(OwnerReplyHead::parse(bad).is_err(), "{bad:?}");
        }
        let head = OwnerReplyHead::parse(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().length, 0);
    }
}
