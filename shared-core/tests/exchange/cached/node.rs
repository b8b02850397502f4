//! The node of the model: its responses and their delivery.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{json, Value};
use sszip_core::exchange::transitions::ExchangeState;
use sszip_core::exchange::{BodyEndAction, BodyPieceAction, Exchange, ResponseHeadAction};
use sszip_core::gzip::stream::FlushMode;

use super::steps::{Answer, Outcome, CALLS};
use super::world::{CacheModel, ModelRequest};
use crate::setup::response_head;

impl CacheModel {
    /// Delivers the node's response, up to the point where only the end is left to be sent.
    pub fn answer(&mut self, n: usize, how: Answer) {
        let at_node: Vec<usize> = (0..self.open.len())
            .filter(|n| !self.open[*n].waits)
            .collect();
        if at_node.is_empty() {
            return;
        }
        let mut open = self.open.remove(at_node[n % at_node.len()]);
        let (body, fields) = self.node(&open, how);
        let (status, is_cacheable) = match how.outcome {
            Outcome::Status(status) => (status, false),
            outcome => (200, outcome != Outcome::NotStored),
        };
        let mut fields: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(n, v)| (n.as_bytes(), &v[..])).collect();
        if !is_cacheable {
            fields.push((b"Set-Cookie", b"a=b"));
        }
        let action = open
            .exchange
            .evaluate_response_head(response_head(
                status,
                how.declared.then_some(body.len() as u64),
                &fields,
            ))
            .unwrap();
        let pieces = match how.outcome {
            Outcome::Truncated => &body[..body.len() / 2],
            _ => &body[..],
        };
        let Some(received) = client_body(
            &mut open.exchange,
            action,
            pieces,
            how.piece,
            how.outcome == Outcome::Truncated,
        ) else {
            return;
        };
        let received = open.decode_received_body(received);
        if how.outcome == Outcome::Complete && open.forwarded != b"[]" {
            self.check_body_of_node(&open, &received);
        } else if status == 200 && !open.is_batch {
            assert_eq!(received, body);
        }
        if let Some(fill) = open.exchange.take_complete_fill() {
            assert!(is_cacheable);
            self.unsent.push((open.exchange, fill));
        }
    }

    /// Returns the node's response to the forwarded request.
    fn node(
        &mut self,
        open: &ModelRequest,
        how: Answer,
    ) -> (Vec<u8>, Vec<(&'static str, Vec<u8>)>) {
        let caller = self.distinguished_by_node(open.caller);
        let forwarded: &RawValue = serde_json::from_slice(&open.forwarded).unwrap();
        let calls: Vec<&RawValue> = if open.is_batch {
            serde_json::from_str(forwarded.get()).unwrap()
        } else {
            vec![forwarded]
        };
        self.count += 1;
        let mut answers = Vec::new();
        for raw_call in calls {
            let members: BTreeMap<&str, &RawValue> = serde_json::from_str(raw_call.get()).unwrap();
            let id = members["id"].get();
            // a batch may contain the same call twice: either index is correct
            let at = open.ids.iter().position(|own| own == id).unwrap();
            let call = open.calls[at];
            let params: Value =
                serde_json::from_str(&members["params"].get().to_ascii_lowercase()).unwrap();
            let own: Value = serde_json::from_str(&CALLS[call].1[0].to_ascii_lowercase()).unwrap();
            assert_eq!(
                (members["method"].get().trim_matches('"'), params),
                (CALLS[call].0, own)
            );
            let filler = "x".repeat([0, 50, 3000][self.count % 3]);
            let result = json!([
                CALLS[call].0,
                call,
                caller.chain,
                caller.user,
                caller.origin,
                self.count,
                filler
            ])
            .to_string();
            let mut record = |text: &str| {
                let responses = self.responses.entry((call, caller)).or_default();
                responses.push((open.dispatched_at, text.to_owned()));
            };
            answers.push(if how.outcome == Outcome::Error {
                let error = format!(r#"{{"code":1,"message":{result}}}"#);
                record(&error);
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
            } else {
                if how.outcome == Outcome::Complete {
                    record(&result);
                }
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            });
        }
        if how.reversed {
            answers.reverse();
        }
        let body = if open.is_batch {
            format!("[{}]\n", answers.join(","))
        } else {
            answers[0].clone() + "\n"
        };
        let mut fields = vec![("Content-Type", b"application/json".to_vec())];
        if let (1 | 2, Some(origin)) = (caller.chain, caller.origin) {
            fields.push(("Access-Control-Allow-Origin", vec![b'o', b'0' + origin]));
        }
        if caller.chain == 1 {
            fields.push(("Vary", b"Origin".to_vec()));
        }
        (body.into_bytes(), fields)
    }
}

/// Returns the body that the client receives of a response in pieces; `None` if it is truncated
/// or aborted.
fn client_body(
    exchange: &mut Exchange,
    action: ResponseHeadAction,
    body: &[u8],
    size: usize,
    cut: bool,
) -> Option<Vec<u8>> {
    let mut action = action;
    let mut received = Vec::new();
    for piece in body.chunks(size) {
        if action == ResponseHeadAction::Buffer {
            match exchange.buffer_body_piece(piece).unwrap() {
                BodyPieceAction::Buffered => continue,
                BodyPieceAction::Stream => action = ResponseHeadAction::Stream,
                BodyPieceAction::SendOriginal => {
                    received.extend(exchange.body_slices().flatten());
                    action = ResponseHeadAction::Pass;
                }
            }
        }
        match action {
            ResponseHeadAction::Tee => exchange.observe_passed_piece(piece).unwrap(),
            ResponseHeadAction::Stream => stream(exchange, piece, FlushMode::None, &mut received),
            ResponseHeadAction::Pass | ResponseHeadAction::Buffer | ResponseHeadAction::Fail => {}
        }
        if action != ResponseHeadAction::Stream {
            received.extend_from_slice(piece);
        }
    }
    if cut {
        if exchange.exchange_state() != ExchangeState::Passing {
            exchange.abort_response().unwrap();
        }
        assert!(exchange.take_complete_fill().is_none() || action == ResponseHeadAction::Tee);
        return None;
    }
    match action {
        ResponseHeadAction::Buffer => match exchange.complete_buffered_body().unwrap() {
            BodyEndAction::Code { .. } => {
                exchange.run_pending_stages().unwrap();
                received.extend(exchange.body_slices().flatten());
            }
            BodyEndAction::Stream => stream(exchange, b"", FlushMode::Finish, &mut received),
            BodyEndAction::Send => received.extend(exchange.body_slices().flatten()),
            BodyEndAction::Fail => return None,
        },
        ResponseHeadAction::Stream => stream(exchange, b"", FlushMode::Finish, &mut received),
        ResponseHeadAction::Pass | ResponseHeadAction::Tee => {}
        ResponseHeadAction::Fail => return None,
    }
    Some(received)
}

fn stream(exchange: &mut Exchange, mut piece: &[u8], flush: FlushMode, received: &mut Vec<u8>) {
    loop {
        let mut output = [0; 4096];
        let progress = exchange
            .encode_stream_piece(piece, flush, &mut output)
            .unwrap();
        received.extend_from_slice(&output[..progress.written]);
        piece = &piece[progress.consumed..];
        if progress.complete {
            return;
        }
    }
}
