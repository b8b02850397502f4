//! The table of settings, from which the documentation of directives, the schema of Envoy's
//! settings, and their checks are generated. nginx has a table of its own, with what nginx itself
//! checks.

use super::cache::CACHE_MEMORY_RANGE as CACHE_MEMORIES;
use super::cache::{
    BATCH_MAX_RANGE, CACHE_GET_WORDS, LOCK_TIMEOUT_RANGE, LOOKUP_TIMEOUT_RANGE, MAX_ENTRY_RANGE,
    MAX_REQUEST_RANGE,
};
use super::log_range::LOGS_MAX_RANGE;
use super::policy::UPGRADE_WORDS;
use super::ssz::{
    PRESET_WORDS, SSZ_CONCURRENCY_RANGE, SSZ_HOLD_RANGE as SSZ_HOLDS, SSZ_MAX_SIZE_RANGE,
    SSZ_REQUEST_WORDS, WITNESS_SOURCE_WORDS,
};
use super::values::DirectiveValueRange;
use super::{
    BUFFER_COUNT_RANGE, BUFFER_SIZE_RANGE, COMP_LEVEL_RANGE, HOLD_SIZE_RANGE, HOLD_TIME_RANGE,
    MAX_ONESHOT_RANGE, MEMORY_RANGE,
};
use super::{
    MIN_LENGTH_RANGE, REQUEST_DECODING_WORDS, STREAM_LEVEL_RANGE, UPSTREAM_ENCODING_WORDS,
    ZSTD_LEVEL_RANGE,
};
use crate::cache::use_stale;

use EnvoySettingScope::{EnabledByDefault, Filter, FilterOrRoute, None, Route};
use NginxDirectiveContext::{Anywhere, AnywhereAndIf, Http, Location};
use SettingDefault::{Derived, Literal, Nothing};
use SettingValueKind::{ClassLifetimes, MediaTypes, MethodRows, Rate, Text, Two, Word, Words};
use SettingValueKind::{
    Credentials, Flag, Line, Lines, LogSplit, Methods, Number, NumberOrWord, NumberThenWord,
    OneOrTwo, ResponseLimits,
};

/// The definition of one setting: its name, values and default, and the contexts of nginx and Envoy
/// that allow it.
pub(super) struct SettingDefinition {
    /// Name in nginx without the prefix `sszip_`; `enable` is the directive `sszip`.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    pub takes: SettingValueKind,
    /// Arguments in the syntax of nginx, one text per form. If empty, they are derived from
    /// `takes`.
    pub syntax: &'static [&'static str],
    pub default: SettingDefault,
    pub context: NginxDirectiveContext,
    pub envoy: EnvoySettingScope,
    /// The version that introduced the setting.
    pub since: &'static str,
}

/// The syntax of a setting's values, for the documentation and the JSON Schema.
pub(super) enum SettingValueKind {
    Flag,
    Number(DirectiveValueRange),
    /// A number, or the given word.
    NumberOrWord(DirectiveValueRange, &'static str),
    /// A number, optionally followed by the given word.
    NumberThenWord(DirectiveValueRange, &'static str),
    /// One value, optionally followed by another.
    OneOrTwo(DirectiveValueRange, DirectiveValueRange),
    Two(DirectiveValueRange, DirectiveValueRange),
    Word(&'static [&'static str]),
    /// One or more of the words.
    Words(fn() -> Vec<&'static str>),
    Text,
    /// A line of words that the documentation of the setting describes.
    Line,
    /// One line or several.
    Lines,
    MediaTypes,
    ClassLifetimes,
    Methods,
    /// A method, and a size.
    ResponseLimits,
    Credentials,
    MethodRows,
    Rate,
    /// A number of blocks, optionally followed by a number of requests.
    LogSplit,
}

/// The default of a setting, as the documentation describes it.
pub(super) enum SettingDefault {
    Nothing,
    /// The default is equal to these values.
    Literal(&'static [&'static str]),
    /// The default is derived from other settings, as this text describes.
    Derived(&'static str),
}

/// The contexts of nginx's configuration that allow a setting.
#[derive(Clone, Copy)]
pub(super) enum NginxDirectiveContext {
    Anywhere,
    AnywhereAndIf,
    Http,
    Location,
}

/// The parts of Envoy's configuration that allow a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvoySettingScope {
    FilterOrRoute,
    /// A switch whose default is on in Envoy.
    EnabledByDefault,
    Filter,
    Route,
    None,
}

const DEFAULT_SETTING: SettingDefinition = SettingDefinition {
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
pub(super) const SETTINGS: &[SettingDefinition] = &[
    SettingDefinition {
        name: "enable",
        about: "Enables sszip, and with it all other settings.",
        takes: Flag,
        default: Literal(&["off"]),
        context: AnywhereAndIf,
        envoy: EnabledByDefault,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "types",
        about: "Media types of the responses that are compressed.",
        takes: MediaTypes,
        syntax: &["TYPE ..."],
        default: Literal(&["application/json +json application/javascript text/*"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "min_length",
        about: "Minimum length of a response that is compressed.",
        takes: Number(MIN_LENGTH_RANGE),
        default: Literal(&["1k"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "comp_level",
        about: "Level of one-shot compression (libdeflate).",
        takes: Number(COMP_LEVEL_RANGE),
        default: Literal(&["1"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "max_oneshot",
        about: "Maximum length of a response that is compressed in one shot; longer ones are \
                streamed.",
        takes: Number(MAX_ONESHOT_RANGE),
        default: Literal(&["16m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "hold",
        about: "Buffering window of responses without a length: bytes and time.",
        takes: OneOrTwo(HOLD_SIZE_RANGE, HOLD_TIME_RANGE),
        default: Literal(&["64k 5ms"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "stream_level",
        about: "Level of streaming compression.",
        takes: Number(STREAM_LEVEL_RANGE),
        default: Literal(&["1"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "zstd",
        about: "Offers zstd beside gzip to clients that name it.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "zstd_level",
        about: "Level of one-shot compression with zstd.",
        takes: Number(ZSTD_LEVEL_RANGE),
        default: Literal(&["1"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "buffers",
        about: "Number and size of a stream's output buffers, on hosts without buffers of their \
                own.",
        takes: Two(BUFFER_COUNT_RANGE, BUFFER_SIZE_RANGE),
        default: Literal(&["2 6k"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "memory",
        about: "Memory that bodies may use in a process.",
        takes: Number(MEMORY_RANGE),
        default: Literal(&["256m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "upstream_encoding",
        about: "Accept-Encoding of upstream requests.",
        takes: Word(UPSTREAM_ENCODING_WORDS),
        default: Literal(&["identity"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "request_decoding",
        about: "Decompression of request bodies.",
        takes: Word(REQUEST_DECODING_WORDS),
        default: Literal(&["auto"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "thread_pool",
        about: "Thread pool that compresses large responses.",
        takes: Text,
        syntax: &["NAME | off"],
        default: Literal(&["default"]),
        envoy: None,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz",
        about: "Enables transcoding between JSON and SSZ.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_preset",
        about: "Preset of the chain.",
        takes: Word(PRESET_WORDS),
        default: Literal(&["auto"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_max_size",
        about: "Maximum length of SSZ that is written or read.",
        takes: Number(SSZ_MAX_SIZE_RANGE),
        default: Literal(&["512m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_hold",
        about: "Maximum length of the original response that is buffered during its conversion.",
        takes: Number(SSZ_HOLDS),
        default: Literal(&["4m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_concurrency",
        about: "Maximum number of long responses that are transcoded at the same time.",
        takes: NumberOrWord(SSZ_CONCURRENCY_RANGE, "off"),
        default: Literal(&["8"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_request",
        about: "Conversion of SSZ in request bodies to JSON.",
        takes: Word(SSZ_REQUEST_WORDS),
        default: Literal(&["auto"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "ssz_witness",
        about: "API through which the node returns the witness of a payload.",
        takes: Word(WITNESS_SOURCE_WORDS),
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache",
        about: "Enables the cache.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_get",
        about: "GET requests that are cached: requests of the Beacon API, or all that RFC 9111 \
                allows.",
        takes: Word(CACHE_GET_WORDS),
        default: Literal(&["beacon"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_namespace",
        about: "Name of the chain; routes with the same name share their entries.",
        takes: Text,
        syntax: &["TEXT"],
        default: Derived("derived from the upstream and the route, see below"),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_valid",
        about: "Lifetime of entries, by class or method.",
        takes: ClassLifetimes,
        syntax: &["CLASS | METHOD TIME"],
        default: Literal(&["immutable 1h", "unfinalized 2s", "tip 1s", "nothing 500ms", "config 1m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_method",
        about: "Block on which the responses of a method depend.",
        takes: MethodRows,
        syntax: &["METHOD block=p[N] | block=p[N].MEMBER [block=result.MEMBER]", "METHOD block=result.MEMBER | block=result | range=p[N] | transaction=p[0]", "METHOD class=immutable | tip | config | none"],
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_memory",
        about: "Memory that entries may use in a process.",
        takes: Number(CACHE_MEMORIES),
        default: Literal(&["128m"]),
        context: Http,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_max_entry",
        about: "Maximum length of a response that is stored.",
        takes: Number(MAX_ENTRY_RANGE),
        default: Literal(&["16m"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_max_request",
        about: "Maximum length of a request that is looked up.",
        takes: Number(MAX_REQUEST_RANGE),
        default: Literal(&["64k"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "batch_max",
        about: "Maximum number of calls in a batch that is looked up; longer batches are \
                forwarded, or denied.",
        takes: NumberThenWord(BATCH_MAX_RANGE, "deny"),
        default: Literal(&["100"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_credentials",
        about: "Effect on the cache of headers that identify the caller.",
        takes: Credentials,
        syntax: &["bypass | ignore | key [HEADER ...]"],
        default: Literal(&["bypass"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_bypass",
        about: "Conditions under which a request is not looked up.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "no_cache",
        about: "Conditions under which a response is not stored.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_use_stale",
        about: "Failures for which a stale response is sent.",
        takes: Words(use_stale::allowed_use_stale_words),
        syntax: &["off | error | timeout | invalid_header | updating |\nhttp_500 | http_502 | http_503 | http_504 |\nhttp_403 | http_404 | http_429 ..."],
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_background_update",
        about: "Sends the stale response while a background request updates it.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "verify",
        about: "Share of the hits that are compared with the node, and whether different entries \
                are purged.",
        takes: Rate,
        syntax: &["off | RATE% [purge]"],
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "logs_split",
        about: "Splits wide eth_getLogs calls into pieces of N blocks that are cached.",
        takes: LogSplit,
        syntax: &["off | N [concurrent=K]"],
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "logs_from_receipts",
        about: "Derives the logs of a block from its stored receipts.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_lock",
        about: "Coalesces requests for the same key.",
        takes: Flag,
        default: Literal(&["on"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_lock_timeout",
        about: "Time for which a follower waits for the leader.",
        takes: Number(LOCK_TIMEOUT_RANGE),
        default: Literal(&["5s"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_path",
        about: "Folder of the store, and its limits.",
        takes: Line,
        syntax: &["PATH [max_size=SIZE] [memory=SIZE] [inactive=TIME]\n[recompress=on|off]"],
        context: Http,
        envoy: Filter,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_owner",
        about: "Socket of the process that owns the store.",
        takes: Text,
        syntax: &["unix:PATH"],
        context: Http,
        envoy: Filter,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_lookup_timeout",
        about: "Time for which a request waits for the owner.",
        takes: Number(LOOKUP_TIMEOUT_RANGE),
        default: Literal(&["20ms"]),
        context: Http,
        envoy: Filter,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_head",
        about: "Node whose chain the owner follows, and how.",
        takes: Lines,
        syntax: &["URL [interval=TIME] [finality=tag|depth:N]\n[api=execution|beacon] [header=NAME:VALUE ...]\n[ca=FILE] [namespace=NAME]", "off"],
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_fleet",
        about: "Redis or Valkey servers through which the owners of several machines share entries.",
        takes: Line,
        syntax: &["URL [user=NAME] [password_file=FILE]\n[sentinel_user=NAME] [sentinel_password_file=FILE]\n[key_file=FILE[,FILE]] [ca=FILE] [cert=FILE cert_key=FILE]\n[timeout=TIME] [connect_timeout=TIME] [max_entry=SIZE] [prefix=TEXT]\n[ttl=TIME] [cost=TIME] [purge_wait=TIME]\n[lease_wait=TIME]"],
        context: Http,
        envoy: Filter,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "cache_purge",
        about: "Requests purge the entries that their query selects.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "status",
        about: "Requests receive the status: a page, JSON, or metrics.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "method",
        about: "Methods that are allowed, denied or limited.",
        takes: Methods,
        syntax: &["allow | deny | limit=N METHOD | PREFIX* ..."],
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "max_answer",
        about: "Maximum length of the responses of a method.",
        takes: ResponseLimits,
        syntax: &["METHOD | PREFIX* SIZE"],
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "logs_max_range",
        about: "Maximum number of blocks in the range of a call for logs or traces.",
        takes: NumberOrWord(LOGS_MAX_RANGE, "off"),
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "upgrade",
        about: "Protocol to which connections may switch on routes with a policy.",
        takes: Word(UPGRADE_WORDS),
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
    SettingDefinition {
        name: "query",
        about: "Handles a QUERY as the POST of the same call, if the call changes nothing.",
        takes: Flag,
        default: Literal(&["off"]),
        ..DEFAULT_SETTING
    },
];
