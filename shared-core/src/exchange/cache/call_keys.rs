//! Keys and lifetime rules of the calls of one request.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::freshness::{CacheLifetimes, CallLifetimeRules};
use crate::cache::process::key_cache::{
    CallKeyCache, CallKeyCacheGuard, CallKeyFacts, HashedVaryKey, RawCallKey, MAX_CALL_LENGTH,
};
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::config::RouteConfig;
use crate::jsonrpc::call_prefix::PresumedCall;
use crate::jsonrpc::key::CallKeyBuilder;
use crate::jsonrpc::request;
use crate::jsonrpc::request::{
    CallMemberOffsets, JsonRpcCall, JsonRpcRequestBody, RequestParseFailure, MAX_ID_LENGTH,
};

/// The cache key of one call whose response may be stored, and the lifetime rules of the call.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct CallKeyAndLifetime {
    pub(in crate::exchange) key: CacheKey,
    pub(in crate::exchange) prospect: CallLifetimeRules,
    /// The key was found in the key cache.
    remembered: bool,
}

/// A reader of the calls in one request body, which finds their keys and lifetime rules in the key
/// cache, or computes them.
#[derive(Debug)]
pub(in crate::exchange) struct CallKeyReader<'a> {
    body: &'a [u8],
    valid: &'a Arc<CacheLifetimes>,
    call_vary_key: &'a VaryKey,
    hashed: HashedVaryKey<'a>,
    memo: &'a CallKeyCache,
    /// Created for the first call that is not in the key cache.
    keys: Option<CallKeyBuilder>,
}

impl<'a> CallKeyReader<'a> {
    /// Creates a reader of the calls in `body`. `scope`: the vary key of the request.
    pub(in crate::exchange) fn new(
        config: &'a RouteConfig,
        scope: &'a VaryKey,
        body: &'a [u8],
    ) -> Self {
        let memo = &config.process.shared.call_keys;
        Self {
            body,
            valid: &config.cache.valid,
            call_vary_key: scope,
            hashed: memo.hash_vary_key_for_table(scope.vary_key_bytes()),
            memo,
            keys: None,
        }
    }

    /// Returns the vary key that separates the variants of a call.
    pub(in crate::exchange) fn call_vary_key(&self) -> &VaryKey {
        self.call_vary_key
    }

    /// Reads the calls, and for each call with an id the key of its response, if the response
    /// may be stored.
    pub(in crate::exchange) fn read_calls_and_keys(
        &mut self,
        batch_max: usize,
    ) -> Result<(JsonRpcRequestBody<'a>, Vec<Option<CallKeyAndLifetime>>), RequestParseFailure>
    {
        let mut places = Vec::with_capacity(request::estimate_call_count(self.body).min(batch_max));
        let mut memo = None;
        let request = request::parse_with_known_calls(self.body, batch_max, |start| {
            let found = self.find_in_key_cache(
                memo.get_or_insert_with(|| self.memo.lock_own_loop_table()),
                start,
            );
            if found.is_none() {
                // other workers need the lock meanwhile: reading may take long
                memo = None;
            }
            let (call, place) = found.unzip();
            places.push(place);
            call
        });
        drop(memo);
        let request = request?;
        let calls = match &request {
            JsonRpcRequestBody::Single(call) => std::slice::from_ref(call),
            JsonRpcRequestBody::Batch(calls) => calls,
        };
        for (call, place) in calls.iter().zip(&mut places) {
            if place.is_none() && call.id.is_some() {
                *place = self.compute_call_key(call);
            }
        }
        Ok((request, places))
    }

    /// Returns the call that starts at `start`, if it is in the key cache.
    pub(in crate::exchange) fn find_in_key_cache(
        &self,
        memo: &CallKeyCacheGuard<'_>,
        start: usize,
    ) -> Option<(JsonRpcCall<'a>, CallKeyAndLifetime)> {
        let text = self.body.get(start..)?;
        // longer calls are not in the key cache
        let text = &text[..text.len().min(MAX_CALL_LENGTH + MAX_ID_LENGTH)];
        let PresumedCall { before, id, after } = PresumedCall::split_first_call(text)?;
        if id.len() > MAX_ID_LENGTH {
            return None;
        }
        let known = memo.find_call_facts(
            self.valid,
            &RawCallKey {
                scope: self.hashed,
                before,
                after,
            },
        )?;
        let there = |range: &Range<usize>| {
            let moved = if range.start < before.len() {
                0
            } else {
                id.len()
            };
            range.start + moved..range.end + moved
        };
        let (method, params) = (there(&known.method), known.params.as_ref().map(there));
        let length = before.len() + id.len() + after.len();
        let call = JsonRpcCall {
            span: start..start + length,
            id: Some(id),
            starts: CallMemberOffsets {
                id: before.len(),
                method: method.start,
                params: params.as_ref().map_or(0, |params| params.start),
            },
            method: text.get(method)?,
            params: match params {
                Some(params) => Some(text.get(params)?),
                None => None,
            },
        };
        let place = CallKeyAndLifetime {
            key: known.key,
            prospect: known.prospect,
            remembered: true,
        };
        Some((call, place))
    }

    /// Computes the key and the lifetime rules of a call; `None` if its response is not cached.
    pub(in crate::exchange) fn compute_call_key(
        &mut self,
        call: &JsonRpcCall<'_>,
    ) -> Option<CallKeyAndLifetime> {
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(call.method, call.params, self.valid)?;
        let keys = self
            .keys
            .get_or_insert_with(|| self.call_vary_key.call_key_builder());
        let key = keys.build_key(call.method, call.params).ok()?.0;
        Some(CallKeyAndLifetime {
            key,
            prospect,
            remembered: false,
        })
    }

    /// Adds the key of a call that was a hit to the key cache.
    pub(in crate::exchange) fn add_to_key_cache(
        &self,
        call: &JsonRpcCall<'_>,
        place: &CallKeyAndLifetime,
    ) {
        if place.remembered {
            return;
        }
        let text = &self.body[call.span.clone()];
        let Some(PresumedCall { before, id, after }) = PresumedCall::split_first_call(text) else {
            return;
        };
        // a sketch that misreads the call would not find it again
        let is_whole = before.len() + id.len() + after.len() == text.len();
        if !is_whole || before.len() != call.starts.id || call.id != Some(id) {
            return;
        }
        let here = |start: usize, length: usize| {
            let moved = if start < call.starts.id { 0 } else { id.len() };
            start - moved..start - moved + length
        };
        let known = CallKeyFacts {
            key: place.key,
            prospect: place.prospect,
            method: here(call.starts.method, call.method.len()),
            params: call
                .params
                .map(|params| here(call.starts.params, params.len())),
        };
        let spelling = RawCallKey {
            scope: self.hashed,
            before,
            after,
        };
        self.memo
            .lock_own_loop_table()
            .cache_call_facts(self.valid, &spelling, known);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CallKeyReader, VaryKey};
    use crate::cache::process::ProcessResources;
    use crate::config::{RouteConfig, RouteConfigBlock};
    use crate::jsonrpc::request::{parse_jsonrpc_request, JsonRpcRequestBody};

    const MOST: usize = 100;

    fn config() -> RouteConfig {
        RouteConfigBlock::default().resolve_route_config(ProcessResources::default())
    }

    /// Generates objects with members in any order, calls among them.
    fn call() -> impl Strategy<Value = String> {
        let id = prop_oneof![
            "[1-9][0-9]{0,20}",
            "\"[a-z0-9 {},:-]{0,20}\"",
            Just("0".to_owned()),
            prop::sample::select(vec!["null", "-1", "1.5", "1e3", "\"\\u0041\"", "01", "{}"])
                .prop_map(str::to_owned),
        ];
        let params = prop::sample::select(vec![
            "[]",
            "[\"0x52908400098527886E0F7030069857D2E4169EE7\",\"0x5\"]",
            "[{\"id\":1},{\"id\":2,\"method\":\"m\"}]",
            "[{\"to\":\"0x5\"},\"0x1\",{\"id\" : [{\"jsonrpc\":\"2.0\"}, {\"id\":7}]}]",
            "{\"id\":{\"params\":[]}}",
            "null",
            "[\"\\\"id\\\":5},{\\\"id\\\":6\"]",
        ]);
        let version = prop::sample::select(vec!["\"2.0\"", "\"2.0\"", "\"2.0\"", "\"1.0\""]);
        let method = prop::sample::select(vec!["\"eth_getBalance\"", "\"eth_chainId\"", "\"m\""]);
        let blank = || prop::sample::select(vec!["", "", " ", "\n"]);
        let members = (
            prop::option::weighted(0.9, id),
            prop::option::of(params),
            version,
            method,
            prop::option::weighted(0.1, Just("\"id\":3")),
        );
        (
            members,
            any::<prop::sample::Index>(),
            blank(),
            blank(),
            any::<bool>(),
        )
            .prop_map(
                |((id, params, version, method, more), turn, colon, comma, turned)| {
                    let mut members = vec![
                        format!("\"jsonrpc\":{colon}{version}"),
                        format!("\"method\"{colon}:{method}"),
                    ];
                    members.extend(id.map(|id| format!("\"id\":{colon}{id}")));
                    members.extend(params.map(|params| format!("\"params\":{colon}{params}")));
                    members.extend(more.map(str::to_owned));
                    let turn = turn.index(members.len());
                    members.rotate_left(turn);
                    if turned {
                        members.reverse();
                    }
                    format!(
                        "{{{comma}{}{comma}}}",
                        members.join(&format!("{comma},{comma}"))
                    )
                },
            )
    }

    /// Checks that a request is read equally with and without the key cache.
    fn agree(config: &RouteConfig, scope: &VaryKey, body: &str) -> Result<(), TestCaseError> {
        let mut calls = CallKeyReader::new(config, scope, body.as_bytes());
        let read = calls.read_calls_and_keys(MOST);
        let parsed = parse_jsonrpc_request(body.as_bytes(), MOST);
        prop_assert_eq!(read.as_ref().map(|(request, _)| request), parsed.as_ref());
        let Ok((request, places)) = read else {
            return Ok(());
        };
        let read = match &request {
            JsonRpcRequestBody::Single(call) => std::slice::from_ref(call),
            JsonRpcRequestBody::Batch(calls) => calls,
        };
        prop_assert_eq!(read.len(), places.len());
        for (call, place) in read.iter().zip(&places) {
            let judged = calls.compute_call_key(call).filter(|_| call.id.is_some());
            prop_assert_eq!(place.map(|it| it.key), judged.map(|it| it.key));
            let prospect = |place: super::CallKeyAndLifetime| format!("{:?}", place.prospect);
            prop_assert_eq!(place.map(prospect), judged.map(prospect));
            if let Some(place) = place {
                calls.add_to_key_cache(call, place);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn calls_in_the_key_cache_are_read_as_parsed(
            requests in prop::collection::vec(
                (prop::collection::vec(call(), 1..5), any::<bool>(), 0..4usize),
                1..5,
            ),
        ) {
            let (config, scope) = (config(), VaryKey::new());
            // more calls are in the key cache the second time
            for (calls, is_batch, between) in requests.iter().chain(&requests) {
                let between = [",", ", ", " ,\n", ",,"][*between];
                let body = match is_batch {
                    true => format!("[{}]", calls.join(between)),
                    false => calls[0].clone(),
                };
                agree(&config, &scope, &body)?;
                // complete calls in a truncated body are not a complete request
                agree(&config, &scope, &body[..body.len() - 1])?;
            }
        }
    }

    #[test]
    fn call_is_found_in_the_key_cache_under_any_valid_id() {
        let (config, scope) = (config(), VaryKey::new());
        let body = |id: &str| {
            let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
            format!("[{call},{call}]")
        };
        let remembered = |id: &str| {
            let body = body(id);
            let mut calls = CallKeyReader::new(&config, &scope, body.as_bytes());
            let Ok((JsonRpcRequestBody::Batch(read), places)) = calls.read_calls_and_keys(MOST)
            else {
                return None;
            };
            let places: Vec<_> = places.into_iter().flatten().collect();
            calls.add_to_key_cache(&read[0], &places[0]);
            Some(places.iter().filter(|place| place.remembered).count())
        };
        assert_eq!(remembered("1"), Some(0));
        for id in ["1", "0", "18446744073709551616", "\"1\"", "\"a\u{e9}\""] {
            assert_eq!(remembered(id), Some(2), "{id}");
        }
        // calls with these ids are parsed each time
        for id in ["null", "-1", "1.0", "\"\\n\""] {
            assert_eq!(remembered(id), Some(0), "{id}");
        }
        for id in ["01", "1.", "{}", "\"", "", &"1".repeat(257)] {
            assert_eq!(remembered(id), None, "{id}");
        }
    }
}
