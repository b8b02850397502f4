//! The requests for a block, as templates: `$BLOCK` is its number in hexadecimal, `$NUMBER` in
//! decimal digits.

use std::ops::Range;

use super::item::{SourceEvent, WarmItem, WarmRequest};
use crate::args::WarmArguments;
use crate::inspect::request_input::{
    describe_parse_failure, is_safe_name, parse_calls, parse_get_path,
};
use crate::CommandError;

/// Methods of `--method`, and the parameters of their calls.
const BUILT_IN: [(&str, &[&str]); 6] = [
    (
        "eth_getBlockByNumber",
        &[r#"["$BLOCK",false]"#, r#"["$BLOCK",true]"#],
    ),
    ("eth_getBlockReceipts", &[r#"["$BLOCK"]"#]),
    (
        "eth_getLogs",
        &[r#"[{"fromBlock":"$BLOCK","toBlock":"$BLOCK"}]"#],
    ),
    ("eth_getUncleCountByBlockNumber", &[r#"["$BLOCK"]"#]),
    ("trace_block", &[r#"["$BLOCK"]"#]),
    (
        "debug_traceBlockByNumber",
        &[r#"["$BLOCK",{"tracer":"callTracer"}]"#],
    ),
];

const DEFAULT_METHODS: [&str; 2] = ["eth_getBlockByNumber", "eth_getBlockReceipts"];

/// A request for each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTemplate {
    /// The template as it is written in a resume file.
    text: String,
    form: TemplateForm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateForm {
    Call { body: String, method: String },
    Get { path: String },
}

impl RequestTemplate {
    /// Parses a call: `METHOD PARAMS`.
    fn parse_call(text: &str, is_forced: bool) -> Result<Self, String> {
        let text = text.trim();
        let (method, params) = text
            .split_once(char::is_whitespace)
            .ok_or("expected METHOD PARAMS, such as 'eth_getBlockReceipts [\"$BLOCK\"]'")?;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{}}}"#,
            params.trim()
        );
        let example = fill_block(&body, 0);
        let calls = parse_calls(example.as_bytes()).map_err(describe_parse_failure)?;
        let is_one_call = calls.len() == 1 && calls[0].method == method.as_bytes();
        if !is_one_call {
            return Err("expected one METHOD and its PARAMS".into());
        }
        if !is_forced && !is_safe_name(method) {
            return Err("the method is not known to only read; --force allows it".into());
        }
        let form = TemplateForm::Call {
            method: method.into(),
            body,
        };
        Self::with_block(text, form)
    }

    /// Parses a path of a GET.
    fn parse_get(text: &str) -> Result<Self, String> {
        let path = parse_get_path(text)?;
        let text = format!("GET {path}");
        Self::with_block(&text, TemplateForm::Get { path })
    }

    fn with_block(text: &str, form: TemplateForm) -> Result<Self, String> {
        match text.contains("$BLOCK") || text.contains("$NUMBER") {
            true => Ok(Self {
                text: text.into(),
                form,
            }),
            false => {
                Err("expected $BLOCK or $NUMBER: the request is the same for each block".into())
            }
        }
    }

    /// Returns the template as it is written in a resume file.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn fill(&self, block: u64) -> WarmRequest {
        match &self.form {
            TemplateForm::Call { body, method } => {
                WarmRequest::call(fill_block(body, block), method.as_bytes())
            }
            TemplateForm::Get { path } => WarmRequest::get(fill_block(path, block)),
        }
    }
}

fn fill_block(text: &str, block: u64) -> String {
    let text = text.replace("$BLOCK", &format!("{block:#x}"));
    text.replace("$NUMBER", &block.to_string())
}

/// Returns the templates of the arguments: of the methods, then the calls, then the GETs.
pub fn templates_of(arguments: &WarmArguments) -> Result<Vec<RequestTemplate>, CommandError> {
    let is_forced = arguments.force;
    let mut templates = Vec::new();
    let has_others = !arguments.calls.is_empty() || !arguments.paths.is_empty();
    let defaults = DEFAULT_METHODS.map(String::from);
    let methods = match arguments.methods.is_empty() && !has_others {
        true => &defaults[..],
        false => &arguments.methods[..],
    };
    for method in methods {
        let known = BUILT_IN.iter().find(|(name, _)| name == method);
        let (_, params) = known.ok_or_else(|| {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            CommandError::Usage(format!(
                "unknown --method {method:?}: known are {names}; write others as --call"
            ))
        })?;
        for params in *params {
            let template = RequestTemplate::parse_call(&format!("{method} {params}"), is_forced);
            templates.push(template.map_err(CommandError::Usage)?);
        }
    }
    for call in &arguments.calls {
        let wrong = |reason| CommandError::Usage(format!("invalid --call {call:?}: {reason}"));
        templates.push(RequestTemplate::parse_call(call, is_forced).map_err(wrong)?);
    }
    for path in &arguments.paths {
        let wrong = |reason| CommandError::Usage(format!("invalid --get {path:?}: {reason}"));
        templates.push(RequestTemplate::parse_get(path).map_err(wrong)?);
    }
    Ok(templates)
}

/// Returns the positions of all requests for the blocks `from` to `to`; `None` if there are too
/// many.
pub fn block_positions(templates: &[RequestTemplate], from: u64, to: u64) -> Option<u64> {
    let blocks = to.checked_sub(from)?.checked_add(1)?;
    blocks.checked_mul(templates.len() as u64)
}

/// Returns the requests at some positions; position 0 is the first request for the block `from`.
pub fn block_items(
    templates: Vec<RequestTemplate>,
    from: u64,
    positions: Range<u64>,
) -> impl Iterator<Item = SourceEvent> + Send {
    positions.map(move |position| {
        let count = templates.len() as u64;
        let template = &templates[(position % count) as usize];
        SourceEvent::Item(WarmItem {
            position,
            request: template.fill(from + position / count),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_ordered_by_block() {
        let templates = vec![
            RequestTemplate::parse_call("eth_getBlockReceipts [\"$BLOCK\"]", false).unwrap(),
            RequestTemplate::parse_get("/eth/v2/beacon/blocks/$NUMBER").unwrap(),
        ];
        assert_eq!(templates[1].text(), "GET /eth/v2/beacon/blocks/$NUMBER");
        assert_eq!(block_positions(&templates, 9, 10), Some(4));
        let lines: Vec<_> = block_items(templates, 9, 1..4)
            .map(|event| match event {
                SourceEvent::Item(item) => (item.position, item.request.to_line()),
                event => panic!("{event:?}"),
            })
            .collect();
        let receipts =
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["0xa"]}"#;
        let expected = [
            (1, "GET /eth/v2/beacon/blocks/9\n".into()),
            (2, format!("{receipts}\n")),
            (3, "GET /eth/v2/beacon/blocks/10\n".into()),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn too_many_blocks_are_detected() {
        let template = RequestTemplate::parse_get("/$NUMBER").unwrap();
        let templates = [template.clone(), template];
        assert_eq!(block_positions(&templates, 0, u64::MAX), None);
        assert_eq!(block_positions(&templates, 1, u64::MAX), None);
        assert_eq!(block_positions(&templates, 7, 7), Some(2));
    }

    #[test]
    fn built_in_methods_are_valid() {
        for (method, all) in BUILT_IN {
            for params in all {
                RequestTemplate::parse_call(&format!("{method} {params}"), false).unwrap();
            }
        }
        assert!(DEFAULT_METHODS
            .iter()
            .all(|name| BUILT_IN.iter().any(|(known, _)| known == name)));
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for (text, expected) in [
            ("eth_getBlockReceipts", "expected METHOD PARAMS"),
            ("eth_getBlockReceipts [\"latest\"]", "expected $BLOCK"),
            ("eth_getBlockReceipts [$BLOCK", "not JSON"),
            (
                "eth_getBlockReceipts [\"$BLOCK\"],\"x\":1",
                "unknown-member",
            ),
            ("eth_sendRawTransaction [\"$BLOCK\"]", "only read"),
            ("a\"b [\"$BLOCK\"]", "JSON"),
        ] {
            let error = RequestTemplate::parse_call(text, false).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(RequestTemplate::parse_call("acme_x [\"$BLOCK\"]", true).is_ok());
        assert!(RequestTemplate::parse_get("/eth/v1/x").is_err());
        assert!(RequestTemplate::parse_get("$NUMBER").is_err());
    }
}
