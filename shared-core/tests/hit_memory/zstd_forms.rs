//! Memory of responses that are decompressed to be compressed with zstd.

use sszip_core::cache::reason::Reason;
use sszip_core::exchange::{Exchange, LookupAction};
use sszip_core::gzip::inflate::gunzip_reserved;

use super::{answer, batch, body_of, call, has_coding, is_gzip, Host, LONG, MEMORY};
use crate::unzstd::unzstd;

fn is_zstd(exchange: &Exchange) -> bool {
    has_coding(exchange, b"zstd")
}

#[test]
fn zstd_form_is_sent_without_a_reservation_once_it_is_made() {
    let host = Host::with_settings(&["zstd on"]);
    host.store(1, LONG);
    let clients: Vec<Exchange> = (0..60)
        .map(|_| {
            let (exchange, found) = host.request(&call(1), "gzip, zstd");
            assert_eq!(found, LookupAction::Respond);
            assert!(is_zstd(&exchange) && host.used() == 0, "{}", host.used());
            exchange
        })
        .collect();
    assert!(clients
        .iter()
        .all(|client| unzstd(&body_of(client)).unwrap() == answer(1, LONG).as_bytes()));
    // clients of identity still share one reservation
    let (plain, found) = host.request(&call(1), "");
    assert_eq!(found, LookupAction::Respond);
    assert!((LONG..2 * LONG).contains(&host.used()), "{}", host.used());
    drop(plain);
    assert_eq!(host.used(), 0);
}

#[test]
fn hit_is_sent_as_gzip_or_forwarded_when_its_zstd_form_exceeds_the_budget() {
    let host = Host::with_settings(&["zstd on"]);
    for block in 0..4 {
        host.store(block, LONG);
    }
    assert!(is_zstd(&host.request(&call(2), "zstd").0));
    let clients: Vec<_> = (0..2).map(|block| host.request(&call(block), "")).collect();
    let used = host.used();
    assert!(used >= 2 * LONG && used + LONG > MEMORY, "{used}");
    // the client accepts both
    let (exchange, found) = host.request(&call(3), "gzip, zstd");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_gzip(&exchange));
    assert_eq!(
        gunzip_reserved(&body_of(&exchange), 2 * LONG).unwrap(),
        answer(3, LONG).as_bytes()
    );
    for accept in ["zstd", "zstd, identity;q=0"] {
        let (exchange, found) = host.request(&call(3), accept);
        assert_eq!(found, LookupAction::Forward, "{accept}");
        assert_eq!(exchange.cache_reason(), Reason::Memory);
    }
    // the form that is kept needs no memory
    let (exchange, found) = host.request(&call(2), "zstd");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_zstd(&exchange) && host.used() == used);
    drop((clients, exchange));
    assert!(is_zstd(&host.request(&call(3), "gzip, zstd").0));
    assert_eq!(host.used(), 0);
}

#[test]
fn batch_in_zstd_reserves_the_longest_payload_that_it_decodes() {
    let host = Host::with_settings(&["zstd on"]);
    for block in 0..6 {
        host.store(block, LONG);
    }
    let clients: Vec<_> = (0..2).map(|block| host.request(&call(block), "")).collect();
    let (coded, found) = host.request(&batch(2..6), "gzip, zstd");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_gzip(&coded));
    let (exchange, found) = host.request(&batch(2..6), "zstd");
    assert_eq!(found, LookupAction::Forward);
    drop((clients, coded, exchange));
    // six payloads would exceed the budget together
    let (all, found) = host.request(&batch(0..6), "gzip, zstd");
    assert_eq!(found, LookupAction::Respond);
    assert!(is_zstd(&all));
    let used = host.used();
    assert!((LONG..2 * LONG).contains(&used), "{used}");
    let texts: Vec<String> = (0..6).map(|block| answer(block, LONG)).collect();
    let expected = format!("[{}]", texts.join(","));
    assert!(unzstd(&body_of(&all)).unwrap() == expected.as_bytes());
    // their forms are kept
    let (again, found) = host.request(&batch(0..6), "zstd");
    assert_eq!((found, host.used()), (LookupAction::Respond, used));
    assert!(body_of(&again) == body_of(&all));
    drop((all, again));
    assert_eq!(host.used(), 0);
}

#[test]
fn client_that_refuses_identity_receives_zstd_of_uncompressed_entries() {
    let host = Host::with_settings(&["zstd on"]);
    host.store(1, 10);
    host.store(2, 10);
    for accept in ["zstd, identity;q=0", "gzip, zstd, *;q=0"] {
        for (body, expected) in [
            (call(1), answer(1, 10)),
            (
                batch(1..3),
                format!("[{},{}]", answer(1, 10), answer(2, 10)),
            ),
        ] {
            let (hit, found) = host.request(&body, accept);
            assert_eq!(found, LookupAction::Respond);
            assert!(is_zstd(&hit), "{accept}");
            assert_eq!(unzstd(&body_of(&hit)).unwrap(), expected.as_bytes());
        }
    }
    let (hit, _) = host.request(&call(1), "gzip, zstd");
    assert!(!is_zstd(&hit) && !is_gzip(&hit));
}
