//! The page `docs/methods.md`, which is generated from the method tables.

use std::fmt::Write;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::freshness::CacheLifetimes;
use sszip_core::jsonrpc::known_methods::{self, UncachedDependency};
use sszip_core::jsonrpc::method_spec::{method_row_to_words, ROW_WORD_FORMS};
use sszip_core::jsonrpc::methods::{self, BlockParamPosition, MethodRow, ResultBlockPosition};

use crate::method_lists::{method_lists, MethodList};

const INTRODUCTION: &str = "\
<!-- Generated from shared-core/src/jsonrpc/method_table.rs and uncached_methods.rs by the test
`docs`; do not edit. -->

# Methods

This page lists the JSON-RPC methods whose responses sszip caches, and those whose responses it does
not cache, with the reason. It defines how operators add methods or replace a row.

## Classes

| Class | The result depends on | Cached |
|---|---|---|
| immutable | a block that the call names by its hash, or the chain alone | for the time of `immutable` |
| by finality | a block that the call names by its number, or the block of a transaction | for the time of `unfinalized` while the block may be replaced, then as `immutable` |
| tip | the head of the chain | until the next block, for the time of `tip` at most |
| config | the configuration of the chain's nodes, which an upgrade changes | for the time of `config` |
| never | the caller, the node or the state that the method changes | not |

[`sszip_cache_valid`](directives.md#sszip_cache_valid) sets the time of a class or a method.

- The class *by finality* needs a followed node (`sszip_cache_head`, or `[[head]]` in cached.toml):
  a block is final if it was final when the request was sent to the node. Without a followed node
  only results of blocks named by hash are immutable.
- A call by finality for `latest`, `safe` or `finalized`, or without a block (which means
  `latest`), has the class tip. A call for `pending` is not cached.
- A method that is in none of the tables is not cached, unless the [configuration adds
  it](#your-own-methods).
- A call that names a number or a tag where the method requires a block's hash is not cached: some
  nodes accept it.
- Errors and `null` are not cached, whatever the method. A trace of a block is not cached if the
  entry of one transaction has an `error` in place of a trace; the `error` of a reverted call within
  a trace is part of the result.
- A result of a block above the followed head has the class tip. A result whose `l1BatchNumber` is
  `null` has the class `unfinalized`, even if the call names the block by hash.

In the table `p[0]` is the first parameter of the call. Where a method accepts the hash of a block
too, alone or in an object of EIP-1898 (without `requireCanonical`), the result for a hash is
immutable.

";

const OWN_METHODS: &str = "\
## Your own methods

A row of `sszip_cache_method` (in Envoy `cache_method: [\"acme_getPositions block=p[1]\", ...]`)
defines what the result of a method depends on, for a method that is not in the table or in place of
its row:

```nginx
sszip_cache_method acme_getPositions   block=p[1];
sszip_cache_method acme_getTrade       block=result.receipt.blockNumber;
sszip_cache_method acme_getVersion     class=config;
sszip_cache_method eth_getProof        class=none;
```

The rules for finality, new heads and reorganisations are the same as for the methods in the table,
whose last column has the same form:

| Form | The result depends on |
|---|---|
";

const RULES: &str = "
`block=p[N]` may be combined with `block=result.MEMBER` if the result contains its block: a result
is not cached if its block is another than the requested one, if it is none of the last eight known
blocks of the chain, or if it belongs to a head older than the newest one that was sent.
`sszip_cache_valid METHOD TIME` sets the time for the method, whatever the class; a method with a
time and without a row has the class tip.

- The row must cover the *whole* result. A method whose result depends on anything else (a time, the
  caller, another chain, the data of one node) is `class=none`, or `class=tip` if results that are
  one block old do no harm.
- Results without a block (`null`, a pending transaction) are cached for a short time only. A result
  is not cached if a member's name differs from the named one only by case (`BLOCKNUMBER`), or if an
  element of its list has an `error`.
- Methods that change state or open a subscription are rejected, as by
  [`sszip_cache_valid`](directives.md#sszip_cache_valid).
- Rows are not inherited into a block of the configuration that has rows of its own.
- A changed row does not affect stored responses: purge the method (`?method=NAME`).
- Metrics and the status page have a label for each cached method of the table and for uncached ones that
  clients call often. Other methods are `other`, with a row or without: the labels are a fixed set.

## Cached methods

The last column names the [sources](#sources) that have the method.

";

const UNCACHED_METHODS: &str = "
## Methods that are not cached

The responses of these methods depend on something else than the blocks of the chain. A
[`limit`](policy.md#concurrency-limits) protects the node from them.

| Method | The result depends on | Source |
|---|---|---|
";

const SOURCES: &str = "
## Sources

A test compares the tables with the methods of these specifications and nodes, and the position of
the block with the parameters of each node. `shared-core/tests/methods/lists` has the lists.

| Source | Version |
|---|---|
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

fn class(row: &MethodRow) -> &'static str {
    match row.class {
        methods::MethodClass::Immutable => "immutable",
        methods::MethodClass::ByFinality => "by finality",
        methods::MethodClass::Tip => "tip",
        methods::MethodClass::Config => "config",
        methods::MethodClass::Never => "never",
    }
}

fn is_never(row: &MethodRow) -> bool {
    row.class == methods::MethodClass::Never
}

fn block(row: &MethodRow) -> String {
    match row.at {
        _ if is_never(row) => String::new(),
        BlockParamPosition::None if row.in_result == ResultBlockPosition::Itself => {
            "the head, whose number is the result".into()
        }
        BlockParamPosition::None => "none".into(),
        BlockParamPosition::Hash(n) => format!("`p[{n}]`, a hash"),
        BlockParamPosition::Number(n) => format!("`p[{n}]`, a number or a tag"),
        BlockParamPosition::Param(n) => format!("`p[{n}]`"),
        BlockParamPosition::ParamMember(n, member, _) => format!("`p[{n}].{member}`"),
        BlockParamPosition::Range(n, _) => {
            format!("`p[{n}].fromBlock` and `.toBlock`, or `.blockHash`")
        }
        BlockParamPosition::Result => match row.in_result {
            ResultBlockPosition::None => "of the transaction; not in the result".into(),
            _ => "in the result".into(),
        },
    }
}

fn finality(row: &MethodRow) -> &'static str {
    match (row.class, row.at) {
        (methods::MethodClass::Never, _) => "",
        (methods::MethodClass::Tip | methods::MethodClass::Config, _) => "-",
        (methods::MethodClass::Immutable, BlockParamPosition::None) => "always final",
        (_, BlockParamPosition::Hash(_)) => "the hash",
        (_, BlockParamPosition::Number(_)) => "final number",
        (_, BlockParamPosition::Range(..)) => {
            "final `toBlock`, if the result contains an entry of it or was equal ten seconds \
             before; or the hash"
        }
        (_, BlockParamPosition::Result) if row.in_result == ResultBlockPosition::None => {
            "final block of the transaction, which is queried at the node"
        }
        (_, BlockParamPosition::Result) => "final block of the result",
        (_, _) => "final number, or the hash",
    }
}

fn lifetime(row: &MethodRow) -> String {
    let valid = CacheLifetimes::default();
    let of = |class| time(valid.lifetime_for_class(class));
    let immutable = of(LifetimeClass::Immutable);
    let unfinalized = of(LifetimeClass::Unfinalized);
    let tip = of(LifetimeClass::Tip);
    match (row.class, row.at) {
        (methods::MethodClass::Never, _) => String::new(),
        (methods::MethodClass::Tip, _) => tip,
        (methods::MethodClass::Config, _) => of(LifetimeClass::Config),
        (methods::MethodClass::Immutable, _) | (_, BlockParamPosition::Hash(_)) => immutable,
        (_, BlockParamPosition::Result) => format!("{unfinalized}, final {immutable}"),
        _ => format!("{unfinalized}, final {immutable}, at a tag {tip}"),
    }
}

/// Returns the labels of the lists that have the method.
fn sources(lists: &[MethodList], name: &str) -> String {
    let has_name = |list: &&MethodList| list.methods.iter().any(|method| method.name == name);
    let labels: Vec<&str> = lists
        .iter()
        .filter(has_name)
        .map(|list| list.label)
        .collect();
    labels.join(", ")
}

/// Returns `docs/methods.md`.
pub fn methods_page() -> String {
    let lists = method_lists();
    let mut page = String::from(INTRODUCTION);
    page.push_str(OWN_METHODS);
    for (form, meaning) in ROW_WORD_FORMS {
        writeln!(page, "| `{form}` | {meaning} |").unwrap();
    }
    page.push_str(RULES);
    page.push_str(
        "| Method | Class | Block | Finality | Default time | Row of `sszip_cache_method` | Source |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|\n");
    let rows = methods::all_method_table_rows().iter();
    for row in rows.filter(|row| !is_never(row)) {
        let (class, block) = (class(row), block(row));
        let (finality, lifetime) = (finality(row), lifetime(row));
        writeln!(
            page,
            "| `{}` | {class} | {block} | {finality} | {lifetime} | `{}` | {} |",
            row.name,
            method_row_to_words(row),
            sources(&lists, row.name)
        )
        .unwrap();
    }
    page.push_str(UNCACHED_METHODS);
    let mut names: Vec<&str> = known_methods::uncached_method_names().collect();
    names.sort_unstable();
    for name in names {
        let dependency = known_methods::uncached_dependency(name).unwrap();
        let sources = sources(&lists, name);
        if dependency != UncachedDependency::Unexamined {
            let description = dependency.description();
            writeln!(page, "| `{name}` | {description} | {sources} |").unwrap();
        }
    }
    page.push_str(SOURCES);
    for list in &lists {
        writeln!(page, "| {} | {} |", list.label, list.version).unwrap();
    }
    page
}
