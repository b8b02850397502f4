//! A whole body, coded or decoded at once.

use super::transitions::{Event, State};
use super::{Exchange, HeadEdit, Misuse, Task};
use crate::gzip::splice::Body;
use crate::gzip::{inflate, oneshot};
use crate::memory;
use crate::mode::Mode;

impl Exchange {
    /// Runs the coder. May take milliseconds for each megabyte. In
    /// [`State::Cut`] there is nothing to send.
    ///
    /// # Errors
    /// [`Misuse`] unless the body is complete.
    pub fn code(&mut self) -> Result<(), Misuse> {
        if self.state != State::Coding {
            return Err(self.misuse(Event::Coded));
        }
        let is_there = !memory::is_short();
        let coded = match self.task {
            Task::Gzip { .. } | Task::Gunzip if !is_there => Err(Mode::Memory),
            Task::Gzip { .. } => self.gzip(),
            Task::Gunzip => self.gunzip(),
            Task::Replace => return self.move_on(Event::Coded),
            Task::Decode => {
                if is_there {
                    self.decode();
                }
                if self.status == 0 {
                    // it goes to the node
                    self.forget_look_up();
                    return self.move_on(Event::Miss);
                }
                return self.move_on(Event::Coded);
            }
            Task::Merge { gunzip, .. } => {
                if self.merge(gunzip).is_err() {
                    // a part of the answer must not look like all of it
                    return self.cut_short();
                }
                self.mode = Mode::Merged;
                return self.move_on(Event::Coded);
            }
        };
        match coded {
            Ok((body, mode)) => {
                self.body = body;
                self.recoded(self.sent_length(), mode);
            }
            Err(reason) => {
                self.mode = reason;
                if let Some(fill) = self.fill.as_mut().filter(|_| is_there && !self.apart) {
                    // what was not worth coding may be worth keeping
                    fill.build_from_once(&self.body);
                }
                if self.declared.is_none() && self.is_whole() {
                    self.set_content_length(self.body.len());
                }
            }
        }
        let length = self.sent_length();
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(length);
        }
        self.move_on(Event::Coded)
    }

    /// What there is to send.
    fn sent_length(&self) -> usize {
        let stored = self.stored.as_ref().map_or(0, Body::length);
        usize::try_from(stored).map_or(usize::MAX, |stored| stored + self.body.len())
    }

    /// Room for the coded body, made by the thread that collected the body.
    pub(super) fn make_room_for_code(&mut self) {
        if matches!(self.task, Task::Gzip { .. }) {
            // refused: the coder will find that out
            let _ = self.coded.try_reserve_exact(self.gzip_limit());
        }
    }

    fn gzip(&mut self) -> Result<(Vec<u8>, Mode), Mode> {
        if self.body.is_empty() || self.is_below_gate(self.body.len() as u64) {
            return Err(Mode::TooSmall);
        }
        let limit = self.gzip_limit();
        if let Some(stored) = self.gzip_as_stored(limit) {
            self.coded = Vec::new();
            self.stored = Some(stored);
            return Ok((Vec::new(), Mode::Oneshot));
        }
        let room = std::mem::take(&mut self.coded);
        match oneshot::gzip_into(&self.body, self.config.comp_level, limit, room) {
            Ok(body) => Ok((body, Mode::Oneshot)),
            Err(oneshot::OneshotError::NotSmaller) => Err(Mode::NotSmaller),
            Err(_) => Err(Mode::Failed),
        }
    }

    /// The answer as its copies will be sent, so that it is compressed once,
    /// and kept once.
    fn gzip_as_stored(&mut self, limit: usize) -> Option<Body> {
        let fill = self.fill.as_mut().filter(|_| !self.apart)?;
        // the room that was made for the coded body
        let (entry, id) = fill.build_from(&self.body, &mut self.coded)?;
        let coded = entry.gzip(&id)?;
        (coded.is_gzip() && coded.length() < limit as u64).then_some(coded)
    }

    /// What the coded body must be shorter than.
    fn gzip_limit(&self) -> usize {
        match self.task {
            Task::Gzip {
                at_any_length: true,
            } => oneshot::bound(self.body.len()),
            _ => self.body.len(),
        }
    }

    /// Decodes into what the trailer claims, and only if that was not enough
    /// (several members) into as much as one body may take.
    pub(super) fn gunzip(&mut self) -> Result<(Vec<u8>, Mode), Mode> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let most = usize::try_from(self.config.max_oneshot).unwrap_or(usize::MAX);
        for cap in [inflate::claimed_length(&self.body).min(most), most] {
            let needed = self.body.len().checked_add(cap).ok_or(Mode::Memory)?;
            if let Some(reservation) = &mut self.reservation {
                if !reservation.grow_to(needed, limit) {
                    return Err(Mode::Memory);
                }
            }
            match inflate::gunzip(&self.body, cap) {
                Ok(body) => {
                    if let Some(fill) = self.fill.as_mut().filter(|_| !self.apart) {
                        fill.decoded();
                        fill.build_from(&body, &mut self.coded);
                    }
                    return Ok((body, Mode::Inflate));
                }
                Err(inflate::InflateError::TooLarge) => {}
                Err(_) => return Err(Mode::Failed),
            }
        }
        Err(Mode::Encoded)
    }

    fn recoded(&mut self, length: usize, mode: Mode) {
        self.mode = mode;
        self.head_edits.push(match mode {
            Mode::Oneshot => HeadEdit::set("Content-Encoding", b"gzip"),
            _ => HeadEdit::remove("Content-Encoding"),
        });
        self.set_content_length(length);
        self.head_edits.append(&mut self.recoded_edits);
    }

    pub(super) fn set_content_length(&mut self, length: usize) {
        self.head_edits.push(HeadEdit::set(
            "Content-Length",
            length.to_string().into_bytes(),
        ));
    }
}

/// Bodies longer than this are coded off the event loop, in bytes: what takes
/// about as long at each of libdeflate's levels as 256 KiB do at the lower
/// ones, 2 to 3 ms.
pub(super) fn off_loop_length(level: u8) -> usize {
    match level {
        0..=6 => 256 << 10,
        7..=9 => 64 << 10,
        _ => 8 << 10,
    }
}
