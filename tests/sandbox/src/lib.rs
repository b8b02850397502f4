//! The core in a WebAssembly host: without threads, clock, randomness or a C library, and
//! with no function of the host's.
//!
//! `scripts/check-wasm` builds this crate, checks that it imports nothing, and runs it.

use std::sync::Arc;

use sszip_core::cache::link::callouts::OwnerCallout;
use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::owner_protocol::callout_envelope::{encode_callout_answer, CalloutEnvelope};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::{LeaseReply, OwnerMessage};
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;
use sszip_core::cache::process::flights::{CoalescingRole, FlightFollowerWakeup, FlightOutcome};
use sszip_core::cache::process::owner_client::{OwnerClient, OwnerLookup, OwnerLookupOptions};
use sszip_core::cache::process::wake::WokenRequestQueue;
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::config::RouteConfigBlock;
use sszip_core::exchange::{
    BodyEndAction, BodyPieceAction, Exchange, RequestHead, ResponseHead, ResponseHeadAction,
};
use sszip_core::gzip::inflate::gunzip_reserved;
use sszip_core::gzip::stream::FlushMode;
use sszip_core::memory::MemoryBudget;
use sszip_core::ssz::{self, Fork, Preset, Schema};
use sszip_core::zstd::decompress_zstd;

/// Length of a body that other hosts compress off their event loop, which this host can't.
const LENGTH: usize = 300_000;

/// Runs all steps; returns 0, or the number of the first step that failed.
#[no_mangle]
#[allow(unsafe_code)] // an exported name
pub extern "C" fn sandbox() -> u32 {
    let steps: [fn() -> Option<bool>; 5] = [
        check_oneshot_compression,
        check_streaming_compression,
        check_ssz_conversion,
        check_request_decompression,
        check_owner_callouts,
    ];
    let failed = steps.iter().position(|step| step() != Some(true));
    failed.map_or(0, |step| step as u32 + 1)
}

fn sample_body() -> Vec<u8> {
    let mut body = b"[\"".to_vec();
    body.extend((0..LENGTH).map(|n| b"0123456789abcdef"[n / 7 % 16 * n % 16]));
    body.extend_from_slice(b"\"]");
    body
}

/// A decoder of bodies of at most this length.
type Decoder = fn(&[u8], usize) -> Option<Vec<u8>>;

fn decode_gzip(sent: &[u8], length: usize) -> Option<Vec<u8>> {
    gunzip_reserved(sent, length).ok()
}

fn decode_zstd(sent: &[u8], length: usize) -> Option<Vec<u8>> {
    decompress_zstd(sent, length, |_| true).ok()
}

/// An exchange of a client that accepts `coding`, up to the head of its response.
fn begin_exchange(
    coding: &[u8],
    content_length: Option<u64>,
) -> Option<(Exchange, ResponseHeadAction)> {
    let mut directives = RouteConfigBlock::default();
    directives.set_directive("enable", &[b"on"]).ok()?;
    directives.set_directive("zstd", &[b"on"]).ok()?;
    directives.set_directive("cache", &[b"on"]).ok()?;
    directives.set_directive("hold", &[b"0"]).ok()?;
    let mut exchange = Exchange::new(Arc::new(
        directives.resolve_route_config(MemoryBudget::new()),
    ));
    let request = RequestHead {
        method: b"GET",
        target: b"/",
        fields: [(&b"Accept-Encoding"[..], coding)].into_iter(),
    };
    exchange.read_request_head(request).ok()?;
    let response = ResponseHead {
        status: 200,
        content_length,
        fields: [(&b"Content-Type"[..], &b"application/json"[..])].into_iter(),
        delimited: true,
        now: 1_700_000_000,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    };
    let action = exchange.evaluate_response_head(response).ok()?;
    Some((exchange, action))
}

/// Compresses a body of known length in one shot, in each coding.
fn check_oneshot_compression() -> Option<bool> {
    Some(
        is_restored_from_one_shot(b"gzip", decode_gzip)?
            && is_restored_from_one_shot(b"zstd", decode_zstd)?,
    )
}

fn is_restored_from_one_shot(coding: &[u8], decode: Decoder) -> Option<bool> {
    let body = sample_body();
    let (mut exchange, action) = begin_exchange(coding, Some(body.len() as u64))?;
    for piece in body.chunks(10_000) {
        if exchange.buffer_body_piece(piece).ok()? != BodyPieceAction::Buffered {
            return None;
        }
    }
    if let BodyEndAction::Code { .. } = exchange.complete_buffered_body().ok()? {
        exchange.run_pending_stages().ok()?;
    }
    let sent: Vec<u8> = exchange.body_slices().flatten().copied().collect();
    let decoded = decode(&sent, body.len())?;
    Some(action == ResponseHeadAction::Buffer && sent.len() < body.len() && decoded == body)
}

/// Compresses a body of unknown length as a stream, in each coding.
fn check_streaming_compression() -> Option<bool> {
    Some(
        is_restored_from_stream(b"gzip", decode_gzip)?
            && is_restored_from_stream(b"zstd", decode_zstd)?,
    )
}

fn is_restored_from_stream(coding: &[u8], decode: Decoder) -> Option<bool> {
    let body = sample_body();
    let (mut exchange, action) = begin_exchange(coding, None)?;
    let mut sent = Vec::new();
    let mut room = vec![0; 1000];
    let pieces = body.chunks(10_000).map(|piece| (piece, FlushMode::Sync));
    for (mut piece, flush) in pieces.chain([(&b""[..], FlushMode::Finish)]) {
        loop {
            let step = exchange.encode_stream_piece(piece, flush, &mut room).ok()?;
            sent.extend_from_slice(room.get(..step.written)?);
            piece = piece.get(step.consumed..)?;
            if step.complete {
                break;
            }
        }
    }
    let decoded = decode(&sent, body.len())?;
    Some(action == ResponseHeadAction::Stream && decoded == body)
}

/// The numbers from 0 to 99, compressed by the C library at level 19.
const NUMBERS: &[u8] =
    b"\x28\xb5\x2f\xfd\x60\xf9\x05\x15\x05\x00\xc2\x8c\x20\x16\xa0\xa9\xc5\x78\x22\x6f\
    \xc6\x44\x12\xe1\xbf\x2a\xd0\x76\xf7\x4e\x29\x25\xb0\xfa\x5f\xad\x84\x05\xa0\x86\
    \x66\xa6\x98\xe4\xeb\xc8\x8f\xab\x1b\x4f\x47\x3f\x37\xff\xfd\x9e\xdf\xcb\x13\x2f\
    \x23\x3e\xac\x6c\x38\x19\xf9\xd8\xf8\xb6\x6b\x7a\x2e\x4e\xba\x8a\xf4\xa8\xaa\xd1\
    \x54\xd4\x53\xd3\xd7\x6d\xd9\xb5\x34\xe1\x22\xc2\x83\x8a\x06\x13\x11\x0f\x0d\x4f\
    \xb3\x24\xc7\xc2\x64\x6b\xc8\x8e\xa9\x19\x4b\x43\x3b\x33\xfb\xbc\x8e\xdb\xca\x92\
    \x85\x1c\xca\x48\xe8\x98\xbb\x5c\x60\x01\x28\x89\x02\x10\x00\x0e\x4b\x15\x10\x06\
    \x80\x62\x10\x63\xa8\x11\xa0\xf8\xfd\x37\xe0\xe7\x10\x7e\x44\xe8\x07\x93\x9d\x9b\
    \xeb\x50\x91\x8f\x8f\x2f\x3f\x8e\x71\x21\x90\xaa";

/// Decodes a body that a client has compressed, and rejects a damaged one.
fn check_request_decompression() -> Option<bool> {
    let numbers: Vec<String> = (0..100)
        .map(|n| format!("{{\"number\":\"0x{n:x}\"}}"))
        .collect();
    let body = format!("[{}]", numbers.join(","));
    let decoded = decompress_zstd(NUMBERS, body.len(), |_| true).ok()?;
    let cut = decompress_zstd(NUMBERS.get(1..)?, body.len(), |_| true);
    Some(decoded == body.as_bytes() && cut.is_err())
}

/// Converts JSON to SSZ, checks it, computes its root, and converts it back.
fn check_ssz_conversion() -> Option<bool> {
    let json = br#"{"epoch":"7","root":"0x0101010101010101010101010101010101010101010101010101010101010101"}"#;
    let schema = Schema::for_fork(Fork::Electra, Preset::Mainnet);
    let checkpoint = schema.find_type("Checkpoint")?;
    let bytes = ssz::json_to_ssz(schema, checkpoint, json).ok()?;
    ssz::check_ssz(schema, checkpoint, &bytes).ok()?;
    let root = ssz::hash_tree_root(schema, checkpoint, &bytes).ok()?;
    let again = ssz::ssz_to_json(schema, checkpoint, &bytes).ok()?;
    Some(again == json && bytes.len() == 40 && root != [0; 32])
}

/// Decodes the first message of a callout.
fn first_message(callout: &OwnerCallout) -> Option<ProcessMessage> {
    let envelope = CalloutEnvelope::decode_body(&callout.body).ok()?;
    let first = envelope.messages?.next()?.ok()?;
    ProcessMessage::decode_message(&first).ok()?
}

/// Encodes the answer to a callout.
fn encode_answer(messages: &[OwnerMessage]) -> Option<Vec<u8>> {
    let mut frame = OutgoingFrame::for_callout()?;
    for message in messages {
        message.append_to_frame(&mut frame).ok()?;
    }
    encode_callout_answer(Some(&frame))
}

/// Opens a session at the owner of a store by a callout, and looks a key up twice, the second time
/// without a reply.
fn check_owner_callouts() -> Option<bool> {
    let (shared, queue) = (
        ProcessCacheState::default(),
        Arc::new(WokenRequestQueue::default()),
    );
    shared.start_hot_tier(1 << 20, 1 << 20, 1);
    let waiter = shared.add_event_loop(queue.clone()).waiter_of_request(7);
    let name = OwnerClientName::new("sandbox")?;
    let link = Arc::new(OwnerLink::new(name, 1 << 30));
    shared.set_owner_client(link.clone());
    let key = [1; 32];
    let look_up = |now| {
        let Some(CoalescingRole::Leader(token)) = shared.flights.join_flight(key, waiter) else {
            return None;
        };
        let options = OwnerLookupOptions {
            leases: true,
            ..OwnerLookupOptions::default()
        };
        match link.lookup_at_owner(&shared.flights, token, waiter, options, now) {
            OwnerLookup::Pending => link.next_callout(&shared, now),
            _ => None,
        }
    };
    let answer = |callout: &OwnerCallout, messages: &[OwnerMessage]| {
        let body = encode_answer(messages)?;
        link.handle_callout_result(&shared, callout.id, Some((200, &*body)), 1);
        Some(())
    };
    // the crate has no clock: the times are arguments
    link.start_callouts();
    let hello = link.next_callout(&shared, 0)?;
    let requests_session = matches!(first_message(&hello)?, ProcessMessage::Hello(_));
    let generation = 5;
    let send_lease = OwnerMessage::SendLease {
        until: 1_000,
        after: 0,
        generation,
    };
    let welcome = OwnerMessage::Welcome {
        session: 1,
        generation,
        event: 0,
    };
    answer(&hello, &[welcome, send_lease.clone()])?;
    // a poll is in flight from here on
    let polls = first_message(&link.next_callout(&shared, 1)?).is_none();
    let is_trusted = link.permits_sending_from_memory(999);
    let callout = look_up(1)?;
    let ProcessMessage::Lookup { id, .. } = first_message(&callout)? else {
        return Some(false);
    };
    let lease = LeaseReply::Granted;
    let missing = OwnerMessage::Missing {
        id,
        generation,
        lease,
    };
    answer(&callout, &[send_lease.clone(), missing])?;
    let Some(FlightFollowerWakeup::Lead(token)) = shared.flights.claim_wakeup(waiter) else {
        return Some(false);
    };
    shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
    // a release waits for messages that are sent with it
    let waits = link.next_callout(&shared, 10).is_none();
    let release = link.next_callout(&shared, 12)?;
    let is_lease_returned = first_message(&release)? == ProcessMessage::Release(key);
    answer(&release, &[send_lease])?;
    look_up(13)?;
    // after the end of the lookup, with the times of tests, too
    let is_last = link.next_callout(&shared, 60_000).is_none();
    let leads_again = matches!(
        shared.flights.claim_wakeup(waiter),
        Some(FlightFollowerWakeup::Lead(_))
    );
    let is_woken = queue.next_woken_id() == Some(7);
    let opens = requests_session && polls && is_trusted;
    Some(opens && waits && is_lease_returned && is_last && leads_again && is_woken)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sandbox_returns_zero_when_every_step_succeeds() {
        assert_eq!(super::sandbox(), 0);
    }
}
