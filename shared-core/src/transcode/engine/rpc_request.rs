//! A JSON-RPC call for a payload's witness, converted to a request of the REST route for a node
//! that has only the route.

use super::problem::{self, WitnessBridgeError};
use super::route::{split_target, ExecutionFork, WITNESS_ROUTE};
use crate::jsonrpc::request::{parse_jsonrpc_request, JsonRpcRequestBody};
use crate::jsonrpc::response::find_object_member;
use crate::jsonrpc::scan::{SkippedJsonValue, StrictJsonReader};
use crate::response_mode::ResponseMode;
use crate::ssz::schema::OFFSET_LENGTH;
use crate::ssz::{
    self, json_to_ssz, locate_value_at_path, path, transaction_blob_hashes, JsonEnvelopeForm,
    JsonToSsz, Preset, Schema, SszError,
};
use crate::transcode::TranscodeError;

const METHOD_PREFIX: &[u8] = b"engine_newPayloadWithWitnessV";

/// Length of a root in bytes.
const ROOT_LENGTH: usize = 32;

/// The parts of the REST request that is sent to the node in place of a client's call.
#[derive(Debug)]
pub struct RestPayloadSubmission {
    /// The fork of the payload, as in the header `Eth-Execution-Version`.
    pub fork: &'static [u8],
    /// The SSZ body of the request.
    pub ssz: Vec<u8>,
}

/// The reason why the proxy answers a client's call and does not convert it to a REST request.
#[derive(Debug, PartialEq, Eq)]
pub enum WitnessCallRefusal {
    /// The call is invalid, or memory is refused.
    Wrong(WitnessBridgeError, ResponseMode),
    /// The payload is invalid because its blobs are not those that the call names. The route has no
    /// parameter that names them.
    OtherBlobs,
}

impl From<TranscodeError> for WitnessCallRefusal {
    fn from(why: TranscodeError) -> Self {
        let mode = why.error_response_mode();
        let kind = match why {
            TranscodeError::Invalid(_) => &problem::BODY,
            TranscodeError::Length(_) => &problem::LENGTH,
            TranscodeError::Coding => &problem::PARSE,
            _ => &problem::BUSY,
        };
        Self::Wrong(WitnessBridgeError::new(kind, why.to_string()), mode)
    }
}

impl From<SszError> for WitnessCallRefusal {
    fn from(error: SszError) -> Self {
        TranscodeError::from(error).into()
    }
}

/// A client's call of `engine_newPayloadWithWitness`. Only its method is known before its body is
/// complete.
#[derive(Clone, Debug)]
pub struct NewPayloadWitnessCall {
    version: u8,
    /// The fork that the request's head names, if any. One version of the method may cover two
    /// forks.
    named: Option<ExecutionFork>,
    /// Reason why the body can't be read.
    unread: Option<TranscodeError>,
}

impl NewPayloadWitnessCall {
    /// Creates the call for a method name. Returns `None` if the name is another method.
    pub fn for_witness_method(method: &[u8], named: Option<ExecutionFork>) -> Option<Self> {
        Some(Self {
            version: payload_witness_method_version(method)?,
            named,
            unread: None,
        })
    }

    /// Marks the call as not convertible for the given reason, unless it has a reason already.
    pub fn mark_call_unconvertible(&mut self, why: TranscodeError) {
        self.unread.get_or_insert(why);
    }

    /// Converts the call in `body` to a request of the route.
    ///
    /// # Errors
    /// The reason why no request is sent to the node.
    pub fn to_rest_submission(
        &self,
        preset: Preset,
        body: &[u8],
    ) -> Result<RestPayloadSubmission, WitnessCallRefusal> {
        if let Some(why) = &self.unread {
            return Err(why.clone().into());
        }
        match parse_jsonrpc_request(body, 0) {
            Ok(JsonRpcRequestBody::Single(call)) => {
                let params = call.params.unwrap_or(b"[]");
                payload_params_to_submission(self.version, params, self.named, preset)
            }
            _ => Err(TranscodeError::Failed.into()),
        }
    }
}

/// Returns the version of the method, or `None` if the name is another method.
fn payload_witness_method_version(method: &[u8]) -> Option<u8> {
    match method.strip_prefix(METHOD_PREFIX)? {
        [digit @ b'1'..=b'5'] => Some(digit - b'0'),
        _ => None,
    }
}

/// Returns the target of the REST route on the same node, for a target of JSON-RPC.
pub fn rest_target(target: &[u8]) -> Vec<u8> {
    let (path, query) = split_target(target);
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, WITNESS_ROUTE, query].concat()
}

/// Converts the params of a call to the body of the REST request. `named` is the fork in the
/// request's head.
fn payload_params_to_submission(
    version: u8,
    params: &[u8],
    named: Option<ExecutionFork>,
    preset: Preset,
) -> Result<RestPayloadSubmission, WitnessCallRefusal> {
    let params = split_array(params).ok_or_else(|| invalid_params("params is not an array"))?;
    let payload = *params
        .first()
        .ok_or_else(|| invalid_params("params is empty"))?;
    let fork = match version {
        1 => ExecutionFork::Paris,
        2 if is_present(find_object_member(payload, "withdrawals")) => ExecutionFork::Shanghai,
        2 => ExecutionFork::Paris,
        3 => ExecutionFork::Cancun,
        4 => named
            .filter(|it| *it == ExecutionFork::Prague)
            .unwrap_or(ExecutionFork::Osaka),
        _ => ExecutionFork::Amsterdam,
    };
    let (count, head) = match fork {
        ExecutionFork::Paris | ExecutionFork::Shanghai => (1, OFFSET_LENGTH),
        ExecutionFork::Cancun => (3, OFFSET_LENGTH + ROOT_LENGTH),
        ExecutionFork::Prague | ExecutionFork::Osaka | ExecutionFork::Amsterdam => {
            (4, 2 * OFFSET_LENGTH + ROOT_LENGTH)
        }
    };
    if params.len() != count {
        return Err(invalid_params(&format!(
            "{} params instead of {count}",
            params.len()
        )));
    }
    // these types are the same in every fork of the consensus layer
    let schema = Schema::for_fork(ssz::Fork::Phase0, preset);
    let ty = |name: &str| schema.find_type(name).ok_or(TranscodeError::Failed);
    let param = |at: usize, name: &str| -> Result<Vec<u8>, WitnessCallRefusal> {
        let read = json_to_ssz(schema, ty(name)?, params[at]);
        Ok(read.map_err(|error| error.prepend_field(&format!("params[{at}]")))?)
    };
    let payload_type = ty(fork.payload_ssz_type())?;
    let in_payload = |error: SszError| error.prepend_field("params[0]");
    let mut reader = JsonToSsz::new(schema, payload_type, JsonEnvelopeForm::Bare)
        .with_reserved_zero_prefix(head)?;
    reader.feed_json_piece(payload).map_err(in_payload)?;
    let mut ssz = reader.finish().map_err(in_payload)?;
    write_offset(&mut ssz, 0, head);
    if fork >= ExecutionFork::Cancun {
        let named = param(1, "EngineVersionedHashes")?;
        let (_, transactions) =
            locate_value_at_path(schema, payload_type, &ssz[head..], "transactions")?;
        let mut rest = &named[..];
        for transaction in path::variable_element_ranges(&ssz[head..], transactions)? {
            for hash in transaction_blob_hashes(&ssz[head..][transaction?]) {
                rest = rest
                    .strip_prefix(hash)
                    .ok_or(WitnessCallRefusal::OtherBlobs)?;
            }
        }
        if !rest.is_empty() {
            return Err(WitnessCallRefusal::OtherBlobs);
        }
        ssz[OFFSET_LENGTH..OFFSET_LENGTH + ROOT_LENGTH].copy_from_slice(&param(2, "EngineRoot")?);
    }
    if fork >= ExecutionFork::Prague {
        let requests = param(3, "EngineExecutionRequests")?;
        let begin = ssz.len();
        write_offset(&mut ssz, OFFSET_LENGTH + ROOT_LENGTH, begin);
        ssz.try_reserve(requests.len())
            .map_err(|_| TranscodeError::Memory)?;
        ssz.extend_from_slice(&requests);
    }
    Ok(RestPayloadSubmission {
        fork: fork.execution_version_value().as_bytes(),
        ssz,
    })
}

/// Splits the text of an array into the texts of its elements, at most the first 8;
/// `None` if it is no array.
fn split_array(array: &[u8]) -> Option<Vec<&[u8]>> {
    // no version has more params
    const MOST: usize = 8;
    let mut scanner = StrictJsonReader::for_trusted_utf8(array);
    let mut elements = Vec::new();
    let mut another = scanner.enter_array().ok()?;
    while another && elements.len() < MOST {
        let SkippedJsonValue { span, .. } = scanner.skip_value().ok()?;
        elements.push(&array[span]);
        another = scanner.next_element().ok()?;
    }
    Some(elements)
}

/// Whether a member has a value other than `null`.
fn is_present(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value != b"null")
}

fn write_offset(ssz: &mut [u8], at: usize, offset: usize) {
    // offsets of 4 GiB and more are rejected before
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    ssz[at..at + OFFSET_LENGTH].copy_from_slice(&offset.to_le_bytes());
}

fn invalid_params(why: &str) -> WitnessCallRefusal {
    WitnessCallRefusal::Wrong(
        WitnessBridgeError::new(&problem::BODY, why.to_owned()),
        ResponseMode::SszInvalid,
    )
}

#[cfg(test)]
mod tests {
    use super::{
        payload_params_to_submission, payload_witness_method_version, rest_target,
        NewPayloadWitnessCall, WitnessCallRefusal,
    };
    use crate::response_mode::ResponseMode;
    use crate::ssz::Preset;
    use crate::transcode::engine::ExecutionFork;
    use crate::transcode::TranscodeError;

    #[test]
    fn method_versions_1_to_5_are_accepted() {
        let of = |method: &str| payload_witness_method_version(method.as_bytes());
        assert_eq!(of("engine_newPayloadWithWitnessV1"), Some(1));
        assert_eq!(of("engine_newPayloadWithWitnessV5"), Some(5));
        for other in ["V0", "V6", "V55", "V", "", "v1"] {
            assert_eq!(of(&format!("engine_newPayloadWithWitness{other}")), None);
        }
        assert_eq!(of("engine_newPayloadV4"), None);
    }

    #[test]
    fn route_target_is_below_the_path_of_the_call() {
        let of = |path: &str| String::from_utf8(rest_target(path.as_bytes())).unwrap();
        assert_eq!(of("/"), "/engine/v1/payloads/witness");
        assert_eq!(of("/key"), "/key/engine/v1/payloads/witness");
        assert_eq!(of("/key/?a/b?"), "/key/engine/v1/payloads/witness?a/b?");
    }

    fn payload(withdrawals: &str) -> String {
        let bytes = |count| format!("\"0x{}\"", "00".repeat(count));
        format!(
            r#"{{"parentHash":{h},"feeRecipient":{},"stateRoot":{h},"receiptsRoot":{h},"logsBloom":{},
            "prevRandao":{h},"blockNumber":"0x0","gasLimit":"0x0","gasUsed":"0x0","timestamp":"0x0",
            "extraData":"0x","baseFeePerGas":"0x0","blockHash":{h},"transactions":[]{withdrawals}}}"#,
            bytes(20),
            bytes(256),
            h = bytes(32)
        )
    }

    #[test]
    fn fork_is_read_from_payload_or_head_when_a_version_covers_two() {
        let fork = |version, params: &str, named| {
            let made =
                payload_params_to_submission(version, params.as_bytes(), named, Preset::Mainnet);
            made.map(|made| made.fork)
        };
        let paris = format!("[{}]", payload(""));
        let null = format!("[{}]", payload(",\"withdrawals\":null"));
        let shanghai = format!("[{}]", payload(",\"withdrawals\":[]"));
        assert_eq!(fork(1, &paris, None), Ok(&b"paris"[..]));
        assert_eq!(
            fork(2, &paris, Some(ExecutionFork::Amsterdam)),
            Ok(&b"paris"[..])
        );
        assert_eq!(fork(2, &null, None), Ok(&b"paris"[..]));
        assert_eq!(fork(2, &shanghai, None), Ok(&b"shanghai"[..]));
        let blobs = r#","withdrawals":[],"blobGasUsed":"0x0","excessBlobGas":"0x0""#;
        let root = format!("\"0x{}\"", "11".repeat(32));
        let osaka = format!("[{},[],{root},[]]", payload(blobs));
        for named in [
            None,
            Some(ExecutionFork::Osaka),
            Some(ExecutionFork::Cancun),
        ] {
            assert_eq!(fork(4, &osaka, named), Ok(&b"osaka"[..]));
        }
        assert_eq!(
            fork(4, &osaka, Some(ExecutionFork::Prague)),
            Ok(&b"prague"[..])
        );
        let other = format!("[{},[{root}],{root}]", payload(blobs));
        assert_eq!(fork(3, &other, None), Err(WitnessCallRefusal::OtherBlobs));
    }

    #[test]
    fn invalid_params_are_reported_with_their_path() {
        let why = |params: &str| {
            let made = payload_params_to_submission(4, params.as_bytes(), None, Preset::Mainnet);
            match made.unwrap_err() {
                WitnessCallRefusal::Wrong(problem, mode) => {
                    assert_eq!(mode, ResponseMode::SszInvalid, "{params}");
                    String::from_utf8(problem.to_rpc_error_response(b"1")).unwrap()
                }
                other => panic!("{params}: {other:?}"),
            }
        };
        assert!(why("[]").contains("params is empty"));
        assert!(why("null").contains("not an array"));
        assert!(why("[{}]").contains("1 params instead of 4"));
        assert!(why("[1,2,3,4,5,6,7,8,9,10]").contains("8 params instead of 4"));
        let message = why("[{\"parentHash\":\"0x\"},[],\"0x\",[]]");
        assert!(message.contains("params[0].parentHash, byte"), "{message}");
        assert!(message.contains("-32602"), "{message}");
    }

    #[test]
    fn unreadable_call_is_refused_for_its_first_reason() {
        let mut called =
            NewPayloadWitnessCall::for_witness_method(b"engine_newPayloadWithWitnessV1", None)
                .unwrap();
        let refusal = |called: &NewPayloadWitnessCall| match called
            .to_rest_submission(Preset::Mainnet, b"")
        {
            Err(WitnessCallRefusal::Wrong(_, mode)) => mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal(&called), ResponseMode::Failed);
        called.mark_call_unconvertible(TranscodeError::Length(1));
        assert_eq!(refusal(&called), ResponseMode::SszLength);
        // the first reason is reported
        called.mark_call_unconvertible(TranscodeError::Coding);
        assert_eq!(refusal(&called), ResponseMode::SszLength);
    }
}
