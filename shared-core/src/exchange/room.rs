//! Memory for a held body, and for what is made of it.

use super::Exchange;
use crate::faults::{injected, Fault};
use crate::gzip::stream;
use crate::memory;
use crate::mode::Mode;

impl Exchange {
    /// Room for a body that has grown to `length`, or the reason to stop.
    pub(super) fn make_room(&mut self, length: usize) -> Result<(), Mode> {
        let most = if self.in_window() {
            self.config.hold.min(self.config.max_oneshot)
        } else {
            self.config.max_oneshot
        };
        if memory::is_short() {
            return Err(Mode::Memory);
        }
        match self.declared {
            // More than was declared: not ours to repair.
            Some(declared) if length > declared => Err(Mode::Failed),
            Some(_) => Ok(()),
            None if length as u64 > most => Err(Mode::Encoded),
            None => self.reserve_more(length, usize::try_from(most).unwrap_or(usize::MAX)),
        }
    }

    /// Takes the memory for a body of known `length`: itself and, for the time
    /// of coding, its other form.
    pub(super) fn reserve(&mut self, length: usize) -> Result<(), Mode> {
        self.claim(length, length)?;
        self.grow_body(length)
    }

    /// The same for a body that has grown to `length` and may go on to `most`.
    /// Its room grows in steps, so that it is copied seldom.
    ///
    /// One that is held in the hope of its end may have to be streamed instead,
    /// so there is room for an encoder beside what is held, or no more is.
    fn reserve_more(&mut self, length: usize, most: usize) -> Result<(), Mode> {
        let room = match self.body.capacity() {
            enough if enough >= length => enough,
            little => length.max(little.saturating_mul(2).min(most)),
        };
        if self.in_window() {
            let encoder = stream::size(self.config.stream_level);
            match self.claim(room, length.max(encoder)) {
                Ok(()) => return self.grow_body(room),
                // what is held so far can be streamed
                Err(reason) if self.claim(self.body.capacity(), encoder).is_ok() => {
                    return Err(reason)
                }
                // there is no encoder to be had, but one shot may do
                Err(_) => {}
            }
        }
        self.claim(room, length)?;
        self.grow_body(room)
    }

    /// The same for the node's part of a batch.
    pub(super) fn make_room_for_part(&mut self, length: usize) -> Result<(), Mode> {
        let most = usize::try_from(self.config.max_oneshot).unwrap_or(usize::MAX);
        if self.body.capacity() >= length {
            return self.claim(self.body.capacity(), length);
        }
        let twice = self.body.capacity().saturating_mul(2);
        let room = self.declared.unwrap_or(twice).min(most).max(length);
        if self.claim(room, room).is_ok() {
            return self.grow_body(room);
        }
        self.reserve(length)
    }

    /// Takes memory for the body and what is made of it.
    pub(super) fn claim(&mut self, body: usize, beside: usize) -> Result<(), Mode> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let needed = body.checked_add(beside).ok_or(Mode::Memory)?;
        match &mut self.reservation {
            Some(reservation) => reservation.grow_to(needed, limit).then_some(()),
            None => {
                self.reservation = self.config.process.budget.reserve(needed, limit);
                self.reservation.as_ref().map(|_| ())
            }
        }
        .ok_or(Mode::Memory)
    }

    fn grow_body(&mut self, room: usize) -> Result<(), Mode> {
        let more = room.saturating_sub(self.body.len());
        if self.body.try_reserve_exact(more).is_err() || injected(Fault::FailAlloc) {
            return Err(Mode::Memory);
        }
        Ok(())
    }
}
