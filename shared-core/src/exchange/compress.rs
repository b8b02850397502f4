//! One-shot compression and decompression of a complete body.

use super::actions::Misuse;
use super::buffered::BodyPipeline;
use super::cache::store_plan::StorePlan;
use super::head::HeadEdit;
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::Event;
use crate::config::RouteConfig;
use crate::gzip::in_place::{self, ShrinkError};
use crate::gzip::oneshot;
use crate::gzip::splice::Body;
use crate::memory;
use crate::mode::Mode;
use crate::ssz::Parts;

/// The output of the compression or decompression of one body, and the mode of its response.
struct CompressedBody {
    body: Vec<u8>,
    /// Body of the entry, which is sent to this client as to later ones.
    stored: Option<Body>,
    mode: Mode,
}

impl Exchange {
    /// Compresses, converts or merges the complete body, decodes a stored one, or rewrites the
    /// request. May take milliseconds per megabyte. In
    /// [`State::Aborted`](super::transitions::State::Aborted) there is nothing to send.
    ///
    /// # Errors
    /// [`Misuse`] unless the body is complete, or a stored one is to be decompressed.
    pub fn compress(&mut self) -> Result<(), Misuse> {
        if !self.decoded_body_is_within_limit() {
            return self.reject_measured_body();
        }
        match &mut self.phase {
            Phase::Coding(whole) if whole.stages.transcoding.is_some() => self.transcode(),
            Phase::Coding(_) => self.compress_whole(),
            Phase::Merging(_) => self.merge(),
            Phase::Decoding(_) => self.decode(),
            Phase::Rewriting(_) => self.rewrite(),
            _ => Err(self.misuse(Event::Compressed)),
        }
    }

    /// Compresses or decompresses the complete body; it is sent unchanged if that fails or is not
    /// worth it.
    pub(super) fn compress_whole(&mut self) -> Result<(), Misuse> {
        self.record_buffered_errors();
        let Phase::Coding(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Compressed));
        };
        let is_there = !memory::is_short();
        let (config, storing) = (&*self.config, &mut self.storing);
        let stages = &whole.stages;
        let coded = match (stages.inflates, stages.gzip) {
            _ if !is_there => Err(Mode::Memory),
            (true, _) => whole.gunzip(config, storing),
            (false, Some(_)) => whole.gzip(config, storing),
            (false, None) => Err(whole.left_alone.unwrap_or(Mode::AcceptEncoding)),
        };
        let buffered = &mut whole.buffered;
        let mut stored = None;
        let length = match coded {
            Ok(coded) => {
                buffered.body = coded.body;
                stored = coded.stored;
                let ready = stored.as_ref().map_or(0, Body::length);
                let length =
                    usize::try_from(ready).map_or(usize::MAX, |it| it + buffered.body.len());
                self.mode = coded.mode;
                self.head_edits.push(match coded.mode {
                    Mode::Oneshot => HeadEdit::set("Content-Encoding", b"gzip"),
                    _ => HeadEdit::remove("Content-Encoding"),
                });
                self.head_edits.push(HeadEdit::content_length(length));
                self.head_edits.append(&mut buffered.recoded_edits);
                length
            }
            Err(reason) => {
                self.mode = reason;
                if whole.left_alone.is_some() {
                    // as if the response had been passed unchanged
                    storing.copy_sent_bytes(config, &mut self.reason, &buffered.body);
                } else if let Some(fill) = storing.uses_sent_bytes().filter(|_| is_there) {
                    // a body that is not worth compressing may be worth storing
                    fill.build_once(&buffered.body);
                }
                let length = buffered.body.len();
                if buffered.declared.is_none() && buffered.is_complete() {
                    self.head_edits.push(HeadEdit::content_length(length));
                }
                length
            }
        };
        buffered.shrink_to(length);
        self.transition(Event::Compressed, |phase| phase.into_ready(stored))
    }

    /// Compresses a long body, or one in parts, that is not stored. The input is released while
    /// it is compressed.
    pub(super) fn compress_parts(&mut self, parts: Parts) -> Result<(), Misuse> {
        let Phase::Coding(whole) = &mut self.phase else {
            return Err(self.misuse(Event::Compressed));
        };
        let buffered = &mut whole.buffered;
        // the upstream's form is not needed any more
        buffered.body = Vec::new();
        let (plain, order) = parts.into_pieces();
        self.mode = Mode::AcceptEncoding;
        let gzip = whole.stages.gzip.filter(|_| !memory::is_short());
        let coded = match gzip {
            None => Err(ShrinkError::Plain(plain)),
            Some(gzip) => {
                let any_length = gzip.at_any_length;
                in_place::gzip(plain, &order, self.config.comp_level, any_length)
            }
        };
        let body = match coded {
            Ok(body) => {
                self.head_edits
                    .push(HeadEdit::set("Content-Encoding", b"gzip"));
                self.mode = Mode::Oneshot;
                Some(body)
            }
            Err(ShrinkError::Plain(plain)) => Body::from_parts(plain, &order, false),
            Err(ShrinkError::Nothing) => None,
        };
        let Some(body) = body else {
            return self.fail(Mode::Memory);
        };
        let length = usize::try_from(body.length()).unwrap_or(usize::MAX);
        self.head_edits.push(HeadEdit::content_length(length));
        buffered.shrink_to(length);
        self.transition(Event::Compressed, |phase| phase.into_ready(Some(body)))
    }

    pub(super) fn set_content_length(&mut self, length: usize) {
        self.head_edits.push(HeadEdit::content_length(length));
    }
}

impl BodyPipeline {
    /// Compresses the body, in the form of its entry if it is stored, or returns the reason to send
    /// it unchanged.
    fn gzip(
        &mut self,
        config: &RouteConfig,
        storing: &mut StorePlan,
    ) -> Result<CompressedBody, Mode> {
        let body = &self.buffered.body;
        if body.is_empty() || self.is_below_gate(config, body.len()) {
            return Err(Mode::TooSmall);
        }
        let limit = self.gzip_limit();
        if let Some(stored) = self.compress_as_entry(storing, limit) {
            self.room = Vec::new();
            return Ok(CompressedBody {
                body: Vec::new(),
                stored: Some(stored),
                mode: Mode::Oneshot,
            });
        }
        let room = std::mem::take(&mut self.room);
        match oneshot::gzip_into(&self.buffered.body, config.comp_level, limit, room) {
            Ok(body) => Ok(CompressedBody {
                body,
                stored: None,
                mode: Mode::Oneshot,
            }),
            Err(oneshot::OneshotError::NotSmaller) => Err(Mode::NotSmaller),
            Err(_) => Err(Mode::Failed),
        }
    }

    /// Returns the body as the entry will be sent, so that it is compressed once and kept in
    /// memory once.
    fn compress_as_entry(&mut self, storing: &mut StorePlan, limit: usize) -> Option<Body> {
        // uses the buffer that was allocated for the compressed body
        let fill = storing.uses_sent_bytes()?;
        let (entry, id) = fill.build_from(&self.buffered.body, &mut self.room)?;
        let coded = entry.gzip(&id)?;
        (coded.is_gzip() && coded.length() < limit as u64).then_some(coded)
    }

    /// Decompresses the body, and builds its entry if it is stored.
    fn gunzip(
        &mut self,
        config: &RouteConfig,
        storing: &mut StorePlan,
    ) -> Result<CompressedBody, Mode> {
        let body = self.buffered.gunzip(config, config.max_oneshot)?;
        if let Some(fill) = storing.uses_sent_bytes() {
            fill.decoded();
            fill.build_from(&body, &mut self.room);
        }
        Ok(CompressedBody {
            body,
            stored: None,
            mode: Mode::Inflate,
        })
    }
}
