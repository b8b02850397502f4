//! Whether only some clients can reach a location of nginx.

use super::nginx_scope::{variable_names, Location};
use super::nginx_syntax::Directive;

/// Directives that authenticate clients unless they are `off`.
const AUTHENTICATION: [&str; 6] = [
    "auth_basic",
    "auth_request",
    "auth_jwt",
    "auth_digest",
    "auth_pam",
    "auth_ldap",
];

/// Directives with a script that may deny requests.
const ACCESS_SCRIPTS: [&str; 3] = ["access_by_lua", "access_by_lua_block", "access_by_lua_file"];

/// Status codes of `return` that deny a request.
const DENIALS: [&str; 4] = ["401", "403", "404", "444"];

/// Variables whose values any client can know and send: an `if` with no other variable restricts no
/// client.
const PUBLIC_VARIABLES: [&str; 12] = [
    "request_method",
    "host",
    "http_host",
    "http_user_agent",
    "http_referer",
    "http_origin",
    "request_uri",
    "uri",
    "scheme",
    "https",
    "server_name",
    "server_port",
];

impl Location<'_> {
    /// Whether only some clients can send requests of a method to the location: by their address or
    /// credentials, by an `if` that denies others, or because the server listens on this machine
    /// only.
    pub fn is_restricted(&self, method: &str) -> bool {
        let is_set = |name: &&str| !matches!(self.effective_word(name), "" | "off");
        self.denies_addresses()
            || AUTHENTICATION.iter().any(is_set)
            // clients without a certificate pass with `optional`
            || self.effective_word("ssl_verify_client") == "on"
            || self.denies_by_condition()
            || self.denies_method(method)
            || self.own("internal").is_some()
            || ACCESS_SCRIPTS
                .iter()
                .any(|name| self.effective(name).is_some())
            || self.listens_locally()
    }

    /// Whether clients are denied whose addresses are not listed. A block with `allow` or `deny`
    /// inherits neither.
    fn denies_addresses(&self) -> bool {
        let mut blocks = self.blocks.iter().rev();
        let with_rules = blocks.find(|block| block.iter().any(is_address_rule));
        with_rules.is_some_and(|block| denies_all(block))
    }

    /// Whether the location or its server has an `if` that denies requests. `if` in an outer
    /// location has no effect here.
    fn denies_by_condition(&self) -> bool {
        let own = self.blocks.last().copied().unwrap_or_default();
        let all = self.server.iter().chain(own);
        let mut conditions = all.filter(|it| it.name == "if");
        conditions.any(|condition| {
            let mut inner = condition.inner().iter();
            let mut names = condition.words.iter().flat_map(|word| variable_names(word));
            inner.any(|it| it.name == "return" && DENIALS.contains(&it.first_word()))
                && names.any(|name| !PUBLIC_VARIABLES.contains(&name))
        })
    }

    /// Whether a `limit_except` denies requests of a method, or authenticates their clients.
    fn denies_method(&self, method: &str) -> bool {
        let mut limits = self.conditions().filter(|it| it.name == "limit_except");
        limits.any(|limit| {
            let mut excepted = limit.words.iter();
            let mut inner = limit.inner().iter();
            let is_set =
                |it: &Directive| AUTHENTICATION.contains(&&*it.name) && it.first_word() != "off";
            !excepted.any(|word| word.eq_ignore_ascii_case(method))
                && (denies_all(limit.inner()) || inner.any(is_set))
        })
    }

    fn listens_locally(&self) -> bool {
        let mut listens = self.server.iter().filter(|it| it.name == "listen");
        let is_local = |it: &Directive| {
            let address = it.first_word();
            ["127.", "[::1]", "localhost", "unix:"]
                .into_iter()
                .any(|start| address.starts_with(start))
        };
        // without a `listen` the port is 80 of all addresses; of a part of a server it is unknown
        match listens.next() {
            None => self.server.is_empty(),
            Some(first) => is_local(first) && listens.all(is_local),
        }
    }
}

fn is_address_rule(directive: &Directive) -> bool {
    matches!(&*directive.name, "allow" | "deny")
}

/// Whether a block denies the addresses that it does not list: the first rule that matches is in
/// effect, and a range may have the addresses of IPv4 or IPv6 only.
fn denies_all(block: &[Directive]) -> bool {
    [false, true].into_iter().all(|is_ipv6| {
        let mut rules = block.iter().filter(|it| is_address_rule(it));
        let of_all = rules.find(|it| has_all_addresses(it.first_word(), is_ipv6));
        of_all.is_some_and(|it| it.name == "deny")
    })
}

/// Whether a range of `allow` or `deny` has all addresses of IPv4 or IPv6.
fn has_all_addresses(range: &str, is_ipv6: bool) -> bool {
    let address = range.strip_suffix("/0");
    range == "all" || address.is_some_and(|it| it.contains(':') == is_ipv6)
}

#[cfg(test)]
mod tests {
    use crate::check::nginx_scope::HttpScope;
    use crate::check::nginx_syntax::parse_nginx_text;

    #[test]
    fn locations_are_restricted_by_addresses_credentials_and_listeners() {
        for (server, location, expected) in [
            ("", "", false),
            ("listen 80;", "allow 127.0.0.1; deny all;", true),
            ("listen 80;", "deny 192.0.2.1;", false),
            ("listen 80;", "auth_basic node;", true),
            ("auth_basic node;", "auth_basic off;", false),
            ("listen 80;", "internal;", true),
            ("listen 80;", "if ($arg_key != x) { return 403; }", true),
            ("if ($http_x = '') { return 444; }", "", true),
            ("if ($http_user_agent ~ bot) { return 403; }", "", false),
            ("listen 80;", "if ($host != a) { return 444; }", false),
            ("listen 80;", "if (-f /closed) { return 404; }", false),
            (
                "listen 80;",
                "if ($request_method = GET) { return 405; }",
                false,
            ),
            ("listen 80;", "limit_except GET { deny all; }", true),
            ("listen 80;", "limit_except GET { auth_basic a; }", true),
            ("listen 80;", "limit_except GET { auth_basic off; }", false),
            ("listen 80;", "limit_except GET post { deny all; }", false),
            ("ssl_verify_client on;", "", true),
            ("ssl_verify_client optional;", "", false),
            ("listen 127.0.0.1:80; listen unix:/s;", "", true),
            ("listen 127.0.0.1:80; listen 8080;", "", false),
            ("listen 80;", "access_by_lua_block { x() }", true),
            ("listen 80;", "access_by_lua 'x()';", true),
            ("listen 80;", "auth_jwt node;", true),
            ("deny all;", "", true),
            ("deny all;", "allow 192.0.2.1;", false),
            ("listen 80;", "allow all; deny all;", false),
            ("listen 80;", "deny 0.0.0.0/0; deny ::/0;", true),
            ("listen 80;", "deny 0.0.0.0/0;", false),
            ("listen 80;", "deny ::/0; deny 192.0.2.0/24;", false),
            ("listen 80;", "allow 0.0.0.0/0; deny all;", false),
        ] {
            let text = format!("http {{ server {{ {server} location / {{ {location} }} }} }}");
            let directives = parse_nginx_text(&"f".into(), &text).ok().unwrap();
            let scope = HttpScope::from_directives(&directives);
            let is_restricted = scope.locations()[0].is_restricted("POST");
            assert_eq!(is_restricted, expected, "{text}");
        }
    }
}
