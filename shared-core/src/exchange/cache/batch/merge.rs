//! Merge of the node's responses to a split batch with the stored ones. The node's responses
//! are buffered until the last one is complete, and are then merged in the order of the
//! request. An array that is too long to be buffered is streamed behind the stored responses,
//! which JSON-RPC allows. If the node's response is unusable or truncated, the client receives
//! errors in place of the incomplete responses: the others and the stored ones are sent in any
//! case.

use crate::cache::entry::batch::BatchCoding;
use crate::cache::reason::Reason;
use crate::exchange::cache::batch::assembly::AssembledBatch;
use crate::exchange::cache::batch::split::{OutOfMemory, UnusableBatchResponseReason};
use crate::exchange::machine::actions::{BodyEndAction, BodyPieceAction, HostMisuse};
use crate::exchange::machine::message_head::{
    status_has_no_body, HeadEdit, Header, ResponseHead, ResponseProperties,
};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::BufferedBody;
use crate::negotiate::media_type;
use crate::request_coding::BodyContentCoding;
use crate::response_mode::ResponseMode;
use crate::transcode::JSON_MEDIA_TYPE;

impl Exchange {
    /// Whether the response with this status is merged with stored responses.
    pub(in crate::exchange) fn can_merge_response(&self, status: u16) -> bool {
        let ExchangePhase::AwaitingPart(mixed) = &self.phase else {
            return false;
        };
        // nothing is merged into an upgrade, or into a bodiless response to the whole batch
        status != 101 && !(mixed.is_forwarded_whole() && status_has_no_body(status))
    }

    /// Reads the head of the node's response to the missing calls.
    pub(in crate::exchange) fn read_upstream_part_head<'a, I>(
        &mut self,
        response: &ResponseProperties<'_>,
        head: &ResponseHead<I>,
    ) where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let ExchangePhase::AwaitingPart(mixed) = &mut self.phase else {
            return;
        };
        self.varies = true;
        response.add_vary_edits(head.host_writes_vary, &mut self.head_edits);
        mixed.buffered = BufferedBody {
            borrowed: std::mem::take(&mut mixed.buffered.borrowed),
            ..BufferedBody::for_response_head(head)
        };
        response.add_reencoded_body_edits(&mut mixed.buffered.recoded_edits);
        mixed.node_status = head.status;
        if status_has_no_body(head.status) {
            mixed.status = 200;
            // the response ends with its head; Content-Length describes another body
            mixed.buffered.delimited = true;
            mixed.buffered.declared = None;
        } else if matches!(head.status, 205 | 206) && !mixed.is_forwarded_whole() {
            // the merged response has all of its parts, and another body
            mixed.status = 200;
        } else if head.status == 202 && mixed.has_only_forwarded_notifications() {
            // the status applies to the notifications; the other calls have their responses
            mixed.status = 200;
        }
        mixed.is_json = response.content_type.is_some_and(media_type::is_json_type);
        mixed.coding = BodyContentCoding::from_response_headers(head.fields.clone());
        if mixed.coding == BodyContentCoding::Other {
            mixed.lost = Some(UnusableBatchResponseReason::Unreadable);
        }
        if response.no_transform {
            mixed.merged_coding = BatchCoding::Identity;
        }
        let failed = self.lookup_findings.upstream_failure;
        if failed.is_some_and(|it| it.failure.occurred_before_response_head())
            && !mixed.is_forwarded_whole()
        {
            // the host's own response, in place of the node's
            mixed.node_status = 0;
            mixed.lost = Some(UnusableBatchResponseReason::Unreadable);
        }
    }

    /// Buffers a piece of the node's response to the missing calls.
    pub(in crate::exchange) fn buffer_upstream_part_piece(
        &mut self,
        piece: &[u8],
    ) -> Result<BodyPieceAction, HostMisuse> {
        let ExchangePhase::BufferingPart(mixed) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Piece));
        };
        if mixed.is_unjudged || mixed.lost.is_some() {
            return Ok(BodyPieceAction::Buffered);
        }
        let most = mixed.max_buffered_bytes(&self.route_config);
        let buffered = &mut mixed.buffered;
        let length = buffered.body.len() + piece.len();
        let room = if length as u64 > most {
            Err(ResponseMode::Memory)
        } else {
            buffered.reserve_split_batch_response(&self.route_config, length, most)
        };
        if let Err(reason) = room {
            if !mixed.can_stream_after_stored() {
                mixed.discard_upstream_part(UnusableBatchResponseReason::Length);
                self.discard_fill();
                return Ok(BodyPieceAction::Buffered);
            }
            // until two bytes of the array are known the response can't be streamed
            let begun = mixed.buffered.body.iter();
            let begun = begun.filter(|byte| !byte.is_ascii_whitespace());
            if begun.take(2).count() == 2 {
                self.send_original_response(reason)?;
                return Ok(BodyPieceAction::SendOriginal);
            }
        }
        mixed.buffered.body.extend_from_slice(piece);
        self.received = mixed.buffered.body.len() as u64;
        Ok(BodyPieceAction::Buffered)
    }

    /// Ends the node's response to the missing calls.
    pub(in crate::exchange) fn end_upstream_part(&mut self) -> Result<BodyEndAction, HostMisuse> {
        let ExchangePhase::BufferingPart(mixed) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::End));
        };
        if mixed.is_unjudged {
            self.abort_response()?;
            return Ok(BodyEndAction::Fail);
        }
        if mixed.lost.is_none() {
            mixed.is_cut |= mixed.buffered.is_truncated() || !mixed.buffered.is_complete();
        }
        let own = mixed.upstream_bytes_to_decode(&self.route_config);
        // the body is complete
        let buffered = &mut mixed.buffered;
        buffered.shrink_reservation(buffered.body.capacity() + buffered.body.len());
        let work = (own as u64).saturating_add(mixed.stored_bytes_to_recode());
        let coding = mixed.merged_coding.content_coding();
        self.apply_transition(ExchangeEvent::End, ExchangePhase::into_body_ended)?;
        Ok(BodyEndAction::Code {
            off_loop: work > self.max_bytes_on_event_loop(coding),
        })
    }

    /// Ends a truncated response of the node: its complete responses are sent, and errors for the
    /// other calls.
    pub(in crate::exchange) fn end_truncated_upstream_part(
        &mut self,
    ) -> Result<BodyEndAction, HostMisuse> {
        if let ExchangePhase::BufferingPart(mixed) = &mut self.phase {
            mixed.is_cut = true;
        }
        self.end_upstream_part()
    }

    /// Puts the stored responses in front of the node's array, which is streamed from here on, and
    /// gives up the request's order.
    pub(in crate::exchange) fn send_stored_then_stream(&mut self) -> Result<(), OutOfMemory> {
        let (ExchangePhase::BufferingPart(mixed) | ExchangePhase::Merging(mixed)) = &mut self.phase
        else {
            return Ok(());
        };
        if mixed.lost.is_some() || !mixed.can_stream_after_stored() {
            // stored responses can't precede an encoded body, a head that was not read, or a body
            // that is no array
            return Err(OutOfMemory);
        }
        // the caller does not repeat a piece that was buffered in part
        let received = usize::try_from(self.received).unwrap_or(usize::MAX);
        mixed.buffered.body.truncate(received);
        let Some(opened) = mixed.prepend_stored_responses()? else {
            return Ok(());
        };
        let buffered = &mut mixed.buffered;
        let more = opened.len() - buffered.body.len();
        if let Some(declared) = buffered.declared {
            let length = declared.saturating_add(more);
            self.head_edits.push(HeadEdit::set_content_length(length));
        }
        buffered.body = opened;
        self.head_edits.append(&mut buffered.recoded_edits);
        Ok(())
    }

    /// Merges the node's responses with the stored ones into the body for the client. If memory is
    /// refused the exchange is aborted: a part of the response must not look like all of it.
    pub(in crate::exchange) fn merge_batch(&mut self) -> Result<(), HostMisuse> {
        self.decode_upstream_part();
        let assembled = match &self.phase {
            ExchangePhase::Merging(mixed) => self.assemble_batch_response(mixed),
            _ => Err(OutOfMemory),
        };
        let Ok(assembled) = assembled else {
            return self.abort_response();
        };
        let ExchangePhase::Merging(mixed) = &mut self.phase else {
            return Err(self.misuse_for_event(ExchangeEvent::Compressed));
        };
        let buffered = &mut mixed.buffered;
        if mixed.coding != BodyContentCoding::None {
            self.head_edits
                .push(HeadEdit::remove_header("Content-Encoding"));
        }
        let merged = match assembled {
            AssembledBatch::Unchanged => {
                mixed.status = 0;
                if mixed.coding != BodyContentCoding::None {
                    self.head_edits.append(&mut buffered.recoded_edits);
                }
                let length = buffered.body.len();
                self.head_edits.push(HeadEdit::set_content_length(length));
                None
            }
            AssembledBatch::Merged(merged, is_of_node) => {
                // an empty body has no media type
                if buffered.body.is_empty() || !is_of_node && !mixed.is_json {
                    self.head_edits
                        .push(HeadEdit::set_header("Content-Type", JSON_MEDIA_TYPE));
                }
                if mixed.node_status == 206 && mixed.status == 200 {
                    self.head_edits
                        .push(HeadEdit::remove_header("Content-Range"));
                }
                if let Some(coding) = merged.content_coding() {
                    self.head_edits.push(HeadEdit::set_content_encoding(coding));
                }
                let length = usize::try_from(merged.byte_length()).unwrap_or(usize::MAX);
                self.head_edits.push(HeadEdit::set_content_length(length));
                self.head_edits.append(&mut buffered.recoded_edits);
                buffered.body = Vec::new();
                Some(merged)
            }
        };
        self.response_mode = ResponseMode::Merged;
        self.apply_transition(ExchangeEvent::Compressed, |phase| phase.into_ready(merged))
    }

    /// Decodes the node's response, if it is encoded, and builds the entries that are stored.
    fn decode_upstream_part(&mut self) {
        let ExchangePhase::Merging(mixed) = &mut self.phase else {
            return;
        };
        let fill = &mut self.storing.fill;
        if mixed.lost.is_none() && mixed.coding != BodyContentCoding::None {
            match mixed.decode_upstream_body(&self.route_config) {
                Ok(body) => {
                    mixed.buffered.body = body;
                    if let Some(fill) = fill {
                        fill.mark_response_decoded();
                    }
                }
                Err(loss) => mixed.discard_upstream_part(loss),
            }
        }
        if mixed.is_cut {
            self.cache_reason = Reason::Cut;
            return self.discard_fill();
        }
        match (&mixed.lost, fill) {
            (None, Some(fill)) => drop(fill.build_from_body(&mixed.buffered.body, &mut Vec::new())),
            (None, None) => {}
            (Some(_), _) => self.discard_fill(),
        }
    }
}
