//! The table of recorded and generated responses: JSON-RPC responses by method and canonical
//! params, pages of GET by path.
//!
//! Bodies are built once, at start. A response to a call copies the caller's id and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::body_slices::SharedBodySlices;
use crate::canonical;
use crate::page::ReplayPage;
use crate::rpc::{CallResponder, ReplayLookupResult};
use crate::witness::{WitnessFormat, WitnessGenerator};

/// A recorded JSON-RPC response, and the position of the id in it.
#[derive(Debug)]
pub struct RecordedResponse {
    whole: Bytes,
    id_start: usize,
    id_end: usize,
    /// Whether neither a result nor an error was recorded; any other response replaces this one.
    void: bool,
    gzipped_with_id: OnceLock<Bytes>,
}

/// The reason why a recorded response can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordedResponseError {
    #[error("the response is not a JSON object")]
    NotAnObject,
    #[error("the response is not a JSON-RPC response: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the response has no id, which the request's id must replace")]
    NoId,
}

/// The members of a JSON-RPC response.
#[derive(Deserialize)]
struct RecordedRpcEnvelope<'a> {
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    error: Option<&'a RawValue>,
}

/// Deserializes a member so that `null` differs from an absent one.
pub fn deserialize_present_member<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl RecordedResponse {
    /// Parses a recorded response without its white space, and locates its id. A response without
    /// an id is an error.
    pub fn from_recorded_json(json: &str) -> Result<Self, RecordedResponseError> {
        let json = canonical::remove_white_space(json);
        // serde would read an array as a struct's members in order.
        if json.first() != Some(&b'{') {
            return Err(RecordedResponseError::NotAnObject);
        }
        let envelope: RecordedRpcEnvelope = serde_json::from_slice(&json)?;
        let id = envelope.id.ok_or(RecordedResponseError::NoId)?.get();
        // Both pointers are into `json`: their difference is the offset of the id.
        let id_start = id.as_ptr() as usize - json.as_ptr() as usize;
        let id_end = id_start + id.len();
        let void = envelope.result.is_none() && envelope.error.is_none();
        Ok(Self {
            whole: Bytes::from(json),
            id_start,
            id_end,
            void,
            gzipped_with_id: OnceLock::new(),
        })
    }

    /// Builds the response with a generated result and the id 1, which later responses replace.
    pub fn from_generated_result(result: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut whole = br#"{"jsonrpc":"2.0","id":"#.to_vec();
        let id_start = whole.len();
        whole.push(b'1');
        let id_end = whole.len();
        whole.extend_from_slice(br#","result":"#);
        serde_json::to_writer(&mut whole, result)?;
        whole.push(b'}');
        Ok(Self {
            whole: Bytes::from(whole),
            id_start,
            id_end,
            void: false,
            gzipped_with_id: OnceLock::new(),
        })
    }

    /// Returns the body with the caller's id.
    pub fn body_with_id(&self, id: &str) -> SharedBodySlices {
        if self.is_recorded_id(id) {
            return SharedBodySlices::from(self.whole.clone());
        }
        let mut payload = SharedBodySlices::default();
        payload.push(self.whole.slice(..self.id_start));
        payload.push(Bytes::copy_from_slice(id.as_bytes()));
        payload.push(self.whole.slice(self.id_end..));
        payload
    }

    /// Returns the gzipped body with the caller's id; it is compressed once for the recorded id.
    pub fn gzipped_with_id(&self, id: &str) -> Bytes {
        if self.is_recorded_id(id) {
            let make = || SharedBodySlices::from(self.whole.clone()).compress_to_gzip();
            self.gzipped_with_id.get_or_init(make).clone()
        } else {
            self.body_with_id(id).compress_to_gzip()
        }
    }

    /// Whether the response was recorded with this id, so that it can be sent as it is.
    fn is_recorded_id(&self, id: &str) -> bool {
        *id.as_bytes() == self.whole[self.id_start..self.id_end]
    }
}

/// The recorded responses of one method, by canonical params, with the number of its calls.
#[derive(Debug, Default)]
pub struct MethodResponses {
    by_params: HashMap<Box<[u8]>, Arc<RecordedResponse>>,
    first: Option<Arc<RecordedResponse>>,
    calls: AtomicU64,
}

/// The table of all recorded responses, of calls and of pages, that the node replays.
#[derive(Debug, Default)]
pub struct ResponseTable {
    methods: HashMap<Box<str>, MethodResponses>,
    pages: BTreeMap<String, ReplayPage>,
    lenient: bool,
    witness_generator: Option<WitnessGenerator>,
}

impl ResponseTable {
    /// Creates an empty table. With `lenient`, params that were not recorded receive the first
    /// response that was recorded for their method.
    pub fn new(lenient: bool) -> Self {
        Self {
            lenient,
            ..Self::default()
        }
    }

    /// Adds a response. The first one that was recorded for a call stays, unless it has neither
    /// result nor error and this one has.
    pub fn insert_recorded_response(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
        answer: Arc<RecordedResponse>,
    ) {
        let method = self.methods.entry(method.into()).or_default();
        if method.first.as_ref().is_none_or(|first| first.void) {
            method.first = Some(answer.clone());
        }
        let key = canonical::canonical_params_key(params).into_owned().into();
        let slot = method
            .by_params
            .entry(key)
            .or_insert_with(|| answer.clone());
        if slot.void {
            *slot = answer;
        }
    }

    /// Enables generated witnesses for calls that were not recorded, whatever their params.
    pub fn enable_witnesses(&mut self, witness: WitnessGenerator) {
        self.witness_generator = Some(witness);
    }

    /// Returns the generator of witnesses, if the node serves them.
    pub fn witness_generator(&self) -> Option<&WitnessGenerator> {
        self.witness_generator.as_ref()
    }

    /// Adds the JSON of a page of GET; `path` starts with a slash.
    pub fn insert_replay_page(&mut self, path: String, json: &str) {
        self.replay_page_mut(path).json = Some(canonical::remove_white_space(json).into());
    }

    /// Returns the page at a path, to add recorded representations and headers to it.
    pub fn replay_page_mut(&mut self, path: String) -> &mut ReplayPage {
        self.pages.entry(path).or_default()
    }

    pub fn pages_mut(&mut self) -> impl Iterator<Item = (&str, &mut ReplayPage)> {
        self.pages
            .iter_mut()
            .map(|(path, page)| (path.as_str(), page))
    }

    pub fn find_page(&self, path: &str) -> Option<&ReplayPage> {
        self.pages.get(path)
    }

    /// Returns the number of calls by method, without methods that were not called.
    pub fn call_counts_by_method(&self) -> BTreeMap<&str, u64> {
        let made = self
            .witness_generator
            .iter()
            .flat_map(WitnessGenerator::calls_by_method);
        let count = |method: &MethodResponses| method.calls.load(Ordering::Relaxed);
        self.methods
            .iter()
            .map(|(name, method)| (name.as_ref(), count(method)))
            .chain(made)
            .filter(|(_, calls)| *calls > 0)
            .collect()
    }

    /// Lists method, params and body size of every response, pages as `GET path`, sorted by size
    /// within a method.
    pub fn response_size_rows(&self) -> Vec<(String, String, usize)> {
        let mut rows = Vec::new();
        for (name, method) in &self.methods {
            for (params, answer) in &method.by_params {
                let params = String::from_utf8_lossy(params).into_owned();
                rows.push((name.to_string(), params, answer.whole.len()));
            }
        }
        for (path, page) in &self.pages {
            rows.push(("GET".to_owned(), path.clone(), page.default_response_size()));
        }
        rows.sort_by(|a, b| (&a.0, a.2, &a.1).cmp(&(&b.0, b.2, &b.1)));
        rows
    }

    pub fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.pages.is_empty() && self.witness_generator.is_none()
    }
}

impl CallResponder for ResponseTable {
    fn find_response_to_call(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> ReplayLookupResult<'_> {
        let made = self
            .witness_generator
            .as_ref()
            .zip(WitnessFormat::from_witness_method(method));
        let Some(method) = self.methods.get(method) else {
            return match made {
                Some((witness, shape)) => {
                    witness.count_witness_call(method);
                    ReplayLookupResult::Witness(witness, shape)
                }
                None => ReplayLookupResult::UnknownMethod,
            };
        };
        method.calls.fetch_add(1, Ordering::Relaxed);
        let exact = method
            .by_params
            .get(canonical::canonical_params_key(params).as_ref());
        let lenient = || method.first.as_ref().filter(|_| self.lenient);
        match (exact.or_else(lenient), made) {
            (Some(answer), _) => ReplayLookupResult::Answer(answer),
            (None, Some((witness, shape))) => ReplayLookupResult::Witness(witness, shape),
            (None, None) => ReplayLookupResult::UnknownParams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(payload: SharedBodySlices) -> String {
        String::from_utf8(payload.to_single_slice().to_vec()).unwrap()
    }

    #[test]
    fn recorded_id_is_replaced_at_its_position() {
        let cases = [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"id":1}}"#,
                r#"{"jsonrpc":"2.0","id":"é\n","result":{"id":1}}"#,
            ),
            (
                r#"{"result":[1,{"id":2}], "id": "x", "jsonrpc":"2.0"}"#,
                r#"{"result":[1,{"id":2}],"id":"é\n","jsonrpc":"2.0"}"#,
            ),
            (
                r#"{"id":null,"error":{"code":-1}}"#,
                r#"{"id":"é\n","error":{"code":-1}}"#,
            ),
        ];
        for (recorded, expected) in cases {
            let answer = RecordedResponse::from_recorded_json(recorded).unwrap();
            assert_eq!(text(answer.body_with_id("\"é\\n\"")), expected);
        }
    }

    #[test]
    fn body_is_not_copied_for_the_recorded_id() {
        let answer = RecordedResponse::from_recorded_json(r#"{"id":1,"result":true}"#).unwrap();
        assert_eq!(answer.body_with_id("1").into_slices().len(), 1);
        assert_eq!(answer.body_with_id("1.0").into_slices().len(), 3);
    }

    #[test]
    fn response_without_id_or_object_returns_an_error() {
        assert!(matches!(
            RecordedResponse::from_recorded_json(r#"{"result":1}"#),
            Err(RecordedResponseError::NoId)
        ));
        assert!(matches!(
            RecordedResponse::from_recorded_json("[1]"),
            Err(RecordedResponseError::NotAnObject)
        ));
        assert!(matches!(
            RecordedResponse::from_recorded_json("{\"id\":1,\"id\":2}"),
            Err(RecordedResponseError::Malformed(_))
        ));
    }

    #[test]
    fn void_response_is_replaced_by_the_first_one_with_a_result() {
        let mut answers = ResponseTable::new(true);
        for response in [
            r#"{"id":1,"jsonrpc":"2.0"}"#,
            r#"{"id":1,"result":"first"}"#,
            r#"{"id":1,"result":"second"}"#,
        ] {
            let answer = Arc::new(RecordedResponse::from_recorded_json(response).unwrap());
            answers.insert_recorded_response("m", None, answer);
        }
        let unknown: &RawValue = serde_json::from_str("[5]").unwrap();
        for params in [None, Some(unknown)] {
            let ReplayLookupResult::Answer(answer) = answers.find_response_to_call("m", params)
            else {
                panic!("no answer");
            };
            assert_eq!(
                text(answer.body_with_id("1")),
                r#"{"id":1,"result":"first"}"#
            );
        }
        assert_eq!(answers.call_counts_by_method()["m"], 2);
    }
}
