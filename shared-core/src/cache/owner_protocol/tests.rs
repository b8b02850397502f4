//! Tests of frames and messages.

use super::client_name::OwnerClientName;
use super::frame::{FrameDecoder, FrameMessages, MAX_CONNECTION_FRAME_BYTES, PREFACE};
use super::outgoing_frame::OutgoingFrame;
use super::owner_message::OwnerMessage;
use super::process_message::ProcessMessage;
use super::protocol_error::ProtocolError;

mod bodies;
mod frames;
mod round_trips;

/// A message of either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AnyMessage {
    FromProcess(ProcessMessage),
    FromOwner(OwnerMessage),
}

/// Returns the bytes of a frame with these messages.
fn encode_frame(messages: &[AnyMessage]) -> Vec<u8> {
    let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
    for message in messages {
        match message {
            AnyMessage::FromProcess(message) => message.append_to_frame(&mut frame).unwrap(),
            AnyMessage::FromOwner(message) => message.append_to_frame(&mut frame).unwrap(),
        }
    }
    frame.try_join_pieces().unwrap()
}

/// Decodes the messages of a frame up to the first error; messages that are skipped are left out.
fn decode_frame(
    messages: FrameMessages<'_>,
    decoded: &mut Vec<AnyMessage>,
) -> Result<(), ProtocolError> {
    for raw in messages {
        let raw = raw?;
        // the kinds of the two directions differ
        let message = match ProcessMessage::decode_message(&raw) {
            Err(ProtocolError::UnknownKind(_)) => {
                OwnerMessage::decode_message(&raw)?.map(AnyMessage::FromOwner)
            }
            message => message?.map(AnyMessage::FromProcess),
        };
        decoded.extend(message);
    }
    Ok(())
}

/// Decodes a stream that arrives in these pieces, up to the first error.
fn decode_pieces<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<AnyMessage>, Result<(), ProtocolError>) {
    let mut decoder = FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES);
    let mut decoded = Vec::new();
    for piece in pieces {
        if let Err(error) = decode_piece(&mut decoder, piece, &mut decoded) {
            return (decoded, Err(error));
        }
    }
    (decoded, Ok(()))
}

fn decode_piece(
    decoder: &mut FrameDecoder,
    piece: &[u8],
    decoded: &mut Vec<AnyMessage>,
) -> Result<(), ProtocolError> {
    decoder.receive_bytes(piece)?;
    while let Some(messages) = decoder.next_frame()? {
        decode_frame(messages, decoded)?;
    }
    Ok(())
}

/// Returns the preface and these frames.
fn stream_of_frames(frames: &[Vec<u8>]) -> Vec<u8> {
    [&PREFACE[..], &frames.concat()].concat()
}

#[test]
fn process_names_are_validated() {
    for good in ["a", "nginx-1.worker_7", &"x".repeat(64)] {
        assert_eq!(OwnerClientName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", " ", "a b", "a/b", "é", "a\n", &"x".repeat(65)] {
        assert!(OwnerClientName::new(bad).is_none(), "{bad:?}");
    }
}
