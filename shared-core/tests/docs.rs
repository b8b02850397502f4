//! Generated documents: `docs/methods.md` equals the method table, and
//! `configs/envoy/sszip.schema.json` and the head of each section of `docs/directives.md` equal
//! the setting tables.
//!
//! After a change of these: `SSZIP_WRITE_DOCS=1 cargo test --test docs`.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::fmt::Write;
use std::fs;
use std::path::Path;

use sszip_core::cache::class::Class;
use sszip_core::cache::freshness::Lifetimes;
use sszip_core::config::directive_page;
use sszip_core::config::schema::schema;
use sszip_core::jsonrpc::method_spec::{to_spec, FORMS};
use sszip_core::jsonrpc::methods::{self, BlockParam, Method, ResultBlockPath};

const ABOVE: &str = "\
<!-- Made from shared-core/src/jsonrpc/methods.rs by the test `docs`; do not edit. -->

# Methods

What is kept of a JSON-RPC answer depends on the block that it is about. An
**immutable** answer never changes: it is of a block that its hash names, or of
the chain alone. An answer **by finality** is of a block that is named by its
number, or of a transaction: as long as that block may still be replaced by
another one it is `unfinalized` and kept for a short time, and once the block is
final it is immutable too. Which blocks are final is known where
`sszip_cache_head` (or `[[head]]` in cached.toml) names a node to follow, and
judged by what was known when the node was asked; without it nothing is final but
what a hash names.

A **tip** answer depends on the head of the chain and is over with the next block;
so is one by finality that was asked at `latest`, `safe` or `finalized`, or
without a block, which means `latest`. What was asked at `pending` is not kept,
and neither is anything of a method that is **never** kept: one that changes
something, belongs to one caller or says how one node is. A **config** answer says
how the chain's nodes are set up, which an upgrade changes. A method that is not in
the table is among those, unless [an operator adds it](#methods-of-your-own). Errors and `null` are not kept, whatever the
method; nor is a trace of a block of which one transaction has an `error` in place
of a trace (one that is a trace itself has the `error` of a call that reverted). What is of a block above the followed head is a tip, and what has
an `l1BatchNumber` of `null` is `unfinalized`, though a hash names its block.
`p[0]` is a call's first parameter; where a block can be given by its hash too, or
in an object of EIP-1898 (without `requireCanonical`), an answer for a hash is
immutable.

";

const OWN: &str = "\
## Methods of your own

```nginx
sszip_cache_method acme_getPositions   block=p[1];
sszip_cache_method acme_getTrade       block=result.receipt.blockNumber;
sszip_cache_method acme_getVersion     class=config;
sszip_cache_method eth_getProof        class=none;
```

What its answers depend on, of a method that is not in the table or in place of its row (in
Envoy `cache_method: [\"acme_getPositions block=p[1]\", ...]`). They are kept, found final, and
gone with a new head or a reorganisation as those of the methods below, of which the last
column says the same in these words:

| | An answer depends on |
|---|---|
";

const BESIDE: &str = "
Beside `block=p[N]` there may be `block=result.MEMBER`, where the answer says its block too: one
that is of another block than was asked for is not kept, nor is one that is of none of the last
eight blocks of the chain as it is known, or of a head behind the newest that was sent.
`sszip_cache_valid METHOD TIME` says for how long its answers are kept, whatever their class; a
method of which there is only that is a tip.

- Say of which block the *whole* answer is. What depends on anything else (a time, who asks,
  another chain, what the node happens to have) is `class=none`, or `class=tip` if an answer
  that is a block old does no harm.
- Where nothing is found (`null`, a transaction that is in no block) nothing is kept for long,
  and where a member's name could be taken for the one that was said (`BLOCKNUMBER`) nothing at
  all. A list of which a part has an `error` is not kept.
- Methods that change or follow something are refused, as by
  [`sszip_cache_valid`](directives.md#sszip_cache_valid).
- A block of the configuration that has rows has these only, and none of the block around it.
- What is stored already stays as it was stored: purge it (`?method=NAME`) where a row has
  changed.
- Metrics and the status page count methods that are not in the table as `other`, with a row
  or without: their names are a closed set.

## Ours

";

/// Formats milliseconds in the largest unit without a fraction.
fn time(milliseconds: u64) -> String {
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let (unit, name) = units
        .into_iter()
        .find(|(unit, _)| milliseconds.is_multiple_of(*unit))
        .unwrap();
    format!("`{}{name}`", milliseconds / unit)
}

fn class(row: &Method) -> &'static str {
    match row.class {
        methods::Class::Immutable => "immutable",
        methods::Class::ByFinality => "by finality",
        methods::Class::Tip => "tip",
        methods::Class::Config => "config",
        methods::Class::Never => "never",
    }
}

fn is_never(row: &Method) -> bool {
    row.class == methods::Class::Never
}

fn block(row: &Method) -> String {
    match row.at {
        _ if is_never(row) => String::new(),
        BlockParam::None if row.in_result == ResultBlockPath::Itself => {
            "the answer is the head's number".into()
        }
        BlockParam::None => "none".into(),
        BlockParam::Hash(n) => format!("`p[{n}]`, a hash"),
        BlockParam::Number(n) => format!("`p[{n}]`, a number or a tag"),
        BlockParam::Param(n) => format!("`p[{n}]`"),
        BlockParam::ParamMember(n, member, _) => format!("`p[{n}].{member}`"),
        BlockParam::Range(n, _) => {
            format!("`p[{n}].fromBlock` and `.toBlock`, or `.blockHash`")
        }
        BlockParam::Result => match row.in_result {
            ResultBlockPath::None => "its transaction's, which the answer does not name".into(),
            _ => "in the answer".into(),
        },
    }
}

fn finality(row: &Method) -> &'static str {
    match (row.class, row.at) {
        (methods::Class::Never, _) => "",
        (methods::Class::Tip | methods::Class::Config, _) => "nothing",
        (methods::Class::Immutable, BlockParam::None) => "it always is",
        (_, BlockParam::Hash(_)) => "its hash",
        (_, BlockParam::Number(_)) => "its number, once that is final",
        (_, BlockParam::Range(..)) => {
            "`toBlock`, once that is final and the answer has a part of it or was the same \
             ten seconds before, or the hash"
        }
        (_, BlockParam::Result) if row.in_result == ResultBlockPath::None => {
            "its transaction's block, which the node is asked for, once that is final"
        }
        (_, BlockParam::Result) => "the answer's block, once that is final",
        (_, _) => "its number, once that is final, or its hash",
    }
}

fn lifetime(row: &Method) -> String {
    let valid = Lifetimes::default();
    let of = |class| time(valid.class(class));
    let immutable = of(Class::Immutable);
    let unfinalized = of(Class::Unfinalized);
    let tip = of(Class::Tip);
    match (row.class, row.at) {
        (methods::Class::Never, _) => String::new(),
        (methods::Class::Tip, _) => tip,
        (methods::Class::Config, _) => of(Class::Config),
        (methods::Class::Immutable, _) | (_, BlockParam::Hash(_)) => immutable,
        (_, BlockParam::Result) => format!("{unfinalized}, final {immutable}"),
        _ => format!("{unfinalized}, final {immutable}, at a tag {tip}"),
    }
}

fn page() -> String {
    let mut page = String::from(ABOVE);
    page.push_str(OWN);
    for (form, meaning) in FORMS {
        writeln!(page, "| `{form}` | {meaning} |").unwrap();
    }
    page.push_str(BESIDE);
    page.push_str(
        "| Method | Class | Its block | What makes it final | Kept for | As `sszip_cache_method` has it |\n",
    );
    page.push_str("|---|---|---|---|---|---|\n");
    for row in methods::all() {
        let (class, block) = (class(row), block(row));
        let (finality, lifetime) = (finality(row), lifetime(row));
        writeln!(
            page,
            "| `{}` | {class} | {block} | {finality} | {lifetime} | `{}` |",
            row.name,
            to_spec(row)
        )
        .unwrap();
    }
    page
}

/// Returns whether the file has this text; with `SSZIP_WRITE_DOCS` it is written first.
fn is_current(name: &str, text: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    if std::env::var_os("SSZIP_WRITE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default() == text
}

#[test]
fn committed_method_table_equals_the_generated_page() {
    assert!(
        is_current("docs/methods.md", &page()),
        "docs/methods.md is not what the method table says: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}

/// Returns the page with the head of each section as the settings define it. The text below a
/// head is written by hand.
fn with_heads(mut text: String) -> String {
    for (directive, head) in directive_page::directive_heads() {
        let above = format!("\n### {directive}\n\n```\n");
        let at = text.find(&above).map(|at| at + above.len());
        let at = at
            .unwrap_or_else(|| panic!("docs/directives.md has no section {directive} with a head"));
        let end = text[at..].find("```").unwrap();
        text.replace_range(at..at + end, &head);
    }
    text
}

#[test]
fn heads_of_the_directives_equal_the_settings() {
    let name = "docs/directives.md";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let text = with_heads(fs::read_to_string(page).unwrap());
    assert!(
        is_current(name, &text),
        "{name} is not what settings are read with: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}

#[test]
fn committed_schema_equals_the_generated_schema() {
    let name = "configs/envoy/sszip.schema.json";
    assert!(
        is_current(name, &format!("{:#}\n", schema())),
        "{name} is not what settings are read with: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}
