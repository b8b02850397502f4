//! The locations of an nginx configuration, and the directives that are in effect there.

use super::findings::Position;
use super::nginx_syntax::Directive;

/// Directives that pass requests to an upstream.
const PASSES: [&str; 5] = [
    "proxy_pass",
    "grpc_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
];

/// Directives that let a script handle requests.
const SCRIPTS: [&str; 4] = [
    "content_by_lua",
    "content_by_lua_block",
    "content_by_lua_file",
    "js_content",
];

/// Blocks in a location whose directives apply to some of its requests.
const CONDITIONS: [&str; 2] = ["if", "limit_except"];

/// The context `http` of a configuration.
#[derive(Debug)]
pub struct HttpScope<'c> {
    /// The directives in `http`; of a file that is included in `http`, all.
    pub directives: Vec<&'c [Directive]>,
    /// Whether the configuration has `http`. If it has not, settings of `http` are unknown.
    pub is_whole: bool,
}

/// A location, with the blocks around it.
#[derive(Debug)]
pub struct Location<'c> {
    /// The name in messages: `location "/" of server example.org`.
    pub name: String,
    /// The position in the configuration.
    pub at: &'c Position,
    /// The blocks `http`, `server` and `location`, the outermost first.
    pub blocks: Vec<&'c [Directive]>,
    /// The path or regular expression.
    path: &'c str,
    /// Whether the path is a regular expression.
    is_regex: bool,
    /// The block `server`; empty if the file is included in one.
    pub server: &'c [Directive],
}

impl<'c> HttpScope<'c> {
    /// Returns the context `http` of a configuration.
    pub fn from_directives(directives: &'c [Directive]) -> Self {
        let blocks = directives.iter().filter(|it| it.name == "http");
        let whole: Vec<_> = blocks.map(Directive::inner).collect();
        match whole.is_empty() {
            true => Self {
                directives: vec![directives],
                is_whole: false,
            },
            false => Self {
                directives: whole,
                is_whole: true,
            },
        }
    }

    /// Returns all locations, the outer ones before those in them.
    pub fn locations(&self) -> Vec<Location<'c>> {
        let mut found = Vec::new();
        for &http in &self.directives {
            for server in http.iter().filter(|it| it.name == "server") {
                collect_locations(&[http, server.inner()], server.inner(), &mut found);
            }
            if !self.is_whole {
                collect_locations(&[http], &[], &mut found);
            }
        }
        found
    }

    /// Returns the directives of `http` with this name.
    pub fn directives_named<'n>(
        &'n self,
        name: &'n str,
    ) -> impl Iterator<Item = &'c Directive> + 'n {
        let all = self.directives.iter().flat_map(|http| http.iter());
        all.filter(move |directive| directive.name == name)
    }
}

fn collect_locations<'c>(
    blocks: &[&'c [Directive]],
    server: &'c [Directive],
    found: &mut Vec<Location<'c>>,
) {
    let inner: &'c [Directive] = blocks.last().copied().unwrap_or_default();
    for location in inner.iter().filter(|it| it.name == "location") {
        let mut all = blocks.to_vec();
        all.push(location.inner());
        let path = location.words.last().map_or("", String::as_str);
        let mut names = server.iter().filter(|it| it.name == "server_name");
        let name = match names.next() {
            Some(server) => format!("location \"{path}\" of server {}", server.first_word()),
            None => format!("location \"{path}\""),
        };
        found.push(Location {
            name,
            at: &location.at,
            blocks: all.clone(),
            path,
            is_regex: location.first_word().starts_with('~'),
            server,
        });
        collect_locations(&all, server, found);
    }
}

impl<'c> Location<'c> {
    /// Returns the directives with this name that are in effect: all in the innermost block that
    /// has one, as nginx inherits `add_header`, `allow` and the like.
    pub fn effective_all(&self, name: &str) -> Vec<&'c Directive> {
        let mut blocks = self.blocks.iter().rev();
        let found = blocks.find_map(|block| {
            let of_name: Vec<_> = block.iter().filter(|it| it.name == name).collect();
            (!of_name.is_empty()).then_some(of_name)
        });
        found.unwrap_or_default()
    }

    /// Returns the directive with this name that is in effect.
    pub fn effective(&self, name: &str) -> Option<&'c Directive> {
        self.effective_all(name).pop()
    }

    /// Returns the first argument of the directive with this name that is in effect, or an empty
    /// text.
    pub fn effective_word(&self, name: &str) -> &'c str {
        self.effective(name).map_or("", Directive::first_word)
    }

    /// Returns the directive with this name in the location's own block.
    pub fn own(&self, name: &str) -> Option<&'c Directive> {
        let own: &'c [Directive] = self.blocks.last().copied().unwrap_or_default();
        own.iter().rev().find(|it| it.name == name)
    }

    /// Returns the blocks in the location whose directives apply to some of its requests.
    pub fn conditions(&self) -> impl Iterator<Item = &'c Directive> {
        let own: &'c [Directive] = self.blocks.last().copied().unwrap_or_default();
        own.iter().filter(|it| CONDITIONS.contains(&&*it.name))
    }

    /// Returns the directives that pass requests to an HTTP upstream.
    pub fn proxy_passes(&self) -> Vec<&'c Directive> {
        let conditional = self.conditions().flat_map(Directive::inner);
        let conditional = conditional.filter(|it| it.name == "proxy_pass");
        self.own("proxy_pass")
            .into_iter()
            .chain(conditional)
            .collect()
    }

    /// Returns the named captures of the regular expressions in the location's path, and in
    /// `server_name`, `if` and `rewrite` around it.
    pub fn captures(&self) -> Vec<&'c str> {
        let matching = ["server_name", "if", "rewrite"];
        let directives = self.blocks.iter().flat_map(|block| block.iter());
        let directives = directives.filter(|it| matching.contains(&&*it.name));
        let texts = directives.flat_map(|it| it.words.iter().map(String::as_str));
        texts.chain([self.path]).flat_map(capture_names).collect()
    }

    /// Returns the variable that a capture is a part of: `uri` for a capture in the location's path,
    /// unless a `rewrite` changes it, and `host` for a capture in `server_name`.
    pub fn captured_variable(&self, capture: &str) -> Option<&'static str> {
        let names_capture = |text: &str| capture_names(text).any(|it| it == capture);
        // the last regular expression sets `$1`: an `if` may have one
        let mut conditions = self.conditions().flat_map(|it| &it.words);
        let is_of_path = match capture.starts_with(char::is_numeric) {
            true => self.is_regex && !conditions.any(|word| word.contains('~')),
            false => names_capture(self.path),
        };
        if is_of_path {
            return (!self.is_rewritten()).then_some("uri");
        }
        let servers = self.server.iter().filter(|it| it.name == "server_name");
        let mut names = servers.flat_map(|it| &it.words);
        names.any(|name| names_capture(name)).then_some("host")
    }

    /// Whether a `rewrite` may change the path: `$uri` is then another one than `$request_uri`.
    pub fn is_rewritten(&self) -> bool {
        let own: &'c [Directive] = self.blocks.last().copied().unwrap_or_default();
        let is_rewrite = |it: &Directive| it.name == "rewrite";
        let mut all = self.server.iter().chain(own);
        all.any(|it| is_rewrite(it) || (it.name == "if" && it.inner().iter().any(is_rewrite)))
    }

    /// Whether the location passes its requests, or some of them, to an upstream.
    pub fn passes_requests(&self) -> bool {
        let own: &'c [Directive] = self.blocks.last().copied().unwrap_or_default();
        let conditional = self.conditions().flat_map(Directive::inner);
        let mut all = own.iter().chain(conditional);
        all.any(|it| PASSES.contains(&&*it.name))
    }

    /// Whether the location passes its requests to an upstream or a script.
    pub fn handles_requests(&self) -> bool {
        self.passes_requests() || SCRIPTS.iter().any(|name| self.own(name).is_some())
    }
}

/// Returns the names of the captures in a regular expression: `(?<name>...)`, `(?P<name>...)`.
fn capture_names(pattern: &str) -> impl Iterator<Item = &str> {
    let groups = pattern.split("(?").skip(1);
    groups.filter_map(|group| {
        let name = group.strip_prefix('P').unwrap_or(group);
        let (name, _) = name.strip_prefix('<')?.split_once('>')?;
        // `(?<=` and `(?<!` look behind
        (!name.starts_with(['=', '!'])).then_some(name)
    })
}

/// Parses a size of nginx: `128k`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k') => (&text[..at], 1 << 10),
        (at, 'm') => (&text[..at], 1 << 20),
        (at, 'g') => (&text[..at], 1 << 30),
        _ => (&*text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Returns the names of the variables in a text: `$name`, `${name}`, `$1`.
pub fn variable_names(text: &str) -> Vec<&str> {
    // the text before the first `$` has no name
    let parts = text.split('$').skip(1);
    let names = parts.map(|part| {
        // without braces a number has one digit
        if part.starts_with(|letter: char| letter.is_ascii_digit()) {
            return &part[..1];
        }
        let part = part.strip_prefix('{').unwrap_or(part);
        let is_end = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
        part.split(is_end).next().unwrap_or_default()
    });
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::{parse_size, variable_names, HttpScope};
    use crate::check::nginx_syntax::parse_nginx_text;

    #[test]
    fn directives_are_inherited_from_the_innermost_block_that_has_one() {
        let text = "http { a 1; b 1; server { b 2; b 3; server_name n; \
                    location /x { b 4; location = /y { c 5; } } } }";
        let directives = parse_nginx_text(&"f".into(), text).ok().unwrap();
        let scope = HttpScope::from_directives(&directives);
        let locations = scope.locations();
        let names: Vec<_> = locations.iter().map(|it| &*it.name).collect();
        assert_eq!(
            names,
            ["location \"/x\" of server n", "location \"/y\" of server n"]
        );
        let inner = &locations[1];
        assert_eq!(inner.effective_word("a"), "1");
        assert_eq!(inner.effective_word("b"), "4");
        assert_eq!(inner.effective_word("d"), "");
        assert!(inner.own("b").is_none() && inner.own("c").is_some());
    }

    #[test]
    fn requests_are_passed_by_conditional_blocks_too() {
        for (location, passes, handles) in [
            ("proxy_pass http://a;", 1, true),
            ("if ($arg_x) { proxy_pass http://a; }", 1, true),
            (
                "limit_except GET { proxy_pass http://a; } proxy_pass http://b;",
                2,
                true,
            ),
            ("grpc_pass a;", 0, true),
            ("if ($arg_x) { grpc_pass a; }", 0, true),
            ("js_content a.b;", 0, true),
            ("location /x { proxy_pass http://a; }", 0, false),
        ] {
            let text = format!("server {{ location / {{ {location} }} }}");
            let directives = parse_nginx_text(&"f".into(), &text).ok().unwrap();
            let scope = HttpScope::from_directives(&directives);
            let location = &scope.locations()[0];
            assert_eq!(location.proxy_passes().len(), passes, "{text}");
            assert_eq!(location.handles_requests(), handles, "{text}");
        }
    }

    #[test]
    fn captures_are_those_of_all_expressions_around_the_location() {
        let text = "server { server_name a ~^(?<b>.+)$; if ($host ~ ^(?<c>.+)$) { } \
                    location ~ ^/(?P<e>x)(?<!z>)(?:y)$ { rewrite ^/(?<d>x) /; } }";
        let directives = parse_nginx_text(&"f".into(), text).ok().unwrap();
        let scope = HttpScope::from_directives(&directives);
        assert_eq!(scope.locations()[0].captures(), ["b", "c", "d", "e"]);
    }

    #[test]
    fn sizes_and_variables_are_parsed() {
        for (text, size) in [
            ("128k", Some(131_072)),
            ("1M", Some(1 << 20)),
            ("7", Some(7)),
            ("k", None),
            ("", None),
            ("99999999999999999999g", None),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
        assert_eq!(variable_names("http://$a_1:${b}c$1d/$"), ["a_1", "b", "1"]);
    }
}
