//! Repeated requests, which the cache may answer.

use sszip_core::response_mode::ResponseMode;

use super::super::fields::joined_header_values;
use super::super::reference::FuzzedChoices;
use super::node::{node_response, value};
use super::read::decoded;
use super::requests::{ACCEPTS, ROUTES};
use super::{chosen, field, place, send, CODINGS, JSON, OCTETS};

/// Checks that a hit equals the response that was sent before.
pub(super) fn check_repeated_request(choices: &mut FuzzedChoices<'_>) {
    let (target, name, is_same) = chosen(choices, &ROUTES);
    let Some(value) = value(choices, name) else {
        return;
    };
    let is_roomy = choices.below(2) == 0;
    let (process, config) = place(choices, is_roomy, &[("cache", "on")]);
    process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
    let fresh = vec![field("Cache-Control", "max-age=60")];
    // the first two may be stored; then both are requested again
    let mut got: [Option<(String, Vec<u8>)>; 2] = [None, None];
    for turn in 0..4 {
        let is_ssz = choices.below(2) == 1;
        let (accept, takes) = match is_ssz {
            true => chosen(choices, &ACCEPTS[..3]),
            false => chosen(choices, &ACCEPTS[3..8]),
        };
        let mut headers = vec![];
        if !accept.is_empty() {
            headers.push(field("Accept", accept));
        }
        let codings = chosen(choices, &CODINGS);
        if !codings.is_empty() {
            headers.push(field("Accept-Encoding", codings));
        }
        let response = node_response(choices, &value, is_same, fresh.clone());
        let answer = send(&config, "GET", target, headers, Vec::new(), response.node);
        if answer.mode != ResponseMode::Hit {
            let is_made = matches!(answer.mode, ResponseMode::Ssz | ResponseMode::Json);
            got[usize::from(is_ssz)] = is_made.then(|| {
                (
                    joined_header_values(&answer.fields, "Content-Type").unwrap(),
                    decoded(&answer),
                )
            });
            continue;
        }
        let media_type = joined_header_values(&answer.fields, "Content-Type").unwrap();
        assert_eq!(
            (answer.status, &*media_type),
            (200, if is_ssz { OCTETS } else { JSON }),
            "{turn}"
        );
        assert!(takes.accepts(is_ssz));
        let body = decoded(&answer);
        if let Some(before) = &got[usize::from(is_ssz)] {
            assert_eq!(*before, (media_type, body), "{turn}");
        }
    }
    drop(config);
    process.shared.hot_tier().unwrap().clear();
    assert_eq!(process.budget.reserved_bytes(), 0);
}
