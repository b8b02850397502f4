//! The core in a WebAssembly host: without threads, clock, randomness or a C library, and
//! with no function of the host's.
//!
//! `scripts/check-wasm` builds this crate, checks that it imports nothing, and runs it.

use std::sync::Arc;

use sszip_core::cache::link::callout::{CalloutClient, CalloutLimits};
use sszip_core::cache::link::OwnerReply;
use sszip_core::cache::process::flights::{FlightOutcome, Role, Wakeup};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::process::wake::Queue;
use sszip_core::cache::process::Shared;
use sszip_core::config::ConfigBlock;
use sszip_core::exchange::{
    EndAction, Exchange, HeadAction, PieceAction, RequestHead, ResponseHead,
};
use sszip_core::gzip::inflate::gunzip;
use sszip_core::gzip::stream::Flush;
use sszip_core::memory::Budget;
use sszip_core::ssz::{self, Fork, Preset, Schema};
use sszip_core::zstd::unzstd;

/// Length of a body that other hosts compress off their event loop, which this host can't.
const LENGTH: usize = 300_000;

/// Runs all steps; returns 0, or the number of the first step that failed.
#[no_mangle]
#[allow(unsafe_code)] // an exported name
pub extern "C" fn sandbox() -> u32 {
    let steps: [fn() -> Option<bool>; 5] = [buffered, streamed, values, coded, called];
    let failed = steps.iter().position(|step| step() != Some(true));
    failed.map_or(0, |step| step as u32 + 1)
}

fn body() -> Vec<u8> {
    let mut body = b"[\"".to_vec();
    body.extend((0..LENGTH).map(|n| b"0123456789abcdef"[n / 7 % 16 * n % 16]));
    body.extend_from_slice(b"\"]");
    body
}

/// An exchange up to the head of its response.
fn begin(content_length: Option<u64>) -> Option<(Exchange, HeadAction)> {
    let mut directives = ConfigBlock::default();
    directives.set("enable", &[b"on"]).ok()?;
    directives.set("cache", &[b"on"]).ok()?;
    directives.set("hold", &[b"0"]).ok()?;
    let mut exchange = Exchange::new(Arc::new(directives.resolve(Budget::new())));
    let request = RequestHead {
        method: b"GET",
        target: b"/",
        fields: [(&b"Accept-Encoding"[..], &b"gzip"[..])].into_iter(),
    };
    exchange.request_head(request).ok()?;
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
    let action = exchange.response_head(response).ok()?;
    Some((exchange, action))
}

/// Compresses a body of known length in one shot, and decodes it.
fn buffered() -> Option<bool> {
    let body = body();
    let (mut exchange, action) = begin(Some(body.len() as u64))?;
    for piece in body.chunks(10_000) {
        if exchange.piece(piece).ok()? != PieceAction::Buffered {
            return None;
        }
    }
    if let EndAction::Code { .. } = exchange.end().ok()? {
        exchange.compress().ok()?;
    }
    let sent: Vec<u8> = exchange.body().flatten().copied().collect();
    let decoded = gunzip(&sent, body.len()).ok()?;
    Some(action == HeadAction::Buffer && sent.len() < body.len() && decoded == body)
}

/// Compresses a body of unknown length as a stream, and decodes it.
fn streamed() -> Option<bool> {
    let body = body();
    let (mut exchange, action) = begin(None)?;
    let mut sent = Vec::new();
    let mut room = vec![0; 1000];
    let pieces = body.chunks(10_000).map(|piece| (piece, Flush::Sync));
    for (mut piece, flush) in pieces.chain([(&b""[..], Flush::Finish)]) {
        loop {
            let step = exchange.stream(piece, flush, &mut room).ok()?;
            sent.extend_from_slice(room.get(..step.written)?);
            piece = piece.get(step.consumed..)?;
            if step.complete {
                break;
            }
        }
    }
    let decoded = gunzip(&sent, body.len()).ok()?;
    Some(action == HeadAction::Stream && decoded == body)
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
fn coded() -> Option<bool> {
    let numbers: Vec<String> = (0..100)
        .map(|n| format!("{{\"number\":\"0x{n:x}\"}}"))
        .collect();
    let body = format!("[{}]", numbers.join(","));
    let decoded = unzstd(NUMBERS, body.len(), |_| true).ok()?;
    let cut = unzstd(NUMBERS.get(1..)?, body.len(), |_| true);
    Some(decoded == body.as_bytes() && cut.is_err())
}

/// Converts JSON to SSZ, checks it, computes its root, and converts it back.
fn values() -> Option<bool> {
    let json = br#"{"epoch":"7","root":"0x0101010101010101010101010101010101010101010101010101010101010101"}"#;
    let schema = Schema::for_fork(Fork::Electra, Preset::Mainnet);
    let checkpoint = schema.find("Checkpoint")?;
    let bytes = ssz::to_ssz(schema, checkpoint, json).ok()?;
    ssz::check(schema, checkpoint, &bytes).ok()?;
    let root = ssz::hash_tree_root(schema, checkpoint, &bytes).ok()?;
    let again = ssz::to_json(schema, checkpoint, &bytes).ok()?;
    Some(again == json && bytes.len() == 40 && root != [0; 32])
}

/// Queries the owner of a store by callouts, one of them without a reply.
fn called() -> Option<bool> {
    let (shared, queue) = (Shared::default(), Arc::new(Queue::default()));
    let waiter = shared.event_loop(queue.clone()).waiter(7);
    let calls = Arc::new(CalloutClient::new(
        "sandbox".into(),
        CalloutLimits::default(),
    ));
    shared.join(calls.clone());
    let key = [1; 32];
    let look_up = |now| {
        let Some(Role::Leader(token)) = shared.flights.join_flight(key, waiter) else {
            return None;
        };
        shared.flights.follow(&token, waiter)?;
        calls.lookup(key, token, &[2; 16], true, false, now).ok()?;
        calls.next(&shared, now)
    };
    let call = look_up(0)?;
    let mut answer = OwnerReply {
        status: 404,
        ..OwnerReply::default()
    };
    for (name, value) in [
        ("sszip-generation", "5"),
        ("Sszip-Chain", "none"),
        ("sszip-lease", "granted"),
    ] {
        answer.field(name, value.as_bytes()).ok()?;
    }
    calls.answered(&shared, call.ticket, answer, 1);
    let Some(Wakeup::Lead(token)) = shared.flights.claim(waiter) else {
        return Some(false);
    };
    shared.finish(token, FlightOutcome::NotShareable);
    let is_lease_returned = calls.next(&shared, 1)?.message.method == "DELETE";
    // the crate has no clock: the times are arguments
    look_up(2)?;
    let is_last = calls.next(&shared, 1_000).is_none();
    let leads_again = matches!(shared.flights.claim(waiter), Some(Wakeup::Lead(_)));
    Some(is_lease_returned && is_last && leads_again && queue.next() == Some(7))
}

#[cfg(test)]
mod tests {
    #[test]
    fn sandbox_returns_zero_when_every_step_succeeds() {
        assert_eq!(super::sandbox(), 0);
    }
}
