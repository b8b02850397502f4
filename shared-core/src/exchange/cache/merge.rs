//! The node's part of a batch, and the stored one. The node's answers are held
//! until the last one is there, and then all are put into the order of the
//! request. Where they can't be read, or are too long to be held, the stored
//! answers go in front of them, which JSON-RPC allows.

use super::part::{Member, Mixed, Refused};
use crate::cache::entry::batch::Element;
use crate::exchange::actions::{EndAction, Misuse, PieceAction};
use crate::exchange::head::{Coding, HeadEdit, Response, ResponseHead};
use crate::exchange::held::{work_of_gunzip, Held};
use crate::exchange::machine::Exchange;
use crate::exchange::phase::Phase;
use crate::exchange::transitions::Event;
use crate::gzip::oneshot::off_loop_length;
use crate::gzip::splice::Body;
use crate::jsonrpc::ids::by_id;
use crate::jsonrpc::response;
use crate::jsonrpc::response::ResponseError;
use crate::mode::Mode;
use crate::transcode::JSON;

impl Exchange {
    /// Whether the node says that it has nothing to say, as it may of notifications
    /// (JSON-RPC over HTTP has 202 and 204 for them): the other answers are there.
    pub(in crate::exchange) fn was_only_notified(&self, status: u16) -> bool {
        let Phase::AwaitingPart(mixed) = &self.phase else {
            return false;
        };
        matches!(status, 202 | 204) && mixed.is_all_stored()
    }

    /// The head of the node's answer to what was missing.
    pub(in crate::exchange) fn judge_part<I>(
        &mut self,
        response: &Response<'_>,
        head: &ResponseHead<I>,
    ) {
        let Phase::AwaitingPart(mixed) = &mut self.phase else {
            return;
        };
        self.varies = true;
        response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        mixed.held = Held {
            borrowed: std::mem::take(&mut mixed.held.borrowed),
            ..Held::of(head)
        };
        response.recoded_edits(&mut mixed.held.recoded_edits);
        if head.status != 200 {
            mixed.status = 200;
            // a 204 ends with its head
            mixed.held.delimited |= head.status == 204;
        }
        mixed.coding = response.coding;
        mixed.gzip &= !response.no_transform;
    }

    /// A piece of the node's answer to what was missing.
    pub(in crate::exchange) fn piece_of_part(
        &mut self,
        piece: &[u8],
    ) -> Result<PieceAction, Misuse> {
        let Phase::CollectingPart(mixed) = &mut self.phase else {
            return Err(self.misuse(Event::Piece));
        };
        if mixed.coding == Coding::Other || mixed.is_lost {
            return Ok(PieceAction::Taken);
        }
        let is_bounded = mixed.most().is_some();
        let held = &mut mixed.held;
        let length = held.body.len() + piece.len();
        let room = if length as u64 > self.config.max_oneshot {
            Err(Mode::Memory)
        } else {
            held.make_room_for_part(&self.config, length)
        };
        if room.is_err() && is_bounded {
            // each of its answers may be longer than it may be
            *held = Held {
                borrowed: std::mem::take(&mut held.borrowed),
                recoded_edits: std::mem::take(&mut held.recoded_edits),
                ..Held::default()
            };
            mixed.is_lost = true;
            self.refuse_fill();
            return Ok(PieceAction::Taken);
        }
        // before that it is not known how to give up
        let begun = held.body.iter().filter(|byte| !byte.is_ascii_whitespace());
        if let (Err(reason), 2..) = (room, begun.take(2).count()) {
            self.give_up(reason)?;
            return Ok(PieceAction::GiveUp);
        }
        held.body.extend_from_slice(piece);
        self.received = held.body.len() as u64;
        Ok(PieceAction::Taken)
    }

    /// The end of the node's answer to what was missing.
    pub(in crate::exchange) fn end_of_part(&mut self) -> Result<EndAction, Misuse> {
        let Phase::CollectingPart(mixed) = &mut self.phase else {
            return Err(self.misuse(Event::End));
        };
        let held = &mut mixed.held;
        let is_whole = mixed.is_lost || !held.is_short() && held.is_whole();
        if mixed.coding == Coding::Other || !is_whole {
            self.cut_short()?;
            return Ok(EndAction::Fail);
        }
        let own = match mixed.coding {
            Coding::Gzip => work_of_gunzip(&held.body, &self.config),
            _ => held.body.len(),
        };
        // there will be no more of it
        held.shrink_to(held.body.capacity() + held.body.len());
        let work = (own as u64).saturating_add(mixed.work());
        self.move_on(Event::End, Phase::ended)?;
        Ok(EndAction::Code {
            off_loop: work > off_loop_length(self.config.comp_level) as u64,
        })
    }

    /// Gives up on an order, not on the stored answers.
    pub(in crate::exchange) fn open_what_was_held(&mut self) -> Result<(), Refused> {
        let (Phase::CollectingPart(mixed) | Phase::Merging(mixed)) = &mut self.phase else {
            return Ok(());
        };
        if mixed.coding == Coding::Gzip || mixed.most().is_some() {
            // nothing can be put in front of coded answers, or of what is not judged
            return Err(Refused);
        }
        // a piece that came only in part is not the caller's to repeat
        let received = usize::try_from(self.received).unwrap_or(usize::MAX);
        mixed.held.body.truncate(received);
        let Some(opened) = mixed.opened()? else {
            return Ok(());
        };
        let held = &mut mixed.held;
        let more = opened.len() - held.body.len();
        if let Some(declared) = held.declared {
            let length = declared.saturating_add(more);
            self.head_edits.push(HeadEdit::content_length(length));
        }
        held.body = opened;
        self.head_edits.append(&mut held.recoded_edits);
        Ok(())
    }

    /// Puts the answers together. If that can't be, there is nothing to send: a
    /// part of the answer must not look like all of it.
    pub(in crate::exchange) fn merge(&mut self) -> Result<(), Misuse> {
        let Ok(merged) = self.decode_part() else {
            return self.cut_short();
        };
        let Phase::Merging(mixed) = &mut self.phase else {
            return Err(self.misuse(Event::Coded));
        };
        let held = &mut mixed.held;
        match &merged {
            // the node's own answer to all of it
            None => {
                mixed.status = 0;
                let length = held.body.len();
                self.head_edits.push(HeadEdit::content_length(length));
            }
            Some(merged) => {
                if held.body.is_empty() {
                    // of nothing there is no type
                    self.head_edits.push(HeadEdit::set("Content-Type", JSON));
                }
                if merged.is_gzip() {
                    self.head_edits
                        .push(HeadEdit::set("Content-Encoding", b"gzip"));
                }
                let length = usize::try_from(merged.length()).unwrap_or(usize::MAX);
                self.head_edits.push(HeadEdit::content_length(length));
                self.head_edits.append(&mut held.recoded_edits);
                held.body = Vec::new();
            }
        }
        self.mode = Mode::Merged;
        self.move_on(Event::Coded, |phase| phase.coded(merged))
    }

    fn decode_part(&mut self) -> Result<Option<Body>, Refused> {
        let Phase::Merging(mixed) = &mut self.phase else {
            return Err(Refused);
        };
        let fill = &mut self.storing.fill;
        if mixed.coding == Coding::Gzip && !mixed.is_lost {
            // of what can't be decoded nobody can say what is missing
            mixed.held.body = mixed
                .held
                .gunzip(&self.config, self.config.max_oneshot)
                .map_err(|_| Refused)?;
            self.head_edits.push(HeadEdit::remove("Content-Encoding"));
            if let Some(fill) = fill {
                fill.decoded();
            }
        }
        if let Some(fill) = fill {
            fill.build_from(&mixed.held.body, &mut Vec::new());
        }
        match &self.phase {
            Phase::Merging(mixed) => self.merged(mixed),
            _ => Err(Refused),
        }
    }

    /// The node's answers and the stored ones together; `None`: the node's
    /// answer is none of a batch, and stands for the whole.
    fn merged(&self, mixed: &Mixed) -> Result<Option<Body>, Refused> {
        let answer = &mixed.held.body[..];
        let is_long = |most: u64| mixed.is_lost || answer.len() as u64 > most;
        let all_too_long = mixed.most().is_some_and(is_long);
        let answers = match response::parse_batch(answer) {
            Ok(answers) => answers,
            Err(ResponseError::OutOfMemory) => return Err(Refused),
            // as it should, if it was notified only
            Err(_) if answer.trim_ascii().is_empty() && mixed.is_all_stored() => Vec::new(),
            Err(_) if all_too_long => Vec::new(),
            Err(_) => return mixed.prefixed(),
        };
        let mut by_id = by_id();
        by_id.try_reserve(answers.len()).map_err(|_| Refused)?;
        by_id.extend(
            answers
                .iter()
                .map(|one| (&answer[one.id.clone()], &answer[one.span.clone()])),
        );
        let is_read = by_id.len() == answers.len();
        if !is_read && !all_too_long {
            return mixed.prefixed();
        }
        let too_long = self.config.policy().map(|policy| &**policy.too_long());
        let mut elements: Vec<Element<'_>> = Vec::new();
        elements
            .try_reserve(mixed.places.len() + answers.len())
            .map_err(|_| Refused)?;
        elements.extend(mixed.places.iter().filter_map(|place| match place {
            Member::Stored(entry, id) => {
                // asked all the same, by a body of the operator's
                by_id.remove(&id[..]);
                Some(Element::Stored(entry, id))
            }
            Member::Denied(entry, id) => Some(Element::Stored(entry, id)),
            // what can't be read, or could not be held, is not judged
            Member::Asked(id, _) if all_too_long && (!is_read || answers.is_empty()) => {
                let too_long = too_long?;
                by_id.remove(&id[..]);
                Some(Element::Stored(too_long, id))
            }
            Member::Asked(id, most) => {
                let text = by_id.remove(&id[..])?;
                let is_long = most.is_some_and(|most| text.len() as u64 > most);
                match too_long.filter(|_| is_long) {
                    Some(too_long) => Some(Element::Stored(too_long, id)),
                    None => Some(Element::Text(text)),
                }
            }
        }));
        // what nobody asked for is not ours to drop
        elements.extend(
            answers
                .iter()
                .filter(|one| by_id.contains_key(&answer[one.id.clone()]))
                .map(|one| Element::Text(&answer[one.span.clone()])),
        );
        self.batch_of(&elements, mixed.gzip)
            .map(Some)
            .ok_or(Refused)
    }
}
