//! A body that is held, and the memory for it and for what is made of it.

use std::sync::Arc;

use super::bound::coded_at_most;
use super::head::{HeadEdit, ResponseHead};
use super::transcoding::Transcoding;
use crate::cache::entry::Lent;
use crate::coded::Coded;
use crate::config::Config;
use crate::faults::{injected, Fault};
use crate::gzip::inflate::InflateError;
use crate::gzip::{inflate, oneshot, stream};
use crate::memory::Reservation;
use crate::mode::Mode;
use crate::{json, memory};

/// Taken for a body before any of it has come. Bytes.
const FIRST: usize = 64 << 10;

/// What has come of a body.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What the node sent.
    pub(super) body: Vec<u8>,
    pub(super) reservation: Option<Reservation>,
    /// The body's length, where the node gave it.
    pub(super) declared: Option<usize>,
    /// The end of a body without a length can be told from a cut.
    pub(super) delimited: bool,
    /// Edits of the head that hold only if the body is recoded.
    pub(super) recoded_edits: Vec<HeadEdit>,
    /// For what of stored answers goes with it.
    pub(super) borrowed: Borrowed,
}

impl Held {
    /// Nothing yet of the body with that head.
    pub(super) fn of<I>(head: &ResponseHead<I>) -> Self {
        // the length that a 304 gives is not of its own body
        let length = head.content_length.filter(|_| head.status != 304);
        Self {
            // beyond the address space is beyond max_oneshot
            declared: length.map(|length| usize::try_from(length).unwrap_or(usize::MAX)),
            delimited: head.delimited,
            ..Self::default()
        }
    }

    /// Whether there is less than the node said there would be.
    pub(super) fn is_short(&self) -> bool {
        self.declared
            .is_some_and(|declared| self.body.len() < declared)
    }

    /// Whether a body of unknown length is known to have ended.
    pub(super) fn is_whole(&self) -> bool {
        self.delimited || json::closes(&self.body)
    }

    /// Takes the memory for the beginning of a body of known `length`, if there could ever
    /// be enough for all of it: itself and, for the time of coding, its other form.
    /// What the node announces takes nothing.
    pub(super) fn begin(&mut self, config: &Config, length: usize) -> Result<(), Mode> {
        check_fits_alone(config, length, length)?;
        self.reserve(config, length.min(FIRST), length)
    }

    /// Reserves memory for the beginning of a conversion, if all of it could fit alone: at most
    /// `kept` bytes of the original, and an estimated `made` bytes of the other format.
    pub(super) fn begin_conversion(
        &mut self,
        config: &Config,
        kept: usize,
        made: usize,
    ) -> Result<(), Mode> {
        check_fits_alone(config, kept, made)?;
        self.claim(config, kept.min(FIRST), made.min(FIRST))
    }

    /// Takes the memory for `length` bytes of a body that may have `most`. What is taken
    /// doubles, so that it is seldom more than twice what has come.
    pub(super) fn make_room(
        &mut self,
        config: &Config,
        length: usize,
        most: usize,
    ) -> Result<(), Mode> {
        let reserved = self.reservation.as_ref().map_or(0, |it| it.bytes() / 2);
        if reserved.min(self.body.capacity()) >= length {
            return Ok(());
        }
        let more = reserved.saturating_mul(2).max(FIRST).min(most).max(length);
        self.reserve(config, more, most)
    }

    /// The same for the node's part of a batch, of at most `most` bytes.
    pub(super) fn make_room_for_part(
        &mut self,
        config: &Config,
        length: usize,
        most: u64,
    ) -> Result<(), Mode> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most = self.declared.unwrap_or(most).min(most).max(length);
        match self.make_room(config, length, most) {
            Ok(()) => Ok(()),
            Err(_) => self.reserve(config, length, most),
        }
    }

    /// Takes the memory for `length` bytes of a body that may have `most`.
    ///
    /// A body whose length was announced has its buffer at once, where a buffer that nobody
    /// has written to takes no memory: it need not be copied as it grows. In WebAssembly
    /// it takes a part of the sandbox's memory, which is never given back.
    fn reserve(&mut self, config: &Config, length: usize, most: usize) -> Result<(), Mode> {
        self.claim(config, length, length)?;
        let is_free = self.declared.is_some() && cfg!(not(target_family = "wasm"));
        self.grow(if is_free { most } else { length })
    }

    /// Takes memory for the body and what is made of it.
    pub(super) fn claim(
        &mut self,
        config: &Config,
        body: usize,
        beside: usize,
    ) -> Result<(), Mode> {
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let needed = body.checked_add(beside).ok_or(Mode::Memory)?;
        match &mut self.reservation {
            Some(reservation) => reservation.grow_to(needed, limit).then_some(()),
            None => {
                self.reservation = config.process.budget.reserve(needed, limit);
                self.reservation.as_ref().map(|_| ())
            }
        }
        .ok_or(Mode::Memory)
    }

    fn grow(&mut self, room: usize) -> Result<(), Mode> {
        let more = room.saturating_sub(self.body.len());
        if self.body.try_reserve_exact(more).is_err() || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        Ok(())
    }

    /// Less than was taken is needed from here on.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(bytes);
        }
    }

    /// Decodes the body into at most `most` bytes, which are reserved before they are
    /// allocated. The coded body is kept.
    pub(super) fn gunzip(&mut self, config: &Config, most: u64) -> Result<Vec<u8>, Mode> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let coded = std::mem::take(&mut self.body);
        let decoded = inflate::gunzip_within(&coded, most, |length| {
            self.claim(config, coded.capacity(), length).is_ok()
        });
        self.body = coded;
        decoded.map_err(|error| match error {
            InflateError::TooLarge => Mode::Encoded,
            InflateError::OutOfMemory => Mode::Memory,
            InflateError::Bad => Mode::Failed,
        })
    }
}

/// Returns an error if a body would exceed `sszip_memory` with nothing else reserved.
fn check_fits_alone(config: &Config, body: usize, beside: usize) -> Result<(), Mode> {
    let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
    match body.saturating_add(beside) > limit {
        true => Err(Mode::Memory),
        false => Ok(()),
    }
}

/// What is made of a body, in this order.
#[derive(Debug, Default)]
pub(super) struct Stages {
    /// It is gzip, which the client or the next stage can't read.
    pub(super) inflates: bool,
    pub(super) transcoding: Option<Box<Transcoding>>,
    pub(super) gzip: Option<Gzip>,
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gzip {
    /// The client refused identity: gzip is sent even if it is longer.
    pub(super) at_any_length: bool,
}

/// A body that goes through its stages when all of it is there.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) stages: Stages,
    pub(super) held: Held,
    /// Room for the coded body. Made where the body is: memory that coder
    /// threads allocate stays in their arenas when it is freed elsewhere.
    pub(super) room: Vec<u8>,
    /// How long it may be, where it is held until that is known. Bytes.
    pub(super) most: Option<u64>,
    /// How it is coded, if its length is that without the coding.
    pub(super) measured: Option<Coded>,
    /// It is held for that alone, and would have been left alone for this reason.
    pub(super) left_alone: Option<Mode>,
}

impl Whole {
    pub(super) fn new(stages: Stages, held: Held) -> Self {
        Self {
            stages,
            held,
            room: Vec::new(),
            most: None,
            measured: None,
            left_alone: None,
        }
    }

    /// Whether there is less than the node said there would be.
    pub(super) fn is_short(&self) -> bool {
        let came = match &self.stages.transcoding {
            Some(transcoding) => transcoding.came,
            None => self.held.body.len() as u64,
        };
        let declared = self.held.declared;
        declared.is_some_and(|declared| came < declared as u64)
    }

    /// Whether it is a body of unknown length that is held in the hope of its
    /// end.
    pub(super) fn is_in_window(&self) -> bool {
        self.is_of_unknown_length() && self.most.is_none()
    }

    /// Whether it is compressed and nothing else, so that it can be compressed as it comes
    /// where there is no memory for all of it.
    pub(super) fn may_stream(&self) -> bool {
        let stages = &self.stages;
        let is_only_compressed = !stages.inflates && stages.transcoding.is_none();
        is_only_compressed && stages.gzip.is_some() && self.most.is_none()
    }

    /// Whether it could go out as it comes, for all that is made of it.
    pub(super) fn is_of_unknown_length(&self) -> bool {
        let stages = &self.stages;
        self.held.declared.is_none() && !stages.inflates && stages.transcoding.is_none()
    }

    /// How many bytes may come, if anything is said of its length.
    fn comes_at_most(&self) -> Option<u64> {
        let most = self.most?;
        Some(match self.measured {
            Some(_) => coded_at_most(most),
            None => most,
        })
    }

    /// Whether one of which that many bytes have come is longer than it may be.
    pub(super) fn is_too_long(&self, length: u64) -> bool {
        self.comes_at_most().is_some_and(|most| length > most)
    }

    /// Whether a body of `length` is too short to be compressed.
    pub(super) fn is_below_gate(&self, config: &Config, length: usize) -> bool {
        let gzip = self.stages.gzip;
        gzip.is_some_and(|gzip| !gzip.at_any_length) && (length as u64) < config.min_length
    }

    /// How much the coder has to go through.
    pub(super) fn work(&self, config: &Config) -> usize {
        match (self.stages.inflates, &self.stages.transcoding) {
            _ if self.measured == Some(Coded::Zstd) => self.held.body.len().saturating_mul(5),
            _ if self.measured.is_some() => work_of_gunzip(&self.held.body, config),
            (true, _) => work_of_gunzip(&self.held.body, config),
            (false, Some(transcoding)) => transcoding.written(),
            (false, None) => self.held.body.len(),
        }
    }

    /// What the coded body must be shorter than.
    pub(super) fn gzip_limit(&self) -> usize {
        match self.stages.gzip {
            Some(Gzip {
                at_any_length: true,
            }) => oneshot::bound(self.held.body.len()),
            _ => self.held.body.len(),
        }
    }

    /// Room for the coded body, made by the thread that collected the body.
    pub(super) fn make_room_for_code(&mut self) {
        if self.stages.transcoding.is_some() {
            // nobody knows yet how much
            return;
        }
        // there will be no encoder
        let held = &mut self.held;
        held.shrink_to(held.body.capacity() + held.body.len());
        if self.stages.gzip.is_some() {
            // refused: the coder will find that out
            let _ = self.room.try_reserve_exact(self.gzip_limit());
        }
    }

    /// Room for a body that has grown to `length`, or the reason to stop.
    pub(super) fn make_room(&mut self, config: &Config, length: usize) -> Result<(), Mode> {
        let most = match self.comes_at_most() {
            Some(most) => most,
            None if self.is_in_window() => config.hold.min(config.max_oneshot),
            None => config.max_oneshot,
        };
        if memory::is_short() {
            return Err(Mode::Memory);
        }
        match self.held.declared {
            // More than was declared: not ours to repair.
            Some(declared) if length > declared => Err(Mode::Failed),
            Some(declared) => self.held.make_room(config, length, declared),
            None if length as u64 > most => Err(Mode::Encoded),
            None => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                self.reserve_more(config, length, most)
            }
        }
    }

    /// Takes the memory for a body that has grown to `length` and may go on to
    /// `most`. Its room grows in steps, so that it is copied seldom.
    ///
    /// One that is held in the hope of its end may have to be streamed instead,
    /// so there is room for an encoder beside what is held, or no more is.
    fn reserve_more(&mut self, config: &Config, length: usize, most: usize) -> Result<(), Mode> {
        let is_in_window = self.is_in_window();
        let held = &mut self.held;
        let room = match held.body.capacity() {
            enough if enough >= length => enough,
            little => length.max(little.saturating_mul(2).min(most)),
        };
        if is_in_window {
            let encoder = stream::size(config.stream_level);
            match held.claim(config, room, length.max(encoder)) {
                Ok(()) => return held.grow(room),
                // what is held so far can be streamed
                Err(reason) if held.claim(config, held.body.capacity(), encoder).is_ok() => {
                    return Err(reason)
                }
                // there is no encoder to be had, but one shot may do
                Err(_) => {}
            }
        }
        held.claim(config, room, length)?;
        held.grow(room)
    }
}

/// What is short may be long when it is decoded.
pub(super) fn work_of_gunzip(coded: &[u8], config: &Config) -> usize {
    let most = usize::try_from(config.max_oneshot).unwrap_or(usize::MAX);
    inflate::claimed_length(coded).min(most).max(coded.len())
}

/// Memory for what is given out of stored answers.
pub(super) type Borrowed = Vec<Loan>;

#[derive(Debug)]
pub(super) enum Loan {
    /// For what was decoded.
    Decoded(Arc<Lent>),
    /// For what was put together of it.
    Assembled { _memory: Reservation },
}
