//! Checks of the responses that clients of the model receive.

use serde_json::value::RawValue;

use super::steps::{Caller, CALLS};
use super::world::{CacheModel, ModelRequest};
use crate::support::gunzip;
use crate::unzstd::unzstd;

impl ModelRequest {
    /// Returns the body that the client receives without its content coding, which must be one that
    /// the client accepts.
    pub fn decode_received_body(&self, body: Vec<u8>) -> Vec<u8> {
        let mut edits = self.exchange.head_edits().iter().rev();
        let edit = edits.find(|edit| edit.name == "Content-Encoding");
        let Some(coding) = edit.and_then(|edit| edit.value.as_deref()) else {
            return body;
        };
        let coding = std::str::from_utf8(coding).unwrap();
        let mut accepted = self.accepts.split(", ");
        assert!(accepted.any(|accepted| accepted == coding), "{coding}");
        match coding {
            "gzip" => gunzip(&body).unwrap(),
            _ => unzstd(&body).unwrap(),
        }
    }
}

impl CacheModel {
    pub fn check_hit(&mut self, open: &ModelRequest, body: Vec<u8>) {
        let edit = |name: &str| {
            open.exchange
                .head_edits()
                .iter()
                .find(|edit| edit.name.eq_ignore_ascii_case(name))
                .and_then(|edit| edit.value.as_deref().map(<[u8]>::to_vec))
        };
        assert_eq!(
            edit("Content-Length"),
            Some(body.len().to_string().into_bytes())
        );
        assert_eq!(edit("Content-Type"), Some(b"application/json".to_vec()));
        let allowed = match open.caller {
            Caller {
                chain: 1 | 2,
                origin: Some(origin),
                ..
            } => Some(vec![b'o', b'0' + origin]),
            _ => None,
        };
        assert_eq!(
            edit("Access-Control-Allow-Origin"),
            allowed,
            "{:?}",
            open.caller
        );
        let body = open.decode_received_body(body);
        self.check_body(open, &body, true);
    }

    /// Checks that the client received its own responses, under its ids and in its order.
    fn check_body(&mut self, open: &ModelRequest, body: &[u8], stored: bool) {
        let text = std::str::from_utf8(body).unwrap();
        let answers: Vec<&str> = if open.is_batch {
            let answers: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            answers.into_iter().map(RawValue::get).collect()
        } else {
            // an entry that was stored from a batch has no trailing newline of its own
            vec![text.trim_end()]
        };
        assert_eq!(answers.len(), open.calls.len(), "{text}");
        let whole = self.distinguished_by_node(open.caller);
        for ((answer, call), id) in answers.iter().zip(&open.calls).zip(&open.ids) {
            let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
            let result = answer
                .strip_prefix(&head)
                .and_then(|rest| rest.strip_suffix('}'))
                .and_then(|rest| match rest.strip_prefix(r#""result":"#) {
                    // a follower shares an error, too
                    None if open.waits => rest.strip_prefix(r#""error":"#),
                    result => result,
                })
                .unwrap_or_else(|| panic!("{answer} under {id}"));
            let key = (*call, whole);
            let (dispatched_at, _) = *self
                .responses
                .get(&key)
                .and_then(|responses| responses.iter().find(|(_, text)| text == result))
                .as_ref()
                .unwrap_or_else(|| panic!("the node did not say {result:.200} to {key:?}"));
            if stored && open.requested_at == self.now && !open.waits {
                let good = CALLS[*call].2;
                assert!(
                    dispatched_at + good > self.now,
                    "asked at {dispatched_at}, sent at {}: {result:.200}",
                    self.now
                );
                let seen = self
                    .seen
                    .entry((key.0, key.1, open.caller.origin.is_some()))
                    .or_default();
                assert!(
                    *seen <= *dispatched_at,
                    "back from {seen} to {dispatched_at}"
                );
                *seen = *dispatched_at;
            }
        }
    }

    pub fn check_body_of_node(&mut self, open: &ModelRequest, received: &[u8]) {
        if open.is_batch && open.exchange.upstream_request_body().is_empty() {
            // the node may respond to a batch in any order
            let mut answers: Vec<&RawValue> = serde_json::from_slice(received).unwrap();
            answers.sort_by_key(|answer| {
                let id = open
                    .ids
                    .iter()
                    .position(|id| answer.get().contains(&format!(r#""id":{id},"#)));
                id.unwrap()
            });
            let text = serde_json::to_vec(&answers).unwrap();
            self.check_body(open, &text, false);
        } else {
            self.check_body(open, received, false);
        }
    }
}
