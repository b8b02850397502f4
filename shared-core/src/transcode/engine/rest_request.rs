//! A request of the REST route, converted to a JSON-RPC call for a node that has only JSON-RPC.

use super::problem::{self, WitnessBridgeError};
use super::route::{
    split_target, ExecutionFork, EXECUTION_VERSION_HEADER, STATUS_RESPONSE_TYPE, WITNESS_ROUTE,
};
use crate::negotiate::{cache_control, media_type};
use crate::request_coding::BodyContentCoding;
use crate::response_mode::ResponseMode;
use crate::ssz::{
    self, check_ssz, locate_value_at_path, path, transaction_blob_hashes, Preset, Schema,
};
use crate::transcode::error::TranscodeError;
use crate::transcode::format::SSZ_TYPE_HEADER;
use crate::transcode::values::{write_ssz_as_json, ReserveCallback};

/// A client's REST request for the witness of a payload, after its head was read: the fork of the
/// payload, or the problem with the request.
#[derive(Clone, Debug)]
pub struct RestPayloadWitnessRequest(Result<ExecutionFork, RestRequestProblem>);

/// The error that the client of a REST request receives, and the mode for logs and metrics.
type RestRequestProblem = (WitnessBridgeError, ResponseMode);

impl RestPayloadWitnessRequest {
    /// Reads the head of a request. Returns `None` if it is not for the route, or if it must not be
    /// transformed. `decodes`: whether compressed bodies are decompressed.
    pub fn from_head<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        decodes: bool,
    ) -> Option<Self> {
        if method != b"POST" {
            return None;
        }
        rpc_target(target)?;
        let (mut fork, mut is_ssz, mut wants_more) = (None, false, false);
        let mut coding = BodyContentCoding::None;
        for (name, value) in fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("content-type") {
                is_ssz = media_type::is_octet_stream(value);
            } else if is("content-encoding") {
                if !value.eq_ignore_ascii_case(b"identity") {
                    coding.update_from_coding_line(value);
                }
            } else if is(EXECUTION_VERSION_HEADER) {
                fork = ExecutionFork::from_name(value);
            } else if is(SSZ_TYPE_HEADER) {
                wants_more = STATUS_RESPONSE_TYPE
                    .ssz_type_header_value()
                    .is_none_or(|label| label.as_bytes() != value);
            } else if is("cache-control") && cache_control::has_no_transform(value) {
                return None;
            }
        }
        let wrong =
            |kind, mode, why: &str| Err((WitnessBridgeError::new(kind, why.to_owned()), mode));
        Some(Self(match fork {
            _ if !is_ssz => wrong(
                &problem::MEDIA,
                ResponseMode::SszInvalid,
                "the body must be application/octet-stream",
            ),
            _ if coding == BodyContentCoding::Other
                || coding.supported_coding().is_some() && !decodes =>
            {
                wrong(
                    &problem::MEDIA,
                    ResponseMode::Encoded,
                    match decodes {
                        true => "the body must have no content coding but gzip or zstd",
                        false => "the body must have no content coding",
                    },
                )
            }
            None => wrong(
                &problem::FORK,
                ResponseMode::SszFork,
                "Eth-Execution-Version does not name a known fork",
            ),
            Some(_) if wants_more => wrong(
                &problem::BODY,
                ResponseMode::SszVersion,
                "the node has engine_newPayloadWithWitness, which returns no public_keys: only \
                 PayloadStatusWithWitness;v=1 is available",
            ),
            Some(fork) => Ok(fork),
        }))
    }

    /// Marks the request as unusable for the given reason, unless it has a problem already.
    pub fn mark_request_unusable(&mut self, why: TranscodeError) {
        if self.0.is_ok() {
            self.0 = Err(problem_for_body_error(why, ""));
        }
    }

    /// Converts the request to a JSON-RPC call. `may_take` is called with the length of the call
    /// before memory is allocated or grows.
    ///
    /// # Errors
    /// The problem with the request or with its body.
    pub fn to_rpc_call(
        &self,
        preset: Preset,
        ssz: &[u8],
        may_take: ReserveCallback<'_>,
    ) -> Result<Vec<u8>, (WitnessBridgeError, ResponseMode)> {
        let fork = self.0.clone()?;
        encode_payload_witness_call(fork, preset, ssz, may_take)
            .map_err(|why| problem_for_body_error(why, fork.payload_envelope_type()))
    }
}

/// Maps the error of a body, which should be of the type `type_name`, to the problem for the
/// client.
fn problem_for_body_error(why: TranscodeError, type_name: &str) -> RestRequestProblem {
    let mode = why.error_response_mode();
    let problem = match why {
        TranscodeError::Invalid(error) => {
            let detail = format!("the body is not a valid {type_name}: {error}");
            WitnessBridgeError::new(&problem::DECODE, detail)
        }
        TranscodeError::Length(_) => WitnessBridgeError::new(&problem::LENGTH, why.to_string()),
        TranscodeError::Coding => WitnessBridgeError::new(&problem::DECODE, why.to_string()),
        _ => WitnessBridgeError::new(&problem::BUSY, why.to_string()),
    };
    (problem, mode)
}

/// Returns the target of JSON-RPC for a target of the route: the path before the route, and the
/// query.
pub fn rpc_target(target: &[u8]) -> Option<Vec<u8>> {
    let (path, query) = split_target(target);
    let base = path.strip_suffix(WITNESS_ROUTE)?;
    base.ends_with(b"/").then(|| [base, query].concat())
}

/// Writes the JSON-RPC call for the payload in `ssz`. Errors: the SSZ is invalid, or memory is
/// refused.
fn encode_payload_witness_call(
    fork: ExecutionFork,
    preset: Preset,
    ssz: &[u8],
    may_take: ReserveCallback<'_>,
) -> Result<Vec<u8>, TranscodeError> {
    // these types are the same in every fork of the consensus layer
    let schema = Schema::for_fork(ssz::Fork::Phase0, preset);
    let ty = schema
        .find_type(fork.payload_envelope_type())
        .ok_or(TranscodeError::Failed)?;
    check_ssz(schema, ty, ssz)?;
    let mut call = Vec::new();
    let mut put = |name: &str, call: &mut Vec<u8>| {
        let (ty, range) = locate_value_at_path(schema, ty, ssz, name)?;
        write_ssz_as_json(schema, ty, &ssz[range], call, may_take)
    };
    try_append_text(
        &mut call,
        &format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"engine_newPayloadWithWitnessV{}","params":["#,
            fork.method_version()
        ),
    )?;
    put("payload", &mut call)?;
    if fork >= ExecutionFork::Cancun {
        let (_, transactions) = locate_value_at_path(schema, ty, ssz, "payload.transactions")?;
        try_append_text(&mut call, ",[")?;
        let mut comma = "";
        for transaction in path::variable_element_ranges(ssz, transactions)? {
            for hash in transaction_blob_hashes(&ssz[transaction?]) {
                try_append_text(
                    &mut call,
                    &format!("{comma}\"0x{}\"", const_hex::encode(hash)),
                )?;
                comma = ",";
            }
        }
        try_append_text(&mut call, "],")?;
        put("parent_beacon_block_root", &mut call)?;
    }
    if fork >= ExecutionFork::Prague {
        try_append_text(&mut call, ",")?;
        put("execution_requests", &mut call)?;
    }
    try_append_text(&mut call, "]}")?;
    Ok(call)
}

/// Appends `text`; memory that is refused is an error, no panic.
fn try_append_text(to: &mut Vec<u8>, text: &str) -> Result<(), TranscodeError> {
    to.try_reserve(text.len())
        .map_err(|_| TranscodeError::Memory)?;
    to.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use super::{rpc_target, RestPayloadWitnessRequest};
    use crate::ssz::{json_to_ssz, Fork, Preset, Schema};
    use crate::transcode::engine::rpc_request::NewPayloadWitnessCall;

    const ROUTE: &str = "/engine/v1/payloads/witness";
    const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");

    fn read(target: &str, fields: &[(&str, &str)]) -> Option<RestPayloadWitnessRequest> {
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        RestPayloadWitnessRequest::from_head(b"POST", target.as_bytes(), fields, true)
    }

    #[test]
    fn rpc_target_is_the_path_before_the_route() {
        let base =
            |target: &str| rpc_target(target.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(base(ROUTE).as_deref(), Some("/"));
        let keyed = format!("/a/key{ROUTE}?x=/engine");
        assert_eq!(base(&keyed).as_deref(), Some("/a/key/?x=/engine"));
        for other in [
            "/",
            "",
            "engine/v1/payloads/witness",
            "/engine/v1/payloads",
            "/engine/v1/payloads/witness/",
            "/an-engine/v1/payloads/witness",
            "/x?/engine/v1/payloads/witness",
        ] {
            assert_eq!(base(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_head_is_rejected_with_its_status() {
        let fork = ("Eth-Execution-Version", "amsterdam");
        let status = |fields: &[(&str, &str)]| {
            let request = read(ROUTE, fields)?;
            let wrong = request
                .to_rpc_call(Preset::Mainnet, b"", &mut |_| true)
                .unwrap_err();
            Some(wrong.0.http_status())
        };
        // valid head, invalid body
        assert_eq!(status(&[OCTETS, fork]), Some(400));
        assert_eq!(
            status(&[OCTETS, fork, ("Content-Encoding", "identity")]),
            Some(400)
        );
        assert_eq!(status(&[OCTETS]), Some(400));
        assert_eq!(
            status(&[OCTETS, ("eth-execution-version", "electra")]),
            Some(400)
        );
        assert_eq!(status(&[fork]), Some(415));
        assert_eq!(
            status(&[fork, ("Content-Type", "application/json")]),
            Some(415)
        );
        for (coding, expected) in [
            ("gzip", 400),
            ("zstd", 400),
            ("br", 415),
            ("gzip, zstd", 415),
        ] {
            let coded = [OCTETS, fork, ("Content-Encoding", coding)];
            assert_eq!(status(&coded), Some(expected), "{coding}");
            let fields = coded.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
            let request =
                RestPayloadWitnessRequest::from_head(b"POST", ROUTE.as_bytes(), fields, false)
                    .unwrap();
            let (problem, _) = request
                .to_rpc_call(Preset::Mainnet, b"", &mut |_| true)
                .unwrap_err();
            assert_eq!(problem.http_status(), 415, "{coding}");
        }
        let ours = ("Sszip-Type", "PayloadStatusWithWitness;v=1");
        assert_eq!(status(&[OCTETS, fork, ours]), Some(400));
        let keys = ("Sszip-Type", "PayloadStatusWithWitnessAndKeys;v=1");
        assert_eq!(status(&[OCTETS, fork, keys]), Some(422));
        assert!(read(ROUTE, &[OCTETS, fork, ("Cache-Control", "no-transform")]).is_none());
        assert!(read("/", &[OCTETS, fork]).is_none());
        assert!(RestPayloadWitnessRequest::from_head(
            b"GET",
            ROUTE.as_bytes(),
            [].into_iter(),
            true
        )
        .is_none());
    }

    fn quantity(n: u64) -> String {
        format!("{n:#x}")
    }

    /// Returns a payload of the fork, with these transactions, in the JSON of JSON-RPC.
    fn payload(fork: super::ExecutionFork, transactions: &[&str]) -> Value {
        let hash = |byte: &str| format!("0x{}", byte.repeat(32));
        let mut payload = json!({
            "parentHash": hash("01"), "feeRecipient": format!("0x{}", "02".repeat(20)),
            "stateRoot": hash("03"), "receiptsRoot": hash("04"),
            "logsBloom": format!("0x{}", "05".repeat(256)), "prevRandao": hash("06"),
            "blockNumber": quantity(0), "gasLimit": quantity(60_000_000),
            "gasUsed": quantity(u64::MAX), "timestamp": quantity(1), "extraData": "0x",
            "baseFeePerGas": format!("0x{}", "f".repeat(64)), "blockHash": hash("07"),
            "transactions": transactions,
        });
        if fork >= super::ExecutionFork::Shanghai {
            payload["withdrawals"] = json!([{
                "index": quantity(7), "validatorIndex": quantity(8),
                "address": format!("0x{}", "09".repeat(20)), "amount": quantity(32_000_000_000),
            }]);
        }
        if fork >= super::ExecutionFork::Cancun {
            payload["blobGasUsed"] = json!(quantity(131_072));
            payload["excessBlobGas"] = json!(quantity(0));
        }
        if fork >= super::ExecutionFork::Amsterdam {
            payload["blockAccessList"] = json!("0xc0");
            payload["slotNumber"] = json!(quantity(11_000_000));
        }
        payload
    }

    #[test]
    fn requests_of_every_fork_are_converted_to_calls_and_back() {
        use super::ExecutionFork::*;
        // EIP-4844: two hashes after ten fields
        let hashes = ["01", "ab"].map(|byte| byte.repeat(32));
        let list = format!("f842a0{}a0{}", hashes[0], hashes[1]);
        let fields = format!("{}{list}{}", "80".repeat(10), "80".repeat(3));
        let blob = format!("0x03f851{fields}");
        let transactions = ["0x02c0", &*blob, "0xf800"];
        let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
        let root = format!("0x{}", "aa".repeat(32));
        for (name, fork, version) in [
            ("paris", Paris, 1),
            ("shanghai", Shanghai, 2),
            ("cancun", Cancun, 3),
            ("prague", Prague, 4),
            ("osaka", Osaka, 4),
            ("amsterdam", Amsterdam, 5),
        ] {
            let payload = payload(fork, &transactions);
            let mut envelope = json!({ "payload": payload });
            let mut params = vec![payload];
            if fork >= Cancun {
                envelope["parentBeaconBlockRoot"] = json!(root);
                params.push(json!(hashes.each_ref().map(|hash| format!("0x{hash}"))));
                params.push(json!(root));
            }
            if fork >= Prague {
                envelope["executionRequests"] = json!(["0x00ff", "0x01"]);
                params.push(json!(["0x00ff", "0x01"]));
            }
            let ty = schema.find_type(fork.payload_envelope_type()).unwrap();
            let ssz = json_to_ssz(schema, ty, envelope.to_string().as_bytes()).unwrap();
            let request = read(ROUTE, &[OCTETS, ("Eth-Execution-Version", name)]).unwrap();
            let call = request
                .to_rpc_call(Preset::Mainnet, &ssz, &mut |_| true)
                .unwrap();
            // and back
            let method = format!("engine_newPayloadWithWitnessV{version}");
            let called =
                NewPayloadWitnessCall::for_witness_method(method.as_bytes(), Some(fork)).unwrap();
            let submission = called.to_rest_submission(Preset::Mainnet, &call).unwrap();
            assert_eq!((submission.fork, &submission.ssz), (name.as_bytes(), &ssz));
            let call: Value = serde_json::from_slice(&call).unwrap();
            let expected = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            assert_eq!(call, expected, "{name}");
            let (problem, _) = request
                .to_rpc_call(Preset::Mainnet, &ssz[1..], &mut |_| true)
                .unwrap_err();
            assert_eq!(problem.http_status(), 400);
        }
    }
}
