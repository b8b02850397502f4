//! Frames of the owner protocol: streams of any bytes in any pieces, and messages of any heads and
//! bodies. A message that is decoded is encoded to bytes that decode to the same message.
//!
//! The first byte of an input is the length of the pieces of a stream, or at least 128 for one frame
//! of messages: kind, id, length of the head, length of the body (a byte each), head and body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_core::cache::owner_protocol::frame::{
    split_first_frame, FrameDecoder, FrameMessages, RawMessage, MAX_CONNECTION_FRAME_BYTES, PREFACE,
};
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::OwnerMessage;
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        None => {}
        Some((length @ 0..128, bytes)) => decode_stream(bytes.chunks(usize::from(*length).max(1))),
        Some((_, bytes)) => decode_frame(&frame_of_messages(bytes)),
    }
});

fn decode_stream<'a>(pieces: impl Iterator<Item = &'a [u8]>) {
    let mut decoder = FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES);
    decoder.receive_bytes(&PREFACE).expect("four bytes");
    for piece in pieces {
        decoder.receive_bytes(piece).expect("a few bytes");
        loop {
            match decoder.next_frame() {
                Ok(Some(messages)) => check_messages(messages),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn decode_frame(frame: &[u8]) {
    if let Ok(Some((messages, rest))) = split_first_frame(frame, MAX_CONNECTION_FRAME_BYTES) {
        assert!(rest.is_empty());
        check_messages(messages);
    }
}

fn check_messages(messages: FrameMessages) {
    for message in messages {
        let Ok(message) = message else { return };
        check_process_message(&message);
        check_owner_message(&message);
    }
}

fn check_process_message(raw: &RawMessage) {
    let Ok(Some(message)) = ProcessMessage::decode_message(raw) else {
        return;
    };
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).expect("a few bytes");
    message.append_to_frame(&mut frame).expect("within limits");
    let bytes = frame.try_join_pieces().expect("a few bytes");
    let again = ProcessMessage::decode_message(&only_message(&bytes));
    assert_eq!(again, Ok(Some(message)));
}

fn check_owner_message(raw: &RawMessage) {
    let Ok(Some(message)) = OwnerMessage::decode_message(raw) else {
        return;
    };
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).expect("a few bytes");
    message.append_to_frame(&mut frame).expect("within limits");
    let bytes = frame.try_join_pieces().expect("a few bytes");
    let again = OwnerMessage::decode_message(&only_message(&bytes));
    assert_eq!(again, Ok(Some(message)));
}

/// Returns the message of a frame that has one.
fn only_message(frame: &[u8]) -> RawMessage<'_> {
    let split = split_first_frame(frame, MAX_CONNECTION_FRAME_BYTES);
    let (mut messages, rest) = split.expect("a frame").expect("a whole frame");
    let message = messages.next().expect("a message").expect("a valid one");
    assert!(rest.is_empty() && messages.next().is_none());
    message
}

/// Returns a frame with the messages that the input describes, as far as it reaches.
fn frame_of_messages(input: &[u8]) -> Vec<u8> {
    let mut messages = Vec::new();
    let mut count = 0_u16;
    let mut rest = input;
    while let Some(([kind, id, head, body], after)) = rest.split_first_chunk::<4>() {
        let Some((content, after)) =
            after.split_at_checked(usize::from(*head) + usize::from(*body))
        else {
            break;
        };
        messages.extend_from_slice(&[*kind, *head, 0, 0, *id, 0, 0, 0, *body, 0, 0, 0]);
        messages.extend_from_slice(content);
        count += 1;
        rest = after;
    }
    let length = messages.len() as u32 + 4;
    let header = [&length.to_le_bytes()[..], &count.to_le_bytes(), &[0, 0]];
    [&header.concat()[..], &messages].concat()
}
