//! Values of a node, and the way in which it sends them.

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::super::driver_host::BodyEnd;
use super::super::fields::{encode_body, Fields};
use super::super::host::NodeResponse;
use super::super::properties::write;
use super::super::reference::{self, FuzzedChoices, Json};
use super::read::decompressed;
use super::{chosen, field, JSON, OCTETS, VERSION};

/// A value of a type, in a fork that has the type.
pub(super) struct Value {
    pub(super) schema: &'static Schema,
    pub(super) ty: TypeId,
    pub(super) fork: Fork,
    pub(super) json: Json,
    pub(super) ssz: Vec<u8>,
}

pub(super) fn value(choices: &mut FuzzedChoices<'_>, name: &str) -> Option<Value> {
    let fork = chosen(choices, Fork::ALL);
    let schema = Schema::for_fork(fork, Preset::Minimal);
    let ty = schema.find_type(name)?;
    let json = reference::choose(schema, ty, choices);
    let ssz = reference::to_ssz(schema, ty, &json).expect("a value of the type");
    Some(Value {
        schema,
        ty,
        fork,
        json,
        ssz,
    })
}

/// Damages the body in some cases, and returns whether it has changed.
pub(super) fn damage(choices: &mut FuzzedChoices<'_>, body: &mut Vec<u8>) -> bool {
    let before = body.clone();
    if choices.below(3) > 0 {
        return false;
    }
    for _ in 0..1 + choices.below(3) {
        let at = choices.below(body.len() + 1);
        let end = (at + choices.below(40)).min(body.len());
        match choices.below(6) {
            0 => body.truncate(at),
            1 => drop(body.drain(at..end)),
            2 => body.insert(at, choices.byte()),
            3 if at < body.len() => body[at] = choices.byte(),
            4 if at < body.len() => body[at] ^= 1 << choices.below(8),
            _ => {
                let again = body[at..end].to_vec();
                body.extend(again);
            }
        }
    }
    *body != before
}

/// Returns the positions at which the pieces of a body end.
fn ends(choices: &mut FuzzedChoices<'_>, length: usize) -> Vec<usize> {
    let most = chosen(choices, &[1, 3, 64, 700, 1 << 20]);
    let mut ends = Vec::new();
    let mut end = 0;
    while end < length {
        // a decision per piece would use up the input
        let step = if ends.len() < 200 {
            1 + choices.below(most)
        } else {
            most
        };
        end = (end + step).min(length);
        ends.push(end);
    }
    ends
}

/// Returns a response of the node, and whether its framing is correct.
pub(super) fn node(
    choices: &mut FuzzedChoices<'_>,
    headers: Fields,
    body: Vec<u8>,
) -> (NodeResponse, bool) {
    let length = body.len() as u64;
    let (content_length, delimited, end, is_right) = match choices.below(10) {
        0..=3 => (Some(length), true, BodyEnd::Whole, true),
        4..=6 => (None, true, BodyEnd::Whole, true),
        7 => (None, false, BodyEnd::Whole, true),
        8 => (
            Some(length + 1 + choices.below(9) as u64),
            true,
            BodyEnd::Whole,
            false,
        ),
        _ => (None, true, BodyEnd::Cut, false),
    };
    let node = NodeResponse {
        status: 200,
        headers,
        content_length,
        delimited,
        ends: ends(choices, body.len()),
        body,
        end,
    };
    (node, is_right)
}

pub(super) fn is_short(node: &NodeResponse) -> bool {
    node.content_length
        .is_some_and(|length| length > node.body.len() as u64)
}

/// Returns the JSON in an envelope, in some notation, and whether the fork comes first.
fn envelope(choices: &mut FuzzedChoices<'_>, value: &Value) -> (Vec<u8>, bool) {
    let data = write(&value.json, choices);
    let name = value.fork.name();
    let (text, names_fork) = match choices.below(6) {
        0 | 1 => (format!("{{\"version\":\"{name}\",\"data\":{data}}}"), true),
        2 => (format!("{{\"data\":{data},\"version\":\"{name}\"}}"), false),
        3 => (format!("{{ \"finalized\" : true, \"data\":{data}\n}}"), false),
        4 => (format!("{{\"execution_optimistic\":false,\"finalized\":true,\"version\":\"{name}\",\"data\":{data}}}"), true),
        _ => (format!("{{\"extra\":[{{\"data\":1}}],\"version\":\"{name}\",\"data\":{data}}}\n"), true),
    };
    (text.into_bytes(), names_fork)
}

/// The node's response to a GET, with its properties.
pub(super) struct GeneratedResponse {
    pub(super) node: NodeResponse,
    pub(super) is_ssz: bool,
    /// The body without its content coding; `None` if the coding is damaged.
    pub(super) plain: Option<Vec<u8>>,
    /// Whether the value can be converted to either format.
    pub(super) is_right: bool,
}

pub(super) fn node_response(
    choices: &mut FuzzedChoices<'_>,
    value: &Value,
    is_same: bool,
    more: Fields,
) -> GeneratedResponse {
    let is_ssz = choices.below(2) == 1;
    let (mut body, names_fork) = match is_ssz {
        true => (value.ssz.clone(), false),
        false => envelope(choices, value),
    };
    let mut is_right = !damage(choices, &mut body);
    let media_type = if is_ssz { OCTETS } else { JSON };
    let mut headers = vec![
        field("Content-Type", media_type),
        field("ETag", "\"the-nodes\""),
    ];
    headers.extend(more);
    match choices.below(8) {
        0 => is_right &= is_same || !is_ssz && names_fork,
        1 => {
            let other = chosen(choices, Fork::ALL);
            headers.push(field(VERSION, other.name()));
            is_right &= is_same || other == value.fork;
        }
        2 if !is_same => {
            headers.push(field(VERSION, "unheard-of"));
            is_right = false;
        }
        _ => headers.push(field(VERSION, value.fork.name())),
    }
    let plain = body;
    let coding = match choices.below(8) {
        0 | 1 => Some("gzip"),
        2 | 3 => Some("zstd"),
        _ => None,
    };
    let (body, plain) = match coding {
        Some(coding) => {
            headers.push(field("Content-Encoding", coding));
            let mut coded = encode_body(coding, &plain);
            if choices.below(2) == 1 {
                is_right &= !damage(choices, &mut coded);
            }
            let plain = decompressed(coding, &coded);
            (coded, plain)
        }
        None => (plain.clone(), Some(plain)),
    };
    let (node, is_sent) = node(choices, headers, body);
    is_right &= is_sent && plain.is_some();
    GeneratedResponse {
        node,
        is_ssz,
        plain,
        is_right,
    }
}
