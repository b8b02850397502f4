use super::{Class, IfFinal, Known, Prospect, Valid};
use crate::cache::chain::{Chain, Heights, Mark, Move, State};

const HASH: &str = "\"0x00000000000000000000000000000000000000000000000000000000000000aa\"";

fn class(method: &str, params: &str) -> Option<Class> {
    Prospect::of(
        method.as_bytes(),
        Some(params.as_bytes()),
        &Valid::default(),
    )
    .map(|prospect| prospect.class)
}

fn known(params: &str) -> Known<'_> {
    static VALID: Valid = Valid {
        classes: [None; Class::ALL.len()],
        methods: Vec::new(),
    };
    Known {
        params: Some(params.as_bytes()),
        mark: None,
        valid: &VALID,
    }
}

fn kept(method: &str, params: &str, result: &str) -> bool {
    Prospect::of(
        method.as_bytes(),
        Some(params.as_bytes()),
        &Valid::default(),
    )
    .is_some_and(|prospect| prospect.judge(result.as_bytes(), known(params)).is_some())
}

#[test]
fn the_class_follows_the_block_that_is_named() {
    let by_hash = format!("[{HASH},false]");
    assert_eq!(
        class("eth_getBlockByHash", &by_hash),
        Some(Class::Immutable)
    );
    for (block, expected) in [
        ("\"0x10\"", Some(Class::Unfinalized)),
        ("\"latest\"", Some(Class::Tip)),
        ("\"safe\"", Some(Class::Tip)),
        ("\"finalized\"", Some(Class::Tip)),
        ("\"earliest\"", Some(Class::Unfinalized)),
        ("\"pending\"", None),
        ("\"0x0010\"", None),
        ("16", None),
    ] {
        let params = format!("[{block},true]");
        assert_eq!(class("eth_getBlockByNumber", &params), expected, "{block}");
    }
}

#[test]
fn a_missing_block_is_the_latest() {
    let address = "\"0x00000000000000000000000000000000000000aa\"";
    assert_eq!(
        class("eth_getBalance", &format!("[{address}]")),
        Some(Class::Tip)
    );
    assert_eq!(
        class("eth_getLogs", "[{\"fromBlock\":\"0x1\"}]"),
        Some(Class::Tip)
    );
}

#[test]
fn what_changes_something_or_follows_no_block_is_not_kept() {
    for method in [
        "eth_sendRawTransaction",
        "eth_syncing",
        "engine_newPayloadV4",
        "eth_newFilter",
        "eth_getFilterChanges",
        "nobody_knowsThis",
    ] {
        assert_eq!(class(method, "[]"), None, "{method}");
    }
}

#[test]
fn a_null_receipt_is_not_cached_for_ever() {
    let params = format!("[{HASH}]");
    assert!(!kept("eth_getTransactionReceipt", &params, "null"));
    assert!(!kept(
        "eth_getBlockByHash",
        &format!("[{HASH},true]"),
        "null"
    ));
    let pending = "{\"blockHash\":null,\"blockNumber\":null}";
    assert!(!kept("eth_getTransactionByHash", &params, pending));
}

#[test]
fn empty_code_and_zero_balance_are_answers() {
    let params = "[\"0x00000000000000000000000000000000000000aa\",\"0x10\"]";
    assert!(kept("eth_getCode", params, "\"0x\""));
    assert!(kept("eth_getBalance", params, "\"0x0\""));
}

#[test]
fn the_block_of_an_answer_is_the_one_that_call_or_answer_names() {
    let block = |method: &str, params: &str, result: &str| {
        Prospect::of(
            method.as_bytes(),
            Some(params.as_bytes()),
            &Valid::default(),
        )
        .and_then(|prospect| prospect.judge(result.as_bytes(), known(params))?.block)
    };
    let by_hash = format!("[{HASH},true]");
    let result = format!("{{\"number\":\"0x11\",\"hash\":{HASH}}}");
    assert_eq!(
        block("eth_getBlockByNumber", "[\"0x10\",true]", "{}"),
        Some(16)
    );
    assert_eq!(block("eth_getBlockByHash", &by_hash, &result), Some(17));
    assert_eq!(block("eth_getBlockByHash", &by_hash, "{}"), None);
    assert_eq!(
        block("eth_getBlockByNumber", "[\"latest\",true]", &result),
        None
    );
    assert_eq!(block("eth_chainId", "[]", "\"0x1\""), None);
    let range = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x5\"}]";
    assert_eq!(block("eth_getLogs", range, "[]"), None);
}

/// Final up to block 96, the head is block 160, an answer told of 161.
fn mark() -> Mark {
    let mut state = State::unknown(Heights::Blocks, 1_000);
    state.moved(Move::Known(true));
    state.moved(Move::Head(160));
    state.moved(Move::Final(Some(96)));
    state.seen = 161;
    Chain::new(state).mark()
}

fn judged(method: &str, params: &str, result: &str, mark: &Mark) -> Option<(Class, Option<u64>)> {
    let known = Known {
        mark: Some(mark),
        ..known(params)
    };
    let params = Some(params.as_bytes());
    let judged =
        Prospect::of(method.as_bytes(), params, known.valid)?.judge(result.as_bytes(), known)?;
    assert_eq!(judged.valid, known.valid.class(judged.class));
    Some((judged.class, judged.height))
}

#[test]
fn what_was_final_when_the_node_was_asked_is_immutable() {
    const OTHER: &str = "\"0x00000000000000000000000000000000000000000000000000000000000000bb\"";
    let address = "\"0x00000000000000000000000000000000000000aa\"";
    let block = |number: u64| format!("{{\"number\":\"{number:#x}\",\"hash\":{HASH}}}");
    let part = |number: u64| {
        format!(
            "{{\"blockNumber\":\"{number:#x}\",\"blockHash\":{OTHER},\"transactionHash\":{HASH}}}"
        )
    };
    let range =
        |from: u64, to: u64| format!("[{{\"fromBlock\":\"{from:#x}\",\"toBlock\":\"{to:#x}\"}}]");
    let (by_hash, canonical) = (
        format!("[{HASH}]"),
        format!("[{{\"blockHash\":{OTHER},\"requireCanonical\":true}}]"),
    );
    let finals = Some((Class::Immutable, Some(96)));
    let short = |height| Some((Class::Unfinalized, height));
    let tip = |height| Some((Class::Tip, Some(height)));
    for (method, params, result, expected) in [
        (
            "eth_getBlockByNumber",
            "[\"0x60\",false]",
            &*block(96),
            finals,
        ),
        (
            "eth_getBlockByNumber",
            "[\"0x61\",false]",
            &block(97),
            short(Some(97)),
        ),
        // it is not what was asked for
        ("eth_getBlockByNumber", "[\"0x60\",false]", &block(97), None),
        ("eth_getBlockByNumber", "[\"0x60\",false]", "null", None),
        // the first block is not always the same one
        (
            "eth_getBlockByNumber",
            "[\"earliest\",false]",
            &block(0),
            short(None),
        ),
        (
            "eth_getBlockByNumber",
            "[\"finalized\",false]",
            &block(96),
            tip(161),
        ),
        (
            "eth_getBlockByNumber",
            "[\"latest\",false]",
            &block(161),
            tip(161),
        ),
        (
            "eth_getBlockByNumber",
            "[\"latest\",false]",
            &block(170),
            tip(170),
        ),
        (
            "eth_getBlockByNumber",
            "[\"latest\",false]",
            &block(160),
            None,
        ),
        ("eth_blockNumber", "[]", "\"0xa1\"", tip(161)),
        ("eth_blockNumber", "[]", "\"0xa0\"", None),
        ("eth_gasPrice", "[]", "\"0x1\"", tip(161)),
        (
            "eth_getBalance",
            &format!("[{address},\"0x60\"]"),
            "\"0x0\"",
            finals,
        ),
        (
            "eth_getBalance",
            &format!("[{address},\"0x0\"]"),
            "\"0x0\"",
            Some((Class::Immutable, Some(0))),
        ),
        (
            "eth_getBalance",
            &format!("[{address}]"),
            "\"0x0\"",
            tip(161),
        ),
        (
            "eth_getCode",
            &format!("[{address},\"0x60\"]"),
            "\"0x\"",
            finals,
        ),
        (
            "eth_getBlockByHash",
            &format!("[{HASH},false]"),
            &block(150),
            Some((Class::Immutable, Some(150))),
        ),
        (
            "eth_getBlockByHash",
            &format!("[{OTHER},false]"),
            &block(150),
            None,
        ),
        (
            "eth_getBlockReceipts",
            &canonical,
            &format!("[{}]", part(96)),
            finals,
        ),
        (
            "eth_getBlockReceipts",
            &canonical,
            &format!("[{}]", part(97)),
            short(Some(97)),
        ),
        ("eth_getBlockReceipts", "[\"0x60\"]", "[]", short(Some(96))),
        (
            "eth_getLogs",
            &range(1, 96),
            &format!("[{}]", part(96)),
            finals,
        ),
        // a node that has block 95 may have said so
        (
            "eth_getLogs",
            &range(1, 96),
            &format!("[{}]", part(95)),
            short(Some(96)),
        ),
        ("eth_getLogs", &range(1, 96), "[{}]", short(Some(96))),
        ("eth_getLogs", &range(1, 96), "[]", short(Some(96))),
        ("eth_getLogs", &range(90, 97), "[{}]", short(Some(97))),
        ("eth_getLogs", &range(90, 160), "[{}]", short(Some(160))),
        // the next block will add to it
        ("eth_getLogs", &range(90, 161), "[{}]", tip(161)),
        ("eth_getLogs", "[{\"fromBlock\":\"0x1\"}]", "[{}]", tip(161)),
        ("eth_getTransactionReceipt", &by_hash, &part(96), finals),
        (
            "eth_getTransactionReceipt",
            &by_hash,
            &part(97),
            short(Some(97)),
        ),
        (
            "eth_getTransactionReceipt",
            &format!("[{OTHER}]"),
            &part(96),
            None,
        ),
        ("debug_traceTransaction", &by_hash, "{}", short(None)),
        (
            "eth_chainId",
            "[]",
            "\"0x1\"",
            Some((Class::Immutable, None)),
        ),
    ] {
        let judged = judged(method, params, result, &mark());
        assert_eq!(judged, expected, "{method} {params} {result}");
    }
}

#[test]
fn what_the_node_may_say_otherwise_next_time_is_not_for_ever() {
    let number = "[\"0x60\",{\"tracer\":\"callTracer\"}]";
    let by_hash = format!("[{HASH}]");
    let block =
        |number: u64, more: &str| format!("{{\"number\":\"{number:#x}\",\"hash\":{HASH}{more}}}");
    let (null, batch) = (",\"l1BatchNumber\":null", ",\"l1BatchNumber\":\"0x1\"");
    let timeout = "[{\"result\":{}},{\"error\":\"execution timeout\"}]";
    let reverted = "[{\"result\":{\"error\":\"execution reverted\"}}]";
    let immutable = |height| Some((Class::Immutable, height));
    let short = |height| Some((Class::Unfinalized, Some(height)));
    for (method, params, result, expected) in [
        (
            "debug_traceBlockByNumber",
            number,
            reverted,
            immutable(Some(96)),
        ),
        ("debug_traceBlockByNumber", number, timeout, None),
        ("debug_traceBlockByNumber", "[\"latest\"]", timeout, None),
        ("trace_replayBlockTransactions", number, timeout, None),
        ("debug_traceBlockByHash", &by_hash, timeout, None),
        (
            "debug_traceBlockByHash",
            &by_hash,
            reverted,
            immutable(None),
        ),
        // it is in a batch of another chain some hours later
        (
            "eth_getBlockByNumber",
            "[\"0x60\",true]",
            &block(96, batch),
            immutable(Some(96)),
        ),
        (
            "eth_getBlockByNumber",
            "[\"0x60\",true]",
            &block(96, null),
            short(96),
        ),
        (
            "eth_getBlockByHash",
            &by_hash,
            &block(90, batch),
            immutable(Some(90)),
        ),
        ("eth_getBlockByHash", &by_hash, &block(90, null), short(90)),
        (
            "eth_getLogs",
            "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x60\"}]",
            "[{\"blockNumber\":\"0x60\",\"l1BatchNumber\":null}]",
            short(96),
        ),
        // no block may ever have that hash
        (
            "eth_getBlockByHash",
            &by_hash,
            &block(160, ""),
            immutable(Some(160)),
        ),
        (
            "eth_getBlockByHash",
            &by_hash,
            &block(161, ""),
            Some((Class::Tip, Some(161))),
        ),
        (
            "eth_getBlockByNumber",
            "[\"0xa1\",true]",
            &block(161, ""),
            Some((Class::Tip, Some(161))),
        ),
    ] {
        let judged = judged(method, params, result, &mark());
        assert_eq!(judged, expected, "{method} {params} {result}");
    }
    // without a chain that is followed, too
    let timeless = |result: &str| {
        let prospect = Prospect::of(
            b"eth_getBlockByHash",
            Some(by_hash.as_bytes()),
            known("").valid,
        )?;
        let judged = prospect.judge(result.as_bytes(), known(&by_hash))?;
        Some(judged.class)
    };
    assert_eq!(timeless(&block(1, null)), Some(Class::Unfinalized));
    assert_eq!(timeless(&block(1, batch)), Some(Class::Immutable));
}

#[test]
fn methods_of_one_client_are_judged_by_what_they_name() {
    let by_hash = format!("[{HASH}]");
    let part = |number: &str| {
        format!("{{\"blockNumber\":{number},\"blockHash\":{HASH},\"transactionHash\":{HASH}}}")
    };
    let context = "[[],{\"blockNumber\":\"0x60\",\"transactionIndex\":-1}]";
    let immutable = |height| Some((Class::Immutable, height));
    for (method, params, result, expected) in [
        (
            "eth_getStorageValues",
            "[{},\"0x60\"]",
            "{}",
            immutable(Some(96)),
        ),
        (
            "eth_getStorageValues",
            "[{}]",
            "{}",
            Some((Class::Tip, Some(161))),
        ),
        (
            "eth_getBlockAccessList",
            "[\"0x60\"]",
            "[{}]",
            immutable(Some(96)),
        ),
        ("eth_callMany", context, "[[{}]]", immutable(Some(96))),
        (
            "eth_callMany",
            "[[],{}]",
            "[[{}]]",
            Some((Class::Tip, Some(161))),
        ),
        ("trace_get", &by_hash, &part("96"), immutable(Some(96))),
        (
            "trace_get",
            &by_hash,
            &part("97"),
            Some((Class::Unfinalized, Some(97))),
        ),
        (
            "arbtrace_block",
            "[\"0x60\"]",
            &format!("[{}]", part("96")),
            immutable(Some(96)),
        ),
        ("erigon_getLogsByHash", &by_hash, "[[]]", immutable(None)),
        (
            "ots_hasCode",
            "[\"0xaa\",\"0x60\"]",
            "true",
            immutable(Some(96)),
        ),
        // Erigon reads it as a number, others may not
        ("ots_getBlockTransactions", "[96,0,2]", "{}", None),
        ("eth_config", "[]", "{}", Some((Class::Config, None))),
        (
            "eth_capabilities",
            "[]",
            "{}",
            Some((Class::Tip, Some(161))),
        ),
        (
            "zks_getBlockDetails",
            "[96]",
            "{}",
            Some((Class::Tip, Some(161))),
        ),
        // as nodes say that there is none
        ("debug_getRawBlock", "[\"0x60\"]", "\"0x\"", None),
        (
            "debug_getRawBlock",
            "[\"0x60\"]",
            "\"0xf9\"",
            immutable(Some(96)),
        ),
        (
            "eth_getRawTransactionByBlockHashAndIndex",
            &by_hash,
            "\"0x\"",
            None,
        ),
        ("eth_getRawTransactionByHash", &by_hash, "\"0x\"", None),
        (
            "eth_getRawTransactionByHash",
            &by_hash,
            "\"0x02\"",
            Some((Class::Unfinalized, None)),
        ),
    ] {
        let judged = judged(method, params, result, &mark());
        assert_eq!(judged, expected, "{method} {params} {result}");
    }
}

#[test]
fn a_range_that_may_be_cut_short_is_believed_when_it_comes_again() {
    let judge = |range: &str, result: &str, valid: &Valid| {
        let mark = mark();
        let known = Known {
            params: Some(range.as_bytes()),
            mark: Some(&mark),
            valid,
        };
        let prospect = Prospect::of(b"trace_filter", known.params, valid)?;
        let judged = prospect.judge(result.as_bytes(), known)?;
        Some((judged.class, judged.valid, judged.if_repeated))
    };
    let mut valid = Valid::default();
    let (cut, whole) = ("[{\"blockNumber\":95}]", "[{},{\"blockNumber\":96}]");
    let range = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x60\"}]";
    let young = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x61\"}]";
    let (short, long) = (2_000, 3_600_000);
    assert_eq!(
        judge(range, cut, &valid),
        Some((Class::Unfinalized, short, Some(long)))
    );
    assert_eq!(
        judge(range, whole, &valid),
        Some((Class::Immutable, long, None))
    );
    // nothing may be true again and again
    assert_eq!(
        judge(range, "[]", &valid),
        Some((Class::Unfinalized, short, None))
    );
    assert_eq!(
        judge(young, cut, &valid),
        Some((Class::Unfinalized, short, None))
    );
    // what is not kept meanwhile is remembered all the same
    valid.set_class(Class::Unfinalized, 0).unwrap();
    assert_eq!(
        judge(range, cut, &valid),
        Some((Class::Unfinalized, 0, Some(long)))
    );
    valid.set_class(Class::Immutable, 0).unwrap();
    assert_eq!(judge(range, cut, &valid), None);
}

#[test]
fn a_trace_may_be_of_a_final_block() {
    let if_final = |method: &str, params: &str, mark: Option<&Mark>| {
        let known = Known {
            mark,
            ..known(params)
        };
        let params = Some(params.as_bytes());
        let prospect = Prospect::of(method.as_bytes(), params, known.valid).unwrap();
        prospect.judge(b"{\"gas\":1}", known)?.if_final
    };
    let (mark, params) = (mark(), format!("[{HASH},{{}}]"));
    let expected = IfFinal {
        transaction: *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xaa",
        last: 96,
        valid: 3_600_000,
    };
    for method in ["debug_traceTransaction", "trace_replayTransaction"] {
        assert_eq!(if_final(method, &params, Some(&mark)), Some(expected));
        assert_eq!(if_final(method, &params, None), None);
        assert_eq!(if_final(method, "[\"0xaa\"]", Some(&mark)), None);
    }
    // it says so itself, and does not here
    assert_eq!(
        if_final("eth_getTransactionReceipt", &params, Some(&mark)),
        None
    );
    assert_eq!(if_final("eth_gasPrice", "[]", Some(&mark)), None);
    // "0x": there was none, or the node did not know the transaction
    let known = Known {
        mark: Some(&mark),
        ..known(&params)
    };
    let prospect = Prospect::of(b"ots_getTransactionError", known.params, known.valid).unwrap();
    assert_eq!(prospect.judge(b"\"0x\"", known).unwrap().if_final, None);
    assert!(prospect
        .judge(b"\"0x08c3\"", known)
        .unwrap()
        .if_final
        .is_some());
}

#[test]
fn without_a_final_block_nothing_is_final() {
    let mut state = State::unknown(Heights::Blocks, 1_000);
    let params = "[\"0x00000000000000000000000000000000000000aa\",\"0x60\"]";
    let class = |state: &State| {
        let mark = Chain::new(state.clone()).mark();
        judged("eth_getBalance", params, "\"0x0\"", &mark).map(|(class, _)| class)
    };
    assert_eq!(class(&state), Some(Class::Unfinalized));
    state.moved(Move::Final(Some(96)));
    // nor while nobody knows which chain it is
    assert_eq!(class(&state), Some(Class::Unfinalized));
    state.moved(Move::Known(true));
    assert_eq!(class(&state), Some(Class::Immutable));
    // slots are other numbers
    state.heights = Heights::Slots;
    assert_eq!(class(&state), Some(Class::Unfinalized));
    state.moved(Move::Wrong(true));
    assert_eq!(class(&state), None);
}

#[test]
fn an_operator_has_the_last_word_except_on_nothing() {
    let mut valid = Valid::default();
    valid.set_class(Class::Tip, 0).unwrap();
    valid.set_method(b"eth_gasPrice", 500).unwrap();
    valid.set_method(b"my_method", 700).unwrap();
    let lifetime = |method: &str| {
        Prospect::of(method.as_bytes(), None, &valid)
            .and_then(|prospect| {
                let known = Known {
                    valid: &valid,
                    ..known("[]")
                };
                prospect.judge(b"1", known)
            })
            .map(|judged| judged.valid)
    };
    assert_eq!(lifetime("eth_blockNumber"), None);
    assert_eq!(lifetime("eth_gasPrice"), Some(500));
    assert_eq!(lifetime("my_method"), Some(700));
    assert!(valid.set_class(Class::Tip, 1).is_err());
    assert!(valid.set_method(b"my_method", 1).is_err());
}
