//! Short compressed entries whose payloads are inlined in batches: the hot tier accounts for their
//! decoded bytes, and single hits are sent as before.

use sszip_core::exchange::LookupAction;

use crate::batch_off_loop::{answer, batch, call, config, look_up};
use crate::setup;

/// Returns a response with about `length` hexadecimal digits, half of them zeros.
fn node_response(block: usize, length: usize) -> String {
    let words = (0..length / 32).map(|n| {
        let word = (n + block * 1000 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{word:032x}")
    });
    let result: String = words.collect();
    format!(r#"{{"jsonrpc":"2.0","id":{block},"result":"0x{result}"}}"#)
}

#[test]
fn inlined_payloads_are_accounted_and_single_hits_unchanged() {
    let config = config();
    let hot = config.process.shared.hot_tier().unwrap();
    let single = |block: usize| {
        let (exchange, found) = look_up(&config, &call(block), true);
        assert_eq!(found, LookupAction::Respond);
        setup::body(&exchange)
    };
    let mut singles = Vec::new();
    for block in 0..10 {
        let (mut exchange, _) = look_up(&config, &call(block), true);
        answer(&mut exchange, &node_response(block, 3000));
        singles.push(single(block));
        assert!(singles[block].starts_with(&[0x1F, 0x8B]));
        assert_eq!(singles[block], single(block));
    }
    let before = hot.total_entry_weight();
    let batch = batch((0..10).map(call));
    let hit = || {
        let (exchange, found) = look_up(&config, &batch, true);
        assert_eq!(found, LookupAction::Respond);
        setup::body(&exchange)
    };
    let first = hit();
    // without another look-up of the entries
    let after = hot.total_entry_weight();
    assert!(
        (before + 10 * 2900..before + 10 * 3100).contains(&after),
        "{before} {after}"
    );
    assert_eq!(hit(), first);
    assert_eq!(hot.total_entry_weight(), after);
    for (block, bytes) in singles.iter().enumerate() {
        assert_eq!(&single(block), bytes);
    }
}
