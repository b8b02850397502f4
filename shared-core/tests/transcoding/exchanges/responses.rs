//! The response that a client receives.

use sszip_core::response_mode::ResponseMode;

use super::super::driver_host::BodyEnd;
use super::super::fields::{joined_header_values, Fields};
use super::super::reference::{self, FuzzedChoices, Json};
use super::node::{is_short, node_response, value};
use super::read::{decoded, is_of, members, type_in};
use super::requests::{ACCEPTS, ROUTES};
use super::{chosen, field, place, send, CODINGS, JSON, OCTETS, VERSION};

pub(super) fn check_response(choices: &mut FuzzedChoices<'_>) {
    let (target, name, is_same) = chosen(choices, &ROUTES);
    let Some(value) = value(choices, name) else {
        return;
    };
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[]);
    let (accept, takes) = chosen(choices, &ACCEPTS);
    let codings = chosen(choices, &CODINGS);
    let mut headers = Fields::new();
    if !accept.is_empty() {
        headers.push(field("Accept", accept));
    }
    if !codings.is_empty() {
        headers.push(field("Accept-Encoding", codings));
    }
    let response = node_response(choices, &value, is_same, Fields::new());
    let is_coded = joined_header_values(&response.node.headers, "Content-Encoding").is_some();
    let (wire, plain) = (response.node.body.clone(), response.plain.clone());
    let media_type = if response.is_ssz { OCTETS } else { JSON };
    let is_whole = response.node.end == BodyEnd::Whole && !is_short(&response.node);
    let answer = send(&config, "GET", target, headers, Vec::new(), response.node);
    let is_to_change = takes
        .prefers_ssz()
        .is_some_and(|wants| wants != response.is_ssz);
    let about = || {
        format!(
            "{target} {accept:?} {:?} {} {:?}",
            answer.mode, answer.status, answer.fields
        )
    };

    let first = is_same.then_some(value.fork);
    match answer.mode {
        // aborted, or a local reply of the host
        _ if answer.status == 502 || !is_whole => {
            assert!(!response.is_right || !is_roomy, "{}", about());
            assert!(
                answer.status == 502
                    || takes.accepts(is_of(&answer, OCTETS))
                    || matches!(answer.status, 406 | 503)
            );
        }
        ResponseMode::Ssz => {
            assert!(is_to_change && is_of(&answer, OCTETS), "{}", about());
            let (schema, ty) = type_in(&answer, name, first);
            let ssz = decoded(&answer);
            assert!(
                reference::to_json(schema, ty, &ssz).is_some(),
                "{}",
                about()
            );
            let plain = plain.unwrap();
            if let (Some(named), false) = (members(&plain, "version"), is_same) {
                // header and envelope agree
                let fork = joined_header_values(&answer.fields, VERSION).unwrap();
                assert!(named.iter().all(|it| *it == Json::Text(fork.clone())));
            }
            if let Some(data) = members(&plain, "data") {
                assert_eq!(data.len(), 1, "{}", about());
                assert_eq!(
                    reference::to_ssz(schema, ty, &data[0]),
                    Some(ssz),
                    "{}",
                    about()
                );
            }
        }
        ResponseMode::Json => {
            assert!(is_to_change && is_of(&answer, JSON), "{}", about());
            let (schema, ty) = match first {
                Some(_) => (value.schema, value.ty),
                None => type_in(&answer, name, None),
            };
            let json = members(&decoded(&answer), "data").expect("JSON");
            assert_eq!(
                reference::to_ssz(schema, ty, &json[0]),
                plain,
                "{}",
                about()
            );
        }
        _ if matches!(answer.status, 406 | 503) => {
            assert!(
                is_to_change && !takes.accepts(response.is_ssz),
                "{}",
                about()
            );
            assert!(!response.is_right || !is_roomy, "{}", about());
            let is_memory = answer.mode == ResponseMode::Memory;
            assert_eq!(answer.status == 503, is_memory, "{}", about());
            let code = members(&decoded(&answer), "code").expect("JSON");
            assert!(
                is_of(&answer, JSON) && code == [Json::Number],
                "{}",
                about()
            );
        }
        _ => {
            assert!(is_of(&answer, media_type), "{}", about());
            assert!(
                !is_to_change || takes.accepts(response.is_ssz),
                "{}",
                about()
            );
            assert!(
                !is_to_change || !response.is_right || !is_roomy,
                "{}",
                about()
            );
            match joined_header_values(&answer.fields, "Content-Encoding") {
                // a body that cannot or need not be decompressed is sent unchanged
                Some(_) if is_coded && answer.body == wire => {}
                _ => assert_eq!(Some(decoded(&answer)), plain, "{}", about()),
            }
        }
    }
    let vary = joined_header_values(&answer.fields, "Vary").unwrap_or_default();
    assert!(
        answer.status == 502 || vary.split(", ").any(|one| one == "Accept"),
        "{}",
        about()
    );
    if codings.is_empty() && matches!(answer.mode, ResponseMode::Ssz | ResponseMode::Json) {
        assert_eq!(
            joined_header_values(&answer.fields, "Content-Encoding"),
            None
        );
    }
    drop((answer, config));
    assert_eq!(process.budget.reserved_bytes(), 0);
}
