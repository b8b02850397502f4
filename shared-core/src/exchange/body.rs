//! The body of an answer whose head is held.

use super::actions::{EndAction, Misuse, PieceAction};
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::Event;
use crate::faults::{panic_if, Fault};
use crate::gzip::oneshot::off_loop_length;
use crate::memory;
use crate::mode::Mode;

/// Bytes of a long body that are read at once: of 4 KiB at a time it takes half as
/// much time again, and of 64 KiB a fifth.
const READ_SIZE: usize = 256 << 10;

/// The same where nobody knows how long it is.
const READ_SIZE_OF_CHUNKS: usize = 64 << 10;

impl Exchange {
    /// For how long the head, or what the encoder keeps of a stream, may be
    /// held, in milliseconds; `None`: until the body ends.
    pub fn hold_ms(&self) -> Option<u64> {
        match &self.phase {
            Phase::Streaming(_) => Some(self.config.hold_ms),
            Phase::Collecting(whole) if whole.is_in_window() => Some(self.config.hold_ms),
            _ => None,
        }
    }

    /// How many bytes of a held body are best read at once; `None`: as many as the
    /// host reads by itself. What takes them as they come is done faster with long
    /// pieces.
    pub fn read_size(&self) -> Option<usize> {
        let Phase::Collecting(whole) = &self.phase else {
            return None;
        };
        whole.stages.transcoding.as_ref()?;
        match whole.held.declared {
            Some(declared) => Some(READ_SIZE).filter(|size| declared > *size),
            None => Some(READ_SIZE_OF_CHUNKS),
        }
    }

    /// A piece of the held body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn piece(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        self.allows(Event::Piece)?;
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.piece_of_part(piece),
            // what replaces the node's answer is there
            Phase::Replacing(_) => return Ok(PieceAction::Taken),
            _ => return Err(self.misuse(Event::Piece)),
        };
        let transcodes = whole.stages.transcoding.is_some();
        let length = match transcodes {
            true => self.received + piece.len() as u64,
            false => (whole.held.body.len() + piece.len()) as u64,
        };
        if whole.is_too_long(length) {
            return self.is_too_long_to_send();
        }
        if transcodes {
            return self.piece_to_transcode(piece);
        }
        match whole.make_room(&self.config, whole.held.body.len() + piece.len()) {
            Ok(()) => {}
            Err(_) if whole.is_in_window() => return self.start_stream(),
            // what can't be held is not judged
            Err(_) if whole.most.is_some() => return self.is_too_long_to_send(),
            // not where the system has no memory left: what is left is for what can not be refused
            Err(Mode::Memory) if whole.may_stream() && !memory::is_short() => {
                return self.start_stream()
            }
            Err(reason) => {
                self.give_up(reason)?;
                return Ok(PieceAction::GiveUp);
            }
        }
        panic_if(Fault::PanicBody);
        whole.held.body.extend_from_slice(piece);
        self.received = whole.held.body.len() as u64;
        Ok(PieceAction::Taken)
    }

    /// The time to hold a head is over, or the node flushes what it has sent.
    /// [`PieceAction::Taken`] means to go on holding: the body's length is
    /// known, or it can't be sent before its end.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn release(&mut self) -> Result<PieceAction, Misuse> {
        match &self.phase {
            Phase::CollectingPart(_) | Phase::Replacing(_) => Ok(PieceAction::Taken),
            Phase::Collecting(whole) if !whole.is_in_window() => Ok(PieceAction::Taken),
            _ => self.start_stream(),
        }
    }

    /// Leaves the answer alone from here on: the original is to be sent. There
    /// is none of a batch that has to be put together and for which memory is
    /// refused, nor of one that was not judged for a client that takes SSZ only:
    /// `State::Cut` then; or `State::CollectingPart`, if its head was
    /// still to come: as after `HeadAction::Hold`, and its end is a failure.
    ///
    /// # Errors
    /// [`Misuse`] once the answer is decided.
    pub fn give_up(&mut self, reason: Mode) -> Result<(), Misuse> {
        self.stop_waiting();
        match &mut self.phase {
            // the head that was to be judged is sent to nobody
            Phase::Replacing(_) => return Ok(()),
            Phase::AwaitingHead | Phase::AwaitingPart(_) | Phase::AwaitingUpdate => {
                // a judgement that was not finished has no say
                self.head_edits.clear();
                self.varies = false;
            }
            _ => {}
        }
        self.allows(Event::GiveUp)?;
        if matches!(&self.phase, Phase::Collecting(whole) if whole.most.is_some()) {
            return self.is_too_long_to_send().map(|_| ());
        }
        if matches!(&self.phase, Phase::Coding(whole) if whole.measured.is_some()) {
            return self.refuse_measured();
        }
        if self.must_not_pass() {
            self.move_on(Event::Fail, |_| Phase::Cut)?;
            self.mode = reason;
            self.refuse_fill();
            return Ok(());
        }
        if self.has_lost_original() {
            return self.fail(reason);
        }
        if self.open_what_was_held().is_err() {
            return self.cut_short();
        }
        match &mut self.phase {
            Phase::Decoding(_) => {
                self.forget_look_up();
                self.move_on(Event::GiveUp, |_| Phase::AwaitingHead)?;
                return self.ask_for_allowed().map(|_| ());
            }
            // the node is asked for a part, which must not look like all
            Phase::AwaitingPart(mixed) => mixed.is_unjudged = true,
            // a piece that came only in part is not the caller's to repeat
            Phase::Collecting(whole) | Phase::Coding(whole) => {
                let received = usize::try_from(self.received).unwrap_or(usize::MAX);
                whole.held.body.truncate(received);
            }
            _ => {}
        }
        self.move_on(Event::GiveUp, Phase::given_up)?;
        self.mode = reason;
        self.refuse_fill();
        Ok(())
    }

    /// The host saw the end of the body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end(&mut self) -> Result<EndAction, Misuse> {
        let whole = match &mut self.phase {
            Phase::Collecting(whole) => whole,
            Phase::CollectingPart(_) => return self.end_of_part(),
            Phase::Replacing(_) => {
                self.move_on(Event::End, Phase::ended)?;
                return Ok(EndAction::Send);
            }
            _ => return Err(self.misuse(Event::End)),
        };
        if whole.measured.is_none() {
            // it is no longer than it may be
            whole.most = None;
        }
        if whole.is_short() {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        if whole.is_of_unknown_length() && !whole.held.is_whole() && whole.left_alone.is_none() {
            if whole.is_below_gate(&self.config, whole.held.body.len()) {
                self.give_up(Mode::TooSmall)?;
                return Ok(EndAction::Send);
            }
            return Ok(match self.start_stream()? {
                PieceAction::Stream => EndAction::Stream,
                _ => EndAction::Send,
            });
        }
        let work = whole.work(&self.config);
        whole.make_room_for_code();
        self.move_on(Event::End, Phase::ended)?;
        Ok(EndAction::Code {
            off_loop: work > off_loop_length(self.config.comp_level),
        })
    }

    /// The same where [`end`](Self::end) has failed: what is whole is sent as
    /// it came.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end_without_coding(&mut self) -> Result<EndAction, Misuse> {
        let is_short = match &self.phase {
            Phase::Replacing(_) => return self.end(),
            Phase::Collecting(whole) | Phase::Coding(whole) => whole.is_short(),
            _ => self
                .mixed()
                .is_some_and(|mixed| mixed.is_cut || mixed.held.is_short()),
        };
        if is_short {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        self.give_up(Mode::Failed)?;
        Ok(EndAction::Send)
    }

    /// The node has broken its response off while the head is held. What does not depend
    /// on its end is sent: the answers to a split batch, and what takes the place of the
    /// node's body.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held.
    pub fn end_early(&mut self) -> Result<EndAction, Misuse> {
        match &self.phase {
            Phase::CollectingPart(_) => self.end_of_cut_part(),
            Phase::Replacing(_) => self.end(),
            _ => {
                self.cut_short()?;
                Ok(EndAction::Fail)
            }
        }
    }

    /// The node went away while the head is held, or while its body streams.
    /// What was collected is of no use to anybody and is freed.
    ///
    /// # Errors
    /// [`Misuse`] unless the head is held or the body streams.
    pub fn cut_short(&mut self) -> Result<(), Misuse> {
        self.move_on(Event::CutShort, |_| Phase::Cut)?;
        self.mode = Mode::Cut;
        self.storing.fill = None;
        Ok(())
    }
}
