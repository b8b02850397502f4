//! Rules for the upstreams of nginx configurations.

use std::collections::{HashMap, HashSet};

use super::findings::Finding;
use super::nginx_rules::NginxView;
use super::nginx_scope::{variable_names, Location};
use super::nginx_syntax::Directive;

/// Variables with text of the client that may choose a node, besides `http_`, `arg_` and `cookie_`.
const CLIENT_VARIABLES: [&str; 8] = [
    "host",
    "ssl_server_name",
    "uri",
    "document_uri",
    "request_uri",
    "request",
    "args",
    "query_string",
];

/// Variables that are the path and the query of the URL of a `proxy_pass`.
const URL_VARIABLES: [&str; 6] = [
    "uri",
    "document_uri",
    "request_uri",
    "is_args",
    "args",
    "query_string",
];

/// The texts that a variable may be made of, by the name of the variable.
type VariableSources<'c> = HashMap<&'c str, Vec<&'c str>>;

/// Rule `no-keepalive`.
pub fn check_keepalive(view: &NginxView<'_>) -> Vec<Finding> {
    let upstreams: HashMap<_, _> = view
        .scope
        .directives_named("upstream")
        .map(|upstream| (upstream.first_word(), upstream))
        .collect();
    let mut findings = Vec::new();
    for route in view.cached_routes() {
        let sends_close = sends_connection_close(view, &route.location);
        for pass in route.location.proxy_passes() {
            let target = pass.first_word();
            // with variables the upstream is unknown, and over Unix sockets connections are cheap
            if target.contains('$') || target.contains("://unix:") {
                continue;
            }
            let has_pool = match upstreams.get(host_of(target)) {
                Some(upstream) => {
                    let mut inner = upstream.inner().iter();
                    inner.any(|it| it.name == "keepalive" && it.first_word() != "0")
                }
                // the upstreams of a part of a configuration may be elsewhere
                None => !view.scope.is_whole,
            };
            let problem = match (has_pool, sends_close) {
                (true, false) => continue,
                (true, true) => {
                    "each request closes its connection to the node: nginx sends \"Connection: \
                     close\""
                }
                (false, _) => "each request opens a connection to the node",
            };
            findings.push(Finding::warning(
                "no-keepalive",
                &pass.at,
                problem,
                "use an \"upstream\" with \"keepalive 32\", \"proxy_http_version 1.1\" and \
                 \"proxy_set_header Connection ''\"",
            ));
        }
    }
    findings
}

/// Whether nginx sends `Connection: close` to the node, its default. A `map` may do so for some
/// requests: for those without `Upgrade`, most often.
fn sends_connection_close(view: &NginxView<'_>, location: &Location<'_>) -> bool {
    let headers = location.effective_all("proxy_set_header").into_iter();
    let mut connection = headers.filter(|it| it.first_word().eq_ignore_ascii_case("Connection"));
    let Some(header) = connection.next() else {
        return true;
    };
    let value = header.words.get(1).map_or("", String::as_str);
    let is_close = |text: &str| text.eq_ignore_ascii_case("close");
    let names = variable_names(value);
    let mut maps = view.scope.directives_named("map").filter(|map| {
        let variable = map.words.get(1).and_then(|it| it.strip_prefix('$'));
        variable.is_some_and(|name| names.contains(&name))
    });
    is_close(value) || maps.any(|map| map.inner().iter().any(|it| is_close(it.first_word())))
}

/// Rule `namespace`.
pub fn check_namespaces_of_upstreams(view: &NginxView<'_>) -> Vec<Finding> {
    let mut maps = VariableSources::new();
    for map in view.scope.directives_named("map") {
        if let [source, variable] = &map.words[..] {
            add_source(&mut maps, variable, source);
        }
    }
    let mut findings = Vec::new();
    for route in view.cached_routes() {
        let location = &route.location;
        let Some(namespace) = location.effective("sszip_cache_namespace") else {
            continue;
        };
        let assigned = assigned_variables(location);
        let sources = [&maps, &assigned];
        let captures = location.captures();
        let find = |names| client_variables(names, &sources, &captures);
        let known = find(variable_names(namespace.first_word()));
        for pass in location.proxy_passes() {
            let mut names = host_variables(pass.first_word());
            names.extend(condition_variables(location, pass));
            let choosing = find(names);
            let is_known = |name: &str| known.iter().any(|it| contains(location, it, name));
            if let Some(missing) = choosing.iter().find(|name| !is_known(name)) {
                findings.push(Finding::warning(
                    "namespace",
                    &pass.at,
                    format!(
                        "clients choose the node by \"${missing}\", and all nodes share the \
                         entries of one namespace: a client may receive the response of another \
                         chain"
                    ),
                    "if the nodes are of several chains, use the variable in \
                     \"sszip_cache_namespace\"",
                ));
            }
        }
    }
    findings
}

/// Whether a variable contains another one's text: both are the same property of the request, or the
/// other one is a capture that is a part of it.
fn contains(location: &Location<'_>, variable: &str, other: &str) -> bool {
    let is_rewritten = location.is_rewritten();
    let whole = location.captured_variable(other).unwrap_or(other);
    variable == other || property_name(variable, is_rewritten) == property_name(whole, is_rewritten)
}

/// Returns one name for all variables with the same property of a request.
fn property_name(variable: &str, is_rewritten: bool) -> &str {
    match variable {
        "http_host" => "host",
        "document_uri" => "uri",
        "request_uri" if !is_rewritten => "uri",
        "query_string" => "args",
        other => other,
    }
}

/// Returns the host and port in the URL of a `proxy_pass`, or the path of a Unix socket.
fn host_of(url: &str) -> &str {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    match host.starts_with("unix:") {
        true => host,
        false => host.split(['/', '?']).next().unwrap_or_default(),
    }
}

/// Returns the variables in the host and port of the URL of a `proxy_pass`.
fn host_variables(url: &str) -> Vec<&str> {
    let host = host_of(url);
    let all = variable_names(host).into_iter();
    let before_path = all.take_while(|name| !URL_VARIABLES.contains(name));
    let mut names: Vec<_> = before_path.collect();
    if names.last().is_some_and(|name| is_path_capture(host, name)) {
        names.pop();
    }
    names
}

/// Whether a capture at the end of a host is a path, as it is most often: `http://node$1`. It is a
/// part of the name in `http://node-$1`.
fn is_path_capture(host: &str, name: &str) -> bool {
    let variable = format!("${name}");
    let Some(at) = host.rfind(&variable) else {
        return false;
    };
    let (before, after) = (&host[..at], &host[at + variable.len()..]);
    name.starts_with(char::is_numeric)
        && !before.is_empty()
        && !before.ends_with(['-', '_', '.', ':'])
        && (after.is_empty() || after.starts_with('$'))
}

/// Returns the variables of the `if` around a `proxy_pass`, if other requests of the location are
/// passed to another node.
fn condition_variables<'c>(location: &Location<'c>, pass: &Directive) -> Vec<&'c str> {
    let has_pass = |it: &Directive| it.inner().iter().any(|inner| std::ptr::eq(inner, pass));
    let mut conditions = location.conditions().filter(|it| it.name == "if");
    let condition = conditions.find(|it| has_pass(it));
    let host = host_of(pass.first_word());
    let others = match location.own("proxy_pass") {
        Some(own) => vec![own],
        None => location.proxy_passes(),
    };
    let has_other = others.iter().any(|it| host_of(it.first_word()) != host);
    let condition = condition.filter(|_| has_other);
    let words = condition.into_iter().flat_map(|it| &it.words);
    words.flat_map(|word| variable_names(word)).collect()
}

fn add_source<'c>(sources: &mut VariableSources<'c>, variable: &'c str, text: &'c str) {
    if let Some(name) = variable.strip_prefix('$') {
        sources.entry(name).or_default().push(text);
    }
}

/// Returns the variables that `set` assigns in the blocks of a location, with their values and the
/// conditions of an `if` around it.
fn assigned_variables<'c>(location: &Location<'c>) -> VariableSources<'c> {
    let mut sources = VariableSources::new();
    let mut add = |directive: &'c Directive, conditions: &'c [String]| {
        if let ("set", [variable, value]) = (&*directive.name, &directive.words[..]) {
            for text in conditions.iter().chain([value]) {
                add_source(&mut sources, variable, text);
            }
        }
    };
    for directive in location.blocks.iter().flat_map(|block| block.iter()) {
        add(directive, &[]);
        if directive.name == "if" {
            let inner = directive.inner().iter();
            inner.for_each(|inner| add(inner, &directive.words));
        }
    }
    sources
}

/// Returns the variables with text of the client that some variables are made of. The captures are
/// such variables.
fn client_variables<'t>(
    mut pending: Vec<&'t str>,
    sources: &[&VariableSources<'t>],
    captures: &[&str],
) -> Vec<&'t str> {
    let mut known = HashSet::new();
    let mut found = Vec::new();
    while let Some(name) = pending.pop() {
        if !known.insert(name) {
            continue;
        }
        let texts = sources.iter().filter_map(|it| it.get(name)).flatten();
        pending.extend(texts.flat_map(|text| variable_names(text)));
        // requests for a WebSocket are not looked up
        if name == "http_upgrade" {
            continue;
        }
        let is_clients = CLIENT_VARIABLES.contains(&name)
            || captures.contains(&name)
            || name.starts_with(char::is_numeric)
            || ["http_", "arg_", "cookie_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if is_clients {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{client_variables, host_variables, VariableSources};

    #[test]
    fn variables_of_the_path_do_not_choose_the_node() {
        for (url, expected) in [
            ("http://$a:$b/$c", &["a", "b"][..]),
            ("http://node/$arg_key", &[]),
            ("http://$node$request_uri", &["node"]),
            ("$node", &["node"]),
            ("http://$1:8545$2", &["1"]),
            ("http://node-$1:8545", &["1"]),
            ("http://node$1", &[]),
            ("http://node$1$is_args$args", &[]),
            ("http://node$1?$arg_key", &[]),
            ("http://node-$1", &["1"]),
            ("http://node-$1/", &["1"]),
            ("http://node:$1", &["1"]),
            ("http://node$1.example.org", &["1"]),
            ("$1", &["1"]),
            ("http://unix:/run/$a.sock", &["a"]),
        ] {
            assert_eq!(host_variables(url), expected, "{url}");
        }
    }

    #[test]
    fn sources_of_variables_may_refer_to_each_other() {
        let sources = VariableSources::from([("a", vec!["$b$b", "x"]), ("b", vec!["$a-$http_x"])]);
        for (names, expected) in [
            (vec!["a", "c"], &["http_x"][..]),
            (vec!["host"], &["host"]),
            (vec!["d", "1"], &["1", "d"]),
            (vec!["http_upgrade"], &[]),
        ] {
            assert_eq!(client_variables(names, &[&sources], &["d"]), expected);
        }
    }
}
