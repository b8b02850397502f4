//! The table of settings, from which the documentation of directives, the schema of Envoy's
//! settings, and their checks are generated. nginx has a table of its own, with what nginx itself
//! checks.

use super::cache::MEMORIES as CACHE_MEMORIES;
use super::cache::{BATCHES, GETS, LOCK_TIMEOUTS, LOOKUP_TIMEOUTS, MAX_ENTRIES, MAX_REQUESTS};
use super::policy::UPGRADES;
use super::ssz::{CONCURRENCIES, HOLDS as SSZ_HOLDS, MAX_SIZES, PRESETS, REQUESTS, WITNESSES};
use super::values::Range;
use super::{BUFFERS, BUFFER_SIZES, COMP_LEVELS, HOLDS, HOLD_TIMES, MAX_ONESHOTS, MEMORIES};
use super::{DECODINGS, ENCODINGS, MIN_LENGTHS, STREAM_LEVELS};
use crate::cache::use_stale;

use Context::{Anywhere, AnywhereAndIf, Http, Location};
use DefaultValue::{Derived, Literal, Nothing};
use EnvoyScope::{Filter, FilterOrRoute, None, On, Route};
use ValueKind::{Answers, Credentials, Flag, Line, Lines, Methods, Of, OfOr, OfThen, OneOrTwo};
use ValueKind::{Rate, Rows, Text, Two, Types, Valid, Word, Words};

/// One row of the table of settings: its names, its values, and the contexts of each host that
/// allow it.
pub(super) struct Setting {
    /// Name in nginx without the prefix `sszip_`; `enable` is the directive `sszip`.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    pub takes: ValueKind,
    /// Arguments in the syntax of nginx, one text per form. If empty, they are derived from
    /// `takes`.
    pub syntax: &'static [&'static str],
    pub default: DefaultValue,
    pub context: Context,
    pub envoy: EnvoyScope,
    /// The version that introduced the setting.
    pub since: &'static str,
}

/// The syntax of a setting's values.
pub(super) enum ValueKind {
    Flag,
    Of(Range),
    /// A number, or the given word.
    OfOr(Range, &'static str),
    /// A number, optionally followed by the given word.
    OfThen(Range, &'static str),
    /// One value, optionally followed by another.
    OneOrTwo(Range, Range),
    Two(Range, Range),
    Word(&'static [&'static str]),
    /// One or more of the words.
    Words(fn() -> Vec<&'static str>),
    Text,
    /// A line of words that the documentation of the setting describes.
    Line,
    /// One line or several.
    Lines,
    Types,
    Valid,
    Methods,
    /// A method, and a size.
    Answers,
    Credentials,
    Rows,
    Rate,
}

/// The default of a setting, as the documentation describes it.
pub(super) enum DefaultValue {
    Nothing,
    /// The default is equal to these values.
    Literal(&'static [&'static str]),
    /// The default is derived from other settings, as this text describes.
    Derived(&'static str),
}

/// The contexts of nginx's configuration that allow a setting.
#[derive(Clone, Copy)]
pub(super) enum Context {
    Anywhere,
    AnywhereAndIf,
    Http,
    Location,
}

/// The parts of Envoy's configuration that allow a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvoyScope {
    FilterOrRoute,
    /// A switch whose default is on in Envoy.
    On,
    Filter,
    Route,
    None,
}

const ANYWHERE: Setting = Setting {
    name: "",
    about: "",
    takes: Text,
    syntax: &[],
    default: Nothing,
    context: Anywhere,
    envoy: FilterOrRoute,
    since: "0.1.0",
};

/// In the order of the documentation.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "enable",
        about: "Enables sszip, and with it all other settings.",
        takes: Flag,
        default: Literal(&["off"]),
        context: AnywhereAndIf,
        envoy: On,
        ..ANYWHERE
    },
    Setting {
        name: "types",
        about: "Media types of the responses that are compressed.",
        takes: Types,
        syntax: &["TYPE ..."],
        default: Literal(&["application/json +json application/javascript text/*"]),
        ..ANYWHERE
    },
    Setting {
        name: "min_length",
        about: "Minimum length of a response that is compressed.",
        takes: Of(MIN_LENGTHS),
        default: Literal(&["1k"]),
        ..ANYWHERE
    },
    Setting {
        name: "comp_level",
        about: "Level of one-shot compression (libdeflate).",
        takes: Of(COMP_LEVELS),
        default: Literal(&["1"]),
        ..ANYWHERE
    },
    Setting {
        name: "max_oneshot",
        about: "Maximum length of a response that is compressed in one shot; longer ones are \
                streamed.",
        takes: Of(MAX_ONESHOTS),
        default: Literal(&["16m"]),
        ..ANYWHERE
    },
    Setting {
        name: "hold",
        about: "Buffering window of responses without a length: bytes and time.",
        takes: OneOrTwo(HOLDS, HOLD_TIMES),
        default: Literal(&["64k 5ms"]),
        ..ANYWHERE
    },
    Setting {
        name: "stream_level",
        about: "Level of streaming compression.",
        takes: Of(STREAM_LEVELS),
        default: Literal(&["1"]),
        ..ANYWHERE
    },
    Setting {
        name: "buffers",
        about: "Number and size of a stream's output buffers, on hosts without buffers of their \
                own.",
        takes: Two(BUFFERS, BUFFER_SIZES),
        default: Literal(&["2 6k"]),
        ..ANYWHERE
    },
    Setting {
        name: "memory",
        about: "Memory that bodies may use in a process.",
        takes: Of(MEMORIES),
        default: Literal(&["256m"]),
        ..ANYWHERE
    },
    Setting {
        name: "upstream_encoding",
        about: "Accept-Encoding of upstream requests.",
        takes: Word(ENCODINGS),
        default: Literal(&["identity"]),
        ..ANYWHERE
    },
    Setting {
        name: "request_decoding",
        about: "Decompression of request bodies.",
        takes: Word(DECODINGS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "thread_pool",
        about: "Thread pool that compresses large responses.",
        takes: Text,
        syntax: &["NAME | off"],
        default: Literal(&["default"]),
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "ssz",
        about: "Enables transcoding between JSON and SSZ.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_preset",
        about: "Preset of the chain.",
        takes: Word(PRESETS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_max_size",
        about: "Maximum length of SSZ that is written or read.",
        takes: Of(MAX_SIZES),
        default: Literal(&["512m"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_hold",
        about: "Maximum length of the original response that is buffered during its conversion.",
        takes: Of(SSZ_HOLDS),
        default: Literal(&["4m"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_concurrency",
        about: "Maximum number of long responses that are transcoded at the same time.",
        takes: OfOr(CONCURRENCIES, "off"),
        default: Literal(&["8"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_request",
        about: "Conversion of SSZ in request bodies to JSON.",
        takes: Word(REQUESTS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_witness",
        about: "API through which the node returns the witness of a payload.",
        takes: Word(WITNESSES),
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache",
        about: "Enables the cache.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_get",
        about: "GET requests that are cached: requests of the Beacon API, or all that RFC 9111 \
                allows.",
        takes: Word(GETS),
        default: Literal(&["beacon"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_namespace",
        about: "Name of the chain; routes with the same name share their entries.",
        takes: Text,
        syntax: &["TEXT"],
        default: Derived("derived from the upstream and the route, see below"),
        ..ANYWHERE
    },
    Setting {
        name: "cache_valid",
        about: "Lifetime of entries, by class or method.",
        takes: Valid,
        syntax: &["CLASS | METHOD TIME"],
        default: Literal(&["immutable 1h", "unfinalized 2s", "tip 1s", "nothing 500ms", "config 1m"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_method",
        about: "Block on which the responses of a method depend.",
        takes: Rows,
        syntax: &["METHOD block=p[N] | block=p[N].MEMBER [block=result.MEMBER]", "METHOD block=result.MEMBER | block=result | range=p[N] | transaction=p[0]", "METHOD class=immutable | tip | config | none"],
        ..ANYWHERE
    },
    Setting {
        name: "cache_memory",
        about: "Memory that entries may use in a process.",
        takes: Of(CACHE_MEMORIES),
        default: Literal(&["128m"]),
        context: Http,
        ..ANYWHERE
    },
    Setting {
        name: "cache_max_entry",
        about: "Maximum length of a response that is stored.",
        takes: Of(MAX_ENTRIES),
        default: Literal(&["16m"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_max_request",
        about: "Maximum length of a request that is looked up.",
        takes: Of(MAX_REQUESTS),
        default: Literal(&["64k"]),
        ..ANYWHERE
    },
    Setting {
        name: "batch_max",
        about: "Maximum number of calls in a batch that is looked up; longer batches are \
                forwarded, or denied.",
        takes: OfThen(BATCHES, "deny"),
        default: Literal(&["100"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_credentials",
        about: "Effect on the cache of headers that identify the caller.",
        takes: Credentials,
        syntax: &["bypass | ignore | key [HEADER ...]"],
        default: Literal(&["bypass"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_bypass",
        about: "Conditions under which a request is not looked up.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "no_cache",
        about: "Conditions under which a response is not stored.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "cache_use_stale",
        about: "Failures for which a stale response is sent.",
        takes: Words(use_stale::words),
        syntax: &["off | error | timeout | invalid_header | updating |\nhttp_500 | http_502 | http_503 | http_504 |\nhttp_403 | http_404 | http_429 ..."],
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_background_update",
        about: "Sends the stale response while a background request updates it.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "verify",
        about: "Share of the hits that are compared with the node, and whether different entries \
                are purged.",
        takes: Rate,
        syntax: &["off | RATE% [purge]"],
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_lock",
        about: "Coalesces requests for the same key.",
        takes: Flag,
        default: Literal(&["on"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_lock_timeout",
        about: "Time for which a follower waits for the leader.",
        takes: Of(LOCK_TIMEOUTS),
        default: Literal(&["5s"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_path",
        about: "Folder of the store, and its limits.",
        takes: Line,
        syntax: &["PATH [max_size=SIZE] [memory=SIZE] [inactive=TIME]\n[recompress=on|off]"],
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_owner",
        about: "Socket of the process that owns the store.",
        takes: Text,
        syntax: &["unix:PATH"],
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_lookup_timeout",
        about: "Time for which a request waits for the owner.",
        takes: Of(LOOKUP_TIMEOUTS),
        default: Literal(&["20ms"]),
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_head",
        about: "Node whose chain the owner follows, and how.",
        takes: Lines,
        syntax: &["URL [interval=TIME] [finality=tag|depth:N]\n[api=execution|beacon] [header=NAME:VALUE ...]\n[ca=FILE] [namespace=NAME]", "off"],
        ..ANYWHERE
    },
    Setting {
        name: "cache_purge",
        about: "Requests purge the entries that their query selects.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..ANYWHERE
    },
    Setting {
        name: "status",
        about: "Requests receive the status: a page, JSON, or metrics.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..ANYWHERE
    },
    Setting {
        name: "method",
        about: "Methods that are allowed, denied or limited.",
        takes: Methods,
        syntax: &["allow | deny | limit=N METHOD | PREFIX* ..."],
        ..ANYWHERE
    },
    Setting {
        name: "max_answer",
        about: "Maximum length of the responses of a method.",
        takes: Answers,
        syntax: &["METHOD | PREFIX* SIZE"],
        ..ANYWHERE
    },
    Setting {
        name: "upgrade",
        about: "Protocol to which connections may switch on routes with a policy.",
        takes: Word(UPGRADES),
        default: Literal(&["off"]),
        ..ANYWHERE
    },
];
