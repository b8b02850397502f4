//! The stages that a response body passes through.

use crate::body_compressor::BodyCompressor;
use crate::config::RouteConfig;
use crate::exchange::ssz::conversion::ResponseFormatConversion;
use crate::request_coding::SupportedContentCoding;

/// The stages that a body passes through, in this order: decompression, conversion to another
/// format, compression.
#[derive(Debug, Default)]
pub(in crate::exchange) struct BodyStages {
    /// Coding of the body, if the client or the next stage can't read it.
    pub(in crate::exchange) inflates: Option<SupportedContentCoding>,
    pub(in crate::exchange) transcoding: Option<Box<ResponseFormatConversion>>,
    pub(in crate::exchange) compression: Option<CompressionRequirement>,
}

impl BodyStages {
    /// Returns the compressor of the client's coding; gzip's, which compresses the entries, if the
    /// client receives identity.
    pub(in crate::exchange) fn body_compressor(&self, config: &RouteConfig) -> BodyCompressor {
        let coding = self.compression.map(|it| it.coding);
        config.body_compressor(coding.unwrap_or(SupportedContentCoding::Gzip))
    }
}

/// The content coding that the client receives, and its condition for it: shorter than identity, or
/// of any length.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct CompressionRequirement {
    pub(in crate::exchange) coding: SupportedContentCoding,
    /// Whether a compressed body is sent even if it is longer, because the client refused identity.
    pub(in crate::exchange) at_any_length: bool,
}
