//! The result of a JSON-RPC call.

use sszip_core::ssz::{Fork, Preset, Schema};

use super::super::fields::joined_header_values;
use super::super::properties::write;
use super::super::reference::{self, FuzzedChoices};
use super::node::{damage, node};
use super::read::{decoded, is_of, members};
use super::{chosen, field, place, send, CODINGS, JSON, OCTETS};

pub(super) fn check_result(choices: &mut FuzzedChoices<'_>) {
    let (method, name) = chosen(
        choices,
        &[
            ("debug_getRawBlock", "ByteString"),
            ("debug_getRawReceipts", "ByteStrings"),
            ("eth_getCode", "ByteString"),
        ],
    );
    let schema = Schema::for_fork(Fork::Phase0, Preset::Minimal);
    let ty = schema.find_type(name).expect("a type of every fork");
    let json = reference::choose(schema, ty, choices);
    let text = write(&json, choices);
    let mut body = match choices.below(5) {
        0 => format!("{{\"id\":7,\"jsonrpc\":\"2.0\",\"result\":{text}}}\n"),
        1 => format!("{{\"jsonrpc\":\"2.0\",\"result\":{text},\"id\":7}}"),
        2 => "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32000,\"message\":\"no\"}}".into(),
        3 => "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":null}".into(),
        _ => format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{text}}}"),
    }
    .into_bytes();
    damage(choices, &mut body);
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[]);
    let mut headers = vec![field("Content-Type", JSON), field("Accept", OCTETS)];
    let codings = chosen(choices, &CODINGS);
    if !codings.is_empty() {
        headers.push(field("Accept-Encoding", codings));
    }
    let call = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{method}\",\"params\":[]}}");
    let (node, is_right) = node(choices, vec![field("Content-Type", JSON)], body.clone());
    let answer = send(&config, "POST", "/", headers, call.into_bytes(), node);
    let about = || {
        format!(
            "{method} {:?} {} {:?}",
            answer.mode, answer.status, answer.fields
        )
    };
    let label = joined_header_values(&answer.fields, "Sszip-Type");
    assert_eq!(label.is_some(), is_of(&answer, OCTETS), "{}", about());
    match label {
        _ if !is_right => {}
        Some(label) => {
            assert_eq!(
                (label, answer.status),
                (format!("{name};v=1"), 200),
                "{}",
                about()
            );
            let ssz = decoded(&answer);
            if let Some(result) = members(&body, "result") {
                assert_eq!(result.len(), 1, "{}", about());
                assert_eq!(
                    reference::to_ssz(schema, ty, &result[0]),
                    Some(ssz),
                    "{}",
                    about()
                );
            }
        }
        None if answer.status == 502 => {
            assert!(!is_roomy, "{}", about());
            assert!(
                answer.body.is_empty() || members(&answer.body, "error").is_some(),
                "{}",
                about()
            );
        }
        None => assert_eq!(decoded(&answer), body, "{}", about()),
    }
    drop((answer, config));
    assert_eq!(process.budget.reserved_bytes(), 0);
}
