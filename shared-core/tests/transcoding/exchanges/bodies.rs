//! A request body in SSZ for a node that accepts JSON.

use sszip_core::ssz::{Fork, Preset, Schema};

use super::super::driver_host::BodyEnd;
use super::super::fields::joined_header_values;
use super::super::host::NodeResponse;
use super::super::reference::{self, FuzzedChoices};
use super::node::damage;
use super::read::{decoded, is_of};
use super::{chosen, field, place, send, JSON, OCTETS, VERSION};

/// Targets of submissions, and their types.
const SUBMITTED: [(&str, &str); 5] = [
    ("/eth/v2/beacon/pool/attestations", "SubmittedAttestations"),
    (
        "/eth/v2/validator/aggregate_and_proofs",
        "SignedAggregateAndProofs",
    ),
    (
        "/eth/v1/validator/register_validator",
        "SignedValidatorRegistrations",
    ),
    (
        "/eth/v1/beacon/pool/payload_attestations",
        "PayloadAttestationMessages",
    ),
    ("/eth/v2/beacon/blinded_blocks", "SignedBlindedBeaconBlock"),
];

pub(super) fn check_submission(choices: &mut FuzzedChoices<'_>) {
    let (target, name) = chosen(choices, &SUBMITTED);
    let fork = chosen(choices, Fork::ALL);
    let schema = Schema::for_fork(fork, Preset::Minimal);
    let Some(ty) = schema.find_type(name) else {
        return;
    };
    let json = reference::choose(schema, ty, choices);
    let mut body = reference::to_ssz(schema, ty, &json).expect("a value of the type");
    damage(choices, &mut body);
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[("ssz_request", "always")]);
    let mut headers = vec![field("Content-Type", OCTETS), field("Accept", JSON)];
    let has_version = choices.below(6) > 0;
    if has_version {
        headers.push(field(VERSION, fork.name()));
    }
    let node = NodeResponse {
        status: 200,
        headers: vec![],
        content_length: Some(0),
        delimited: true,
        body: vec![],
        ends: vec![],
        end: BodyEnd::Whole,
    };
    let answer = send(&config, "POST", target, headers, body.clone(), node);
    let read = reference::to_json(schema, ty, &body);
    match &answer.forwarded {
        // the node validates the body itself
        Some(sent)
            if *sent == body
                && joined_header_values(&answer.upstream, "Content-Type").as_deref()
                    == Some(OCTETS) =>
        {
            assert!(
                !has_version || !is_roomy || name == "SignedValidatorRegistrations",
                "{target} {fork:?}"
            );
        }
        Some(sent) => {
            assert_eq!(
                joined_header_values(&answer.upstream, "Content-Type").as_deref(),
                Some(JSON)
            );
            if let Some(length) = joined_header_values(&answer.upstream, "Content-Length") {
                assert_eq!(length, sent.len().to_string());
            }
            if has_version {
                assert_eq!(
                    read.map(|json| json.write().into_bytes()).as_ref(),
                    Some(sent)
                );
            }
        }
        None => {
            assert!(
                read.is_none() || !is_roomy || !has_version,
                "{target} {fork:?}: {}",
                String::from_utf8_lossy(&answer.body)
            );
            assert!(
                matches!(answer.status, 400 | 502 | 503),
                "{}",
                answer.status
            );
            assert!(is_of(&answer, JSON));
            decoded(&answer);
        }
    }
    drop((answer, config));
    assert_eq!(process.budget.reserved_bytes(), 0);
}
