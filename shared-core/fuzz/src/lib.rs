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
use sszip_core::request_coding::SupportedContentCoding;
use sszip_core::zstd::{ZstdLevel, MAX_WINDOW_LOG, MAX_ZSTD_LEVEL};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

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
    /// Whether zstd is enabled.
    pub zstd: bool,
    zstd_level: ZstdLevel,
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
            zstd: self.zstd,
            zstd_level: self.zstd_level % MAX_ZSTD_LEVEL + 1,
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

/// Decoder of a content coding.
enum StreamDecoder {
    Gzip(Decompress),
    Zstd(ZstdDecoder<'static>),
}

/// A client that decompresses one gzip member or one zstd frame while it arrives.
pub struct DecompressingClient {
    decoder: StreamDecoder,
    ended: bool,
    /// Number of bytes received.
    pub received: usize,
    /// Content that could be decompressed from them.
    pub decoded: Vec<u8>,
}

/// Room for the output of one call of a decoder, in bytes.
const DECODER_ROOM: usize = 32 << 10;

impl DecompressingClient {
    /// Creates a client that receives this content coding, with the window limit of browsers.
    pub fn new(coding: SupportedContentCoding) -> Self {
        let decoder = match coding {
            SupportedContentCoding::Gzip => StreamDecoder::Gzip(Decompress::new_gzip(15)),
            SupportedContentCoding::Zstd => {
                let mut decoder = ZstdDecoder::new().expect("memory");
                decoder
                    .set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))
                    .expect("a parameter");
                StreamDecoder::Zstd(decoder)
            }
        };
        Self {
            decoder,
            ended: false,
            received: 0,
            decoded: Vec::new(),
        }
    }

    /// Decompresses as much as `bytes` permit.
    pub fn decompress_received(&mut self, bytes: &[u8]) {
        self.received += bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            assert!(!self.ended, "bytes after the member or frame");
            let consumed = self.decompress_step(rest).expect("it can be decoded");
            rest = &rest[consumed..];
        }
        self.drain_decoder();
    }

    /// Calls the decoder once, and returns the number of bytes that it consumed, or `None` if the
    /// input is damaged.
    fn decompress_step(&mut self, input: &[u8]) -> Option<usize> {
        self.decoded.reserve(DECODER_ROOM);
        match &mut self.decoder {
            StreamDecoder::Gzip(decoder) => {
                let before = decoder.total_in();
                let status = decoder
                    .decompress_vec(input, &mut self.decoded, FlushDecompress::Sync)
                    .ok()?;
                self.ended = status == Status::StreamEnd;
                Some((decoder.total_in() - before) as usize)
            }
            StreamDecoder::Zstd(decoder) => {
                let length = self.decoded.len();
                let mut input = InBuffer::around(input);
                let mut output = OutBuffer::around_pos(&mut self.decoded, length);
                let missing = decoder.run(&mut input, &mut output).ok()?;
                self.ended = missing == 0;
                Some(input.pos())
            }
        }
    }

    /// Reads the output that the decoder withholds for lack of space.
    fn drain_decoder(&mut self) {
        while !self.ended {
            let before = self.decoded.len();
            if self.decompress_step(&[]).is_none() || self.decoded.len() == before {
                return;
            }
        }
    }

    /// Whether the member or frame is complete and its trailer correct.
    pub fn is_body_complete(&self) -> bool {
        self.ended
    }
}
