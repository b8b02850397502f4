//! Types and functions that the fuzz targets share: settings, bodies in pieces, a host's loop
//! around an encoder, and a client that decompresses while bytes arrive.

pub mod log_oracle;
#[path = "../../tests/jsonrpc/oracle.rs"]
pub mod oracle;
pub mod ssz;
pub mod transcoding;
#[allow(dead_code)] // the tests of SSZ use the rest
#[path = "../../tests/ssz/tree.rs"]
mod tree;

use std::sync::Arc;

use arbitrary::Arbitrary;
use flate2::{Decompress, FlushDecompress, Status};
use sszip_core::config::{RouteConfig, RouteConfigBlock, UpstreamAcceptEncoding};
use sszip_core::gzip::stream::{EncodeProgress, FlushMode};
use sszip_core::memory::MemoryBudget;

/// Settings in the ranges of the directives, and small enough for a fuzzer to reach each limit.
#[derive(Arbitrary, Debug)]
pub struct FuzzRouteSettings {
    min_length: u8,
    comp_level: u8,
    max_oneshot: u16,
    hold: u16,
    stream_level: u8,
    memory: Option<u32>,
    pass: bool,
}

impl FuzzRouteSettings {
    /// Configuration with these settings, enabled.
    pub fn enabled_route_config(&self, budget: &MemoryBudget) -> Arc<RouteConfig> {
        Arc::new(RouteConfig {
            enable: true,
            min_length: self.min_length.into(),
            comp_level: self.comp_level % 13,
            max_oneshot: 1024 + u64::from(self.max_oneshot) * 4,
            hold: self.hold.into(),
            stream_level: self.stream_level % 3 + 1,
            memory: self
                .memory
                .map_or(256 << 20, |some| some % (1 << 20))
                .into(),
            upstream_encoding: if self.pass {
                UpstreamAcceptEncoding::Pass
            } else {
                UpstreamAcceptEncoding::Identity
            },
            ..RouteConfigBlock::default().resolve_route_config(budget.clone())
        })
    }
}

/// Content of a piece: a fuzzer's input is too short to fill the encoders' windows and buffers by
/// itself.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum PieceContent {
    Repeat,
    Count,
    Noise,
}

/// A piece of a body, and the way in which a host sends it.
#[derive(Arbitrary, Debug)]
pub struct FuzzBodyPiece<'a> {
    bytes: &'a [u8],
    times: u8,
    fill: PieceContent,
    /// Whether the node flushes after the piece.
    pub flush: bool,
    /// Length of the first output buffer in bytes.
    pub room: u16,
}

impl FuzzBodyPiece<'_> {
    /// Bytes of the piece, at most 64 KiB.
    pub fn piece_bytes(&self) -> Vec<u8> {
        let mut body = self.bytes.repeat(usize::from(self.times).max(1));
        body.truncate(64 << 10);
        let mut state = 0x9E37_79B9_u32;
        for (n, byte) in body.iter_mut().enumerate() {
            match self.fill {
                PieceContent::Repeat => {}
                PieceContent::Count => *byte = byte.wrapping_add((n >> 8) as u8),
                PieceContent::Noise => {
                    // xorshift (Marsaglia), for bytes that no encoder shortens
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    *byte ^= state as u8;
                }
            }
        }
        body
    }

    /// Flush after the piece, as the node does it.
    pub fn flush_mode(&self) -> FlushMode {
        if self.flush {
            FlushMode::Sync
        } else {
            FlushMode::None
        }
    }
}

/// Minimum length of later output buffers: the bytes that a flush emits by itself.
const LEAST_ROOM: usize = 16;

/// Compresses `piece` as a host does: with the rest of the input and the same flush, until it is
/// complete. `room` is the length of the first buffer and may be 0.
pub fn compress_piece_as_host(
    piece: &[u8],
    flush: FlushMode,
    room: u16,
    client: &mut DecompressingClient,
    mut encode: impl FnMut(&[u8], FlushMode, &mut [u8]) -> EncodeProgress,
) {
    let mut rest = piece;
    let mut room = usize::from(room);
    loop {
        let progress =
            encode_into_guarded_buffer(room, |output| encode(rest, flush, output), client);
        rest = &rest[progress.consumed..];
        if progress.complete {
            assert!(rest.is_empty(), "complete, with input left");
            return;
        }
        let moved = progress.consumed + progress.written > 0;
        assert!(
            moved || room < LEAST_ROOM,
            "stuck with {room} bytes of room"
        );
        room = room.max(LEAST_ROOM);
    }
}

/// Calls `encode` with a buffer inside a larger one, whose rest must not change: no sanitizer
/// sees the memory accesses of ISA-L.
fn encode_into_guarded_buffer(
    room: usize,
    encode: impl FnOnce(&mut [u8]) -> EncodeProgress,
    client: &mut DecompressingClient,
) -> EncodeProgress {
    const GUARD: [u8; 64] = [0xA5; 64];
    let mut output = vec![0; room];
    output.extend_from_slice(&GUARD);
    let progress = encode(&mut output[..room]);
    assert!(output[room..] == GUARD, "written beyond the buffer");
    client.decompress_received(&output[..progress.written]);
    progress
}

/// A client that decompresses one gzip member while it arrives.
pub struct DecompressingClient {
    decoder: Decompress,
    ended: bool,
    /// Number of bytes received.
    pub received: usize,
    /// Content that could be decompressed from them.
    pub decoded: Vec<u8>,
}

impl Default for DecompressingClient {
    fn default() -> Self {
        Self {
            decoder: Decompress::new_gzip(15),
            ended: false,
            received: 0,
            decoded: Vec::new(),
        }
    }
}

impl DecompressingClient {
    /// Decompresses as much as `bytes` permit.
    pub fn decompress_received(&mut self, bytes: &[u8]) {
        self.received += bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            assert!(!self.ended, "bytes after the member");
            self.decoded.reserve(32 << 10);
            let taken = self.decoder.total_in();
            let status = self
                .decoder
                .decompress_vec(rest, &mut self.decoded, FlushDecompress::Sync)
                .expect("it can be decoded");
            self.ended = status == Status::StreamEnd;
            rest = &rest[(self.decoder.total_in() - taken) as usize..];
        }
        self.drain_decoder();
    }

    /// Reads the output that the decoder withholds for lack of space.
    fn drain_decoder(&mut self) {
        while !self.ended {
            self.decoded.reserve(32 << 10);
            let before = self.decoded.len();
            let status = self
                .decoder
                .decompress_vec(&[], &mut self.decoded, FlushDecompress::Sync);
            self.ended = matches!(status, Ok(Status::StreamEnd));
            if self.decoded.len() == before {
                return;
            }
        }
    }

    /// Whether the member is complete and its trailer correct.
    pub fn is_member_complete(&self) -> bool {
        self.ended
    }
}
