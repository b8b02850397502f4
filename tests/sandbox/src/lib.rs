//! The core as a WebAssembly host has it: without threads, clock, randomness
//! or a C library, and with no function of the host's.
//!
//! `scripts/check-wasm` builds this, sees that it imports nothing, and runs it.

use std::sync::Arc;

use sszip_core::config::Directives;
use sszip_core::exchange::{
    EndAction, Exchange, HeadAction, PieceAction, RequestHead, ResponseHead,
};
use sszip_core::gzip::inflate::gunzip;
use sszip_core::gzip::stream::Flush;
use sszip_core::memory::Budget;
use sszip_core::ssz::{self, Fork, Preset, Schema};

/// Longer than what a host is asked to code off its loop, which this one can't.
const LENGTH: usize = 300_000;

/// 0, or the number of the first step that did not come out.
#[no_mangle]
#[allow(unsafe_code)] // an exported name
pub extern "C" fn sandbox() -> u32 {
    let steps: [fn() -> Option<bool>; 3] = [held, streamed, values];
    let failed = steps.iter().position(|step| step() != Some(true));
    failed.map_or(0, |step| step as u32 + 1)
}

fn body() -> Vec<u8> {
    let mut body = b"[\"".to_vec();
    body.extend((0..LENGTH).map(|n| b"0123456789abcdef"[n / 7 % 16 * n % 16]));
    body.extend_from_slice(b"\"]");
    body
}

/// An exchange up to the head of its answer.
fn begin(content_length: Option<u64>) -> Option<(Exchange, HeadAction)> {
    let mut directives = Directives::default();
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

/// A body of known length is coded whole, and decodes.
fn held() -> Option<bool> {
    let body = body();
    let (mut exchange, action) = begin(Some(body.len() as u64))?;
    for piece in body.chunks(10_000) {
        if exchange.piece(piece).ok()? != PieceAction::Taken {
            return None;
        }
    }
    if let EndAction::Code { .. } = exchange.end().ok()? {
        exchange.code().ok()?;
    }
    let sent: Vec<u8> = exchange.body().flatten().copied().collect();
    let decoded = gunzip(&sent, body.len()).ok()?;
    Some(action == HeadAction::Hold && sent.len() < body.len() && decoded == body)
}

/// One of unknown length is coded as it comes, and decodes.
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

/// JSON becomes SSZ, which is right, has a root, and becomes JSON again.
fn values() -> Option<bool> {
    let json = br#"{"epoch":"7","root":"0x0101010101010101010101010101010101010101010101010101010101010101"}"#;
    let schema = Schema::of(Fork::Electra, Preset::Mainnet);
    let checkpoint = schema.find("Checkpoint")?;
    let bytes = ssz::to_ssz(schema, checkpoint, json).ok()?;
    ssz::check(schema, checkpoint, &bytes).ok()?;
    let root = ssz::hash_tree_root(schema, checkpoint, &bytes).ok()?;
    let again = ssz::to_json(schema, checkpoint, &bytes).ok()?;
    Some(again == json && bytes.len() == 40 && root != [0; 32])
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_step_comes_out() {
        assert_eq!(super::sandbox(), 0);
    }
}
