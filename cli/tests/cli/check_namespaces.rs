//! The rule `namespace` of `sszip check` for nginx: the variables that it compares.

use crate::check_rules::{check_text, rules, NGINX};

#[test]
fn namespace_is_compared_through_maps() {
    let map = "map $http_x $chain { default a; }\n server {";
    let pass = "proxy_pass http://node$chain;";
    let text = NGINX.replacen("server {", map, 1);
    for (namespace, expected) in [
        ("sszip_cache_namespace a;", &["namespace"][..]),
        ("sszip_cache_namespace $chain;", &[]),
        ("sszip_cache_namespace a-$http_x;", &[]),
    ] {
        let own = format!("{namespace} {pass}");
        let text = text.replacen("proxy_pass http://node;", &own, 1);
        let (_, findings) = check_text("nginx.conf", &text);
        assert_eq!(rules(&findings), expected, "{findings:?}");
    }
}

#[test]
fn namespace_may_have_the_other_names_of_the_choosing_variable() {
    let rewrite = "rewrite ^/x/(.*) /$1 break;";
    for (namespace, source, more, expected) in [
        ("$http_host", "$host", "", &[][..]),
        ("$host", "$http_host", "", &[]),
        ("$uri", "$request_uri", "", &[]),
        ("$request_uri", "$uri", "", &[]),
        ("$document_uri", "$uri", rewrite, &[]),
        ("$args", "$query_string", "", &[]),
        ("$uri", "$request_uri", rewrite, &["namespace"]),
        ("$host", "$uri", "", &["namespace"]),
        ("$host", "$http_x", "", &["namespace"]),
    ] {
        let map = format!("map {source} $chain {{ default a; }}\n server {{");
        let own = format!("sszip_cache_namespace {namespace}; {more} proxy_pass http://$chain;");
        let text = NGINX.replacen("server {", &map, 1);
        let text = text.replacen("proxy_pass http://node;", &own, 1);
        let (_, findings) = check_text("nginx.conf", &text);
        assert_eq!(rules(&findings), expected, "{own} {source}: {findings:?}");
    }
}

#[test]
fn captures_are_parts_of_the_path_or_the_host() {
    let numbered = "location ~ ^/(eth|gno)/ {";
    let named = "location ~ ^/(?<chain>eth|gno)/ {";
    let condition = "if ($http_x ~ (a|b)) { set $y 1; }";
    let rewrite = "rewrite ^/(eth|gno)/ / break;";
    for (location, namespace, more, pass, expected) in [
        (numbered, "a", "", "http://node-$1", &["namespace"][..]),
        (numbered, "a", "", "http://node-$1:8545/", &["namespace"]),
        (numbered, "$1", "", "http://node-$1", &[]),
        (numbered, "$uri", "", "http://node-$1", &[]),
        (numbered, "$request_uri", "", "http://node-$1/", &[]),
        (numbered, "$host", "", "http://node-$1", &["namespace"]),
        (
            numbered,
            "$uri",
            condition,
            "http://node-$1",
            &["namespace"],
        ),
        (numbered, "$uri", rewrite, "http://node-$1", &["namespace"]),
        (named, "$uri", "", "http://$chain", &[]),
        (named, "a", "", "http://$chain", &["namespace"]),
        (
            "location ~ ^/rpc(/.*)$ {",
            "a",
            "",
            "http://node$1$is_args$args",
            &[],
        ),
        (
            "server_name ~^(?<chain>[a-z]+)[.]; location / {",
            "$http_host",
            "",
            "http://$chain:8545",
            &[],
        ),
    ] {
        let own = format!("sszip_cache_namespace {namespace}; {more} proxy_pass {pass};");
        let text = NGINX.replacen("location / {", location, 1);
        let text = text.replacen("proxy_pass http://node;", &own, 1);
        let (_, findings) = check_text("nginx.conf", &text);
        assert_eq!(rules(&findings), expected, "{location} {own}: {findings:?}");
    }
}
