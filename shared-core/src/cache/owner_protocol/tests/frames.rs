//! Frames: preface, lengths, numbers of messages, unknown kinds.

use super::super::frame::{
    check_preface, split_first_frame, FrameDecoder, MAX_BODY_BYTES, MAX_CALLOUT_FRAME_BYTES,
    MAX_CONNECTION_FRAME_BYTES, MAX_FRAME_MESSAGES, SOFT_FRAME_BYTES,
};
use super::super::message_body::MessageBody;
use super::super::outgoing_frame::{FrameAppendError, OutgoingFrame};
use super::super::process_message::ProcessMessage;
use super::super::protocol_error::ProtocolError;
use super::{decode_pieces, encode_frame, stream_of_frames, AnyMessage};
use crate::bytes::SharedBytes;

fn status(id: u32) -> AnyMessage {
    AnyMessage::FromProcess(ProcessMessage::Status { id })
}

fn chunk(bytes: MessageBody) -> ProcessMessage {
    ProcessMessage::Chunk { id: 1, bytes }
}

/// Returns a frame with one message of that kind, head and body.
fn raw_frame(kind: u8, head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend_from_slice(&[1, 0, 0, 0, kind]);
    frame.extend_from_slice(&(head.len() as u32).to_le_bytes()[..3]);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(head);
    frame.extend_from_slice(body);
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

fn decode_stream(frames: &[Vec<u8>]) -> (Vec<AnyMessage>, Result<(), ProtocolError>) {
    decode_pieces([&stream_of_frames(frames)[..]])
}

#[test]
fn frame_has_the_bytes_that_the_specification_lists() {
    let lookup = AnyMessage::FromProcess(ProcessMessage::Lookup {
        id: 0x0102,
        key: [0xab; 32],
        lease: Some(60_000),
        fleet_wait: 300,
        call_kind: 128,
    });
    let frame = encode_frame(&[lookup]);
    // the head: a key, whether a lease is requested, and three numbers of seven bits a byte
    let head = [&[0xab_u8; 32][..], &[1, 0xe0, 0xd4, 3, 0xac, 2, 0x80, 1]].concat();
    let expected = [
        &[
            56_u8, 0, 0, 0, 1, 0, 0, 0, 2, 40, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0,
        ][..],
        &head,
    ];
    assert_eq!(frame, expected.concat());
}

#[test]
fn preface_of_another_protocol_is_rejected_at_its_first_byte() {
    for (bytes, expected) in [
        (&b""[..], Ok(false)),
        (b"SZ", Ok(false)),
        (b"SZL", Ok(false)),
        (b"SZL\x05", Ok(true)),
        (b"SZL\x05GET", Ok(true)),
        (b"SZL\x04", Err(ProtocolError::OtherVersion(4))),
        (b"SZL\x06", Err(ProtocolError::OtherVersion(6))),
        (b"G", Err(ProtocolError::UnknownPreface)),
        (b"SZE\x07", Err(ProtocolError::UnknownPreface)),
    ] {
        assert_eq!(check_preface(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn stream_without_a_preface_is_rejected() {
    let frame = encode_frame(&[status(1)]);
    let (decoded, error) = decode_pieces([&frame[..]]);
    assert_eq!(
        (decoded, error),
        (vec![], Err(ProtocolError::UnknownPreface))
    );
}

#[test]
fn frames_with_invalid_headers_are_rejected() {
    let valid = encode_frame(&[status(1)]);
    let with_bytes = |at: usize, bytes: &[u8]| {
        let mut frame = valid.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let too_long = (MAX_CONNECTION_FRAME_BYTES + 1) as u32;
    for (frame, expected) in [
        (with_bytes(0, &[3, 0, 0, 0]), ProtocolError::FrameLength(3)),
        (
            with_bytes(0, &too_long.to_le_bytes()),
            ProtocolError::FrameLength(too_long),
        ),
        (with_bytes(4, &[0]), ProtocolError::MessageCount(0)),
        (with_bytes(4, &[1, 2]), ProtocolError::MessageCount(513)),
        (with_bytes(6, &[1]), ProtocolError::FrameFlags(1)),
        (with_bytes(9, &[1]), ProtocolError::FrameContents),
        (with_bytes(9, &[1, 0x10]), ProtocolError::MessageLength(9)),
        (with_bytes(16, &[1]), ProtocolError::FrameContents),
        (with_bytes(19, &[1]), ProtocolError::MessageLength(9)),
    ] {
        assert_eq!(decode_stream(&[frame]), (vec![], Err(expected)));
    }
}

#[test]
fn message_before_an_error_of_its_frame_is_decoded() {
    let mut longer = encode_frame(&[status(1)]);
    longer.push(0);
    longer[0] += 1;
    // a second message is missing
    let mut shorter = encode_frame(&[status(1)]);
    shorter[4] = 2;
    for frame in [longer, shorter] {
        let expected = Err(ProtocolError::FrameContents);
        assert_eq!(decode_stream(&[frame]), (vec![status(1)], expected));
    }
}

#[test]
fn unknown_kind_is_skipped_only_if_it_is_optional() {
    let (first, last) = (encode_frame(&[status(1)]), encode_frame(&[status(2)]));
    let optional = raw_frame(0x8b, b"head", b"body");
    let decoded = decode_stream(&[first.clone(), optional, last.clone()]);
    assert_eq!(decoded, (vec![status(1), status(2)], Ok(())));
    let required = raw_frame(0x7f, b"", b"");
    let expected = Err(ProtocolError::UnknownKind(0x7f));
    assert_eq!(
        decode_stream(&[first, required, last]),
        (vec![status(1)], expected)
    );
}

#[test]
fn messages_with_invalid_heads_or_bodies_are_rejected() {
    let head = |kind| Err(ProtocolError::InvalidHead(kind));
    let body = |kind| Err(ProtocolError::InvalidBody(kind));
    for (kind, head_bytes, body_bytes, expected) in [
        // a name with a space, and without a letter
        (0x01, &b"\x03a b\0\0\0"[..], &b""[..], head(0x01)),
        (0x01, b"\0\0\0\0", b"", head(0x01)),
        // a key that is too short, and a byte after the head
        (0x05, &[7; 31], b"", head(0x05)),
        (0x05, &[7; 33], b"", head(0x05)),
        (0x05, &[7; 32], b"x", body(0x05)),
        // no keys, and a part of a key
        (0x03, b"\0\0\0", b"", body(0x03)),
        (0x03, b"\0\0\0", &[7; 33], body(0x03)),
        // a key without the kind of its call, and a body that is shorter than the kinds
        (0x03, b"\0\x01\0", &[7; 32], body(0x03)),
        (0x03, b"\0\x01\0", &[7; 3], body(0x03)),
        // no wait, a byte after the head, and more shareable keys than there are
        (0x03, b"", &[7; 32], head(0x03)),
        (0x03, b"\0\0\0x", &[7; 32], head(0x03)),
        (0x03, b"\x05\x02\0", &[7; 40], head(0x03)),
        // a wait with a body
        (0x4f, b"", b"x", body(0x4f)),
        // a lookup without a wait
        (0x02, &[0; 33], b"", head(0x02)),
        // chunks without bytes
        (0x0a, b"", b"", body(0x0a)),
        (0x4d, b"", b"", body(0x4d)),
        // reasons and leases that are not defined
        (0x42, b"\x04", b"", head(0x42)),
        (0x49, b"\0\x04", b"", head(0x49)),
        // a body that is longer than its total
        (0x4c, b"\xc8\x01\x01", b"{}", body(0x4c)),
        // a chain state that is no JSON
        (0x46, &[0; 17], b"{", body(0x46)),
    ] {
        let (decoded, error) = decode_stream(&[raw_frame(kind, head_bytes, body_bytes)]);
        assert_eq!((decoded, error), (vec![], expected), "{kind:#x}");
    }
}

#[test]
fn batch_lookup_has_a_maximum_number_of_keys() {
    let keys = |count: usize| raw_frame(0x03, b"\0\0\0", &vec![7_u8; 32 * count]);
    assert_eq!(decode_stream(&[keys(1_000)]).1, Ok(()));
    let expected = Err(ProtocolError::InvalidBody(0x03));
    assert_eq!(decode_stream(&[keys(1_001)]).1, expected);
}

#[test]
fn full_frame_rejects_messages_and_stays_valid() {
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
    let status = ProcessMessage::Status { id: 1 };
    for _ in 0..MAX_FRAME_MESSAGES {
        status.append_to_frame(&mut frame).unwrap();
    }
    let appended = status.append_to_frame(&mut frame);
    assert_eq!(appended, Err(FrameAppendError::Full));
    let (decoded, error) = decode_stream(&[frame.try_join_pieces().unwrap()]);
    assert_eq!(decoded.len(), usize::from(MAX_FRAME_MESSAGES));
    assert_eq!(error, Ok(()));
}

#[test]
fn frame_gets_no_message_beyond_its_soft_limit() {
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
    let long = chunk(vec![7_u8; SOFT_FRAME_BYTES].into());
    long.append_to_frame(&mut frame).unwrap();
    let short = ProcessMessage::Goodbye.append_to_frame(&mut frame);
    assert_eq!(short, Err(FrameAppendError::Full));
}

#[test]
fn message_beyond_the_limits_is_rejected_before_it_is_sent() {
    let mut frame = OutgoingFrame::new(MAX_CALLOUT_FRAME_BYTES).unwrap();
    let too_long = chunk(vec![7_u8; MAX_BODY_BYTES + 1].into());
    let appended = too_long.append_to_frame(&mut frame);
    assert_eq!(appended, Err(FrameAppendError::TooLong));
    assert_eq!(frame.message_count(), 0);
    let mut short_frame = OutgoingFrame::new(20).unwrap();
    let appended = chunk(vec![7_u8; 20].into()).append_to_frame(&mut short_frame);
    assert_eq!(appended, Err(FrameAppendError::TooLong));
    let longest = chunk(vec![7_u8; MAX_BODY_BYTES].into());
    longest.append_to_frame(&mut frame).unwrap();
    assert!(frame.byte_length() < MAX_CONNECTION_FRAME_BYTES);
}

#[test]
fn long_payload_is_sent_from_where_the_entry_has_it() {
    let payload = SharedBytes::from(vec![7_u8; 10_000]);
    let body = MessageBody::from_parts(b"head".to_vec(), payload.clone());
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
    chunk(body.clone()).append_to_frame(&mut frame).unwrap();
    ProcessMessage::Goodbye.append_to_frame(&mut frame).unwrap();
    let pieces: Vec<&[u8]> = frame.pieces().collect();
    assert_eq!(pieces.len(), 3);
    assert!(std::ptr::eq(pieces[1], &payload[..]));
    let lengths: usize = pieces.iter().map(|piece| piece.len()).sum();
    assert_eq!(lengths, frame.byte_length());
    let sent = [chunk(body), ProcessMessage::Goodbye].map(AnyMessage::FromProcess);
    let (decoded, error) = decode_stream(&[frame.try_join_pieces().unwrap()]);
    assert_eq!((decoded, error), (sent.to_vec(), Ok(())));
}

#[test]
fn decoder_reports_whether_a_frame_is_incomplete() {
    let mut decoder = FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES);
    let long = AnyMessage::FromProcess(chunk(vec![7_u8; MAX_BODY_BYTES].into()));
    let stream = stream_of_frames(&[encode_frame(&[long])]);
    assert!(!decoder.is_at_frame_end());
    decoder.receive_bytes(&stream).unwrap();
    assert_eq!(decoder.next_frame().unwrap().unwrap().count(), 1);
    assert!(decoder.is_at_frame_end());
    assert!(decoder.next_frame().unwrap().is_none());
    decoder.receive_bytes(&[1, 0]).unwrap();
    assert!(decoder.next_frame().unwrap().is_none());
    assert!(!decoder.is_at_frame_end());
}

#[test]
fn frame_of_a_callout_is_split_off_its_body() {
    let frame = encode_frame(&[status(1)]);
    let body = [&frame[..], b"rest"].concat();
    let (messages, rest) = split_first_frame(&body, MAX_CALLOUT_FRAME_BYTES)
        .unwrap()
        .unwrap();
    assert_eq!((messages.count(), rest), (1, &b"rest"[..]));
    let part = &frame[..frame.len() - 1];
    let split = split_first_frame(part, MAX_CALLOUT_FRAME_BYTES).unwrap();
    assert!(split.is_none());
}
