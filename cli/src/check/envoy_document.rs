//! YAML and JSON documents of Envoy, with the line of each node.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};
use sszip_core::log::escape_log_text;

use super::findings::Position;
use super::text_file::{syntax_remedy, template_tag_line_before};
use crate::CommandError;

/// Maximum nesting of lists and mappings.
const MAX_DEPTH: usize = 128;

/// Maximum number of nodes. Those with an anchor count twice, and each alias as what it repeats.
const MAX_NODES: usize = 200_000;

/// A node of a document.
#[derive(Clone, Debug)]
pub struct Node {
    /// The line of its first character, from 1 on.
    pub line: u32,
    content: NodeContent,
}

#[derive(Clone, Debug)]
enum NodeContent {
    /// A text, number, boolean or null.
    Scalar(Value),
    List(Vec<Node>),
    Mapping(Vec<(String, Node)>),
}

/// A list or mapping whose end has not been read.
struct OpenNode {
    node: Node,
    anchor: usize,
    /// The keys of a mapping that have been read.
    keys: HashSet<String>,
    /// The key whose value is next.
    key: Option<String>,
    /// Whether the key has the tag `!ignore`: Envoy leaves out its member.
    is_ignored: bool,
}

#[derive(Default)]
struct DocumentBuilder {
    open: Vec<OpenNode>,
    documents: Vec<Node>,
    /// The nodes with an anchor, and their number of nodes.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

/// Parses the documents of a file.
///
/// # Errors
/// A syntax error, a duplicate key, or too many nodes, with the position.
pub fn parse_yaml(file: &Rc<str>, text: &str) -> Result<Vec<Node>, CommandError> {
    let mut builder = DocumentBuilder::default();
    for event in Parser::new_from_str(text) {
        let (line, problem) = match event {
            Ok((event, span)) => match builder.add_event(event, line_of(&span)) {
                Ok(()) => continue,
                Err(problem) => (line_of(&span), problem),
            },
            Err(error) => (error.marker().line() as u32, error.info().to_owned()),
        };
        let at = Position {
            file: Rc::clone(file),
            line,
        };
        return Err(CommandError::Data(format!(
            "{at}: {}; {}",
            escape_log_text(&problem),
            syntax_remedy(text, &[line, template_tag_line_before(text, line)])
        )));
    }
    Ok(builder.documents)
}

fn line_of(span: &Span) -> u32 {
    span.start.line().max(1) as u32
}

impl DocumentBuilder {
    /// Adds the next part of a document, or returns why it is invalid.
    fn add_event(&mut self, event: Event<'_>, line: u32) -> Result<(), String> {
        match event {
            Event::SequenceStart(anchor, _) => {
                self.open_node(NodeContent::List(Vec::new()), anchor, line)
            }
            Event::MappingStart(anchor, _) => {
                self.open_node(NodeContent::Mapping(Vec::new()), anchor, line)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_ignored = tag.as_ref().is_some_and(|tag| tag.suffix == "ignore");
                let is_key = self.begin_key(is_ignored);
                let value = match style == ScalarStyle::Plain && tag.is_none() && !is_key {
                    true => resolve_plain_scalar(&text),
                    false => Value::String(text.into_owned()),
                };
                let content = NodeContent::Scalar(value);
                self.add_node(Node { line, content }, anchor, 1)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some((node, count)) => {
                    let (node, count) = (node.clone(), *count);
                    self.add_node(node, 0, count)
                }
                None => Err("an alias is inside of its own anchor".into()),
            },
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(OpenNode { node, anchor, .. }) => {
                    // its parts have been counted
                    self.add_node(node, anchor, 0)
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Whether the next node is a key of the innermost mapping, whose member may be ignored.
    fn begin_key(&mut self, is_ignored: bool) -> bool {
        match self.open.last_mut() {
            Some(outer) if outer.key.is_none() => {
                outer.is_ignored = is_ignored;
                matches!(outer.node.content, NodeContent::Mapping(_))
            }
            _ => false,
        }
    }

    fn open_node(&mut self, content: NodeContent, anchor: usize, line: u32) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err(format!("lists and mappings are nested above {MAX_DEPTH}"));
        }
        self.nodes += 1;
        self.open.push(OpenNode {
            node: Node { line, content },
            anchor,
            keys: HashSet::new(),
            key: None,
            is_ignored: false,
        });
        Ok(())
    }

    /// Adds a complete node, which adds `count` to the number of nodes, to the innermost list or
    /// mapping.
    fn add_node(&mut self, node: Node, anchor: usize, count: usize) -> Result<(), String> {
        self.nodes += count;
        let repeated = match anchor {
            0 => 0,
            _ => node.count_nodes(),
        };
        self.nodes += repeated;
        if self.nodes > MAX_NODES {
            return Err(format!("the file has more than {MAX_NODES} nodes"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), repeated));
        }
        let Some(outer) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut outer.node.content, outer.key.take()) {
            (NodeContent::List(items), _) => items.push(node),
            (NodeContent::Mapping(_), Some(_)) if outer.is_ignored => outer.is_ignored = false,
            (NodeContent::Mapping(members), Some(key)) => members.push((key, node)),
            (NodeContent::Mapping(_), None) => {
                let key = node.scalar_text().ok_or("a key must be a text")?;
                if !outer.is_ignored && !outer.keys.insert(key.clone()) {
                    return Err(format!("the key \"{key}\" occurs twice"));
                }
                outer.key = Some(key);
            }
            (NodeContent::Scalar(_), _) => {}
        }
        Ok(())
    }
}

/// Returns the value of a scalar without quotes, by the core schema of YAML 1.2, and the booleans of
/// YAML 1.1, as Envoy does.
fn resolve_plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            return Value::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            return Value::Bool(false)
        }
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let is_decimal = text.bytes().all(|byte| b"0123456789+-.eE".contains(&byte));
    let number = is_decimal.then(|| text.parse().ok()).flatten();
    match number.and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None => Value::String(text.to_owned()),
    }
}

/// Returns the name of a field in lowerCamelCase: `typedConfig` for `typed_config`.
fn lower_camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}

impl Node {
    /// Returns the node at a path of keys: `typed_config/@type`. Each key is found by both names that
    /// the JSON of Protobuf has for a field, `typed_config` and `typedConfig`.
    pub fn get(&self, path: &str) -> Option<&Node> {
        path.split('/').try_fold(self, |node, key| {
            let other = lower_camel_case(key);
            let mut members = node.members().iter();
            members
                .find(|(name, _)| name == key || *name == other)
                .map(|(_, value)| value)
        })
    }

    /// Returns the text at a path; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        match self.get(path).map(|node| &node.content) {
            Some(NodeContent::Scalar(Value::String(text))) => text,
            _ => "",
        }
    }

    /// Whether the value at a path is true.
    pub fn is_true(&self, path: &str) -> bool {
        let value = self.get(path).map(|node| &node.content);
        matches!(value, Some(NodeContent::Scalar(Value::Bool(true))))
    }

    /// Returns the number at a path.
    pub fn number(&self, path: &str) -> Option<u64> {
        match &self.get(path)?.content {
            // the JSON of Protobuf has numbers in quotes too
            NodeContent::Scalar(Value::String(text)) => text.parse().ok(),
            NodeContent::Scalar(value) => value.as_u64(),
            _ => None,
        }
    }

    /// Returns the items of the list at a path.
    pub fn items(&self, path: &str) -> &[Node] {
        self.get(path).map(Node::list).unwrap_or_default()
    }

    /// Returns the items of a list; of other nodes, none.
    pub fn list(&self) -> &[Node] {
        match &self.content {
            NodeContent::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the members of a mapping; of other nodes, none.
    pub fn members(&self) -> &[(String, Node)] {
        match &self.content {
            NodeContent::Mapping(members) => members,
            _ => &[],
        }
    }

    /// Whether the node is a message of this type: `HttpConnectionManager`.
    pub fn is_of_type(&self, name: &str) -> bool {
        let of = self.text("@type");
        of.rsplit('.').next() == Some(name)
    }

    /// Returns the node as JSON.
    pub fn to_json(&self) -> Value {
        match &self.content {
            NodeContent::Scalar(value) => value.clone(),
            NodeContent::List(items) => items.iter().map(Node::to_json).collect(),
            NodeContent::Mapping(members) => {
                let members = members.iter();
                let members = members.map(|(name, node)| (name.clone(), node.to_json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// Calls `visit` with the node and all nodes in it, the outer ones first.
    pub fn visit<'n>(&'n self, visit: &mut dyn FnMut(&'n Node)) {
        visit(self);
        self.list().iter().for_each(|node| node.visit(visit));
        let members = self.members().iter();
        members.for_each(|(_, node)| node.visit(visit));
    }

    fn count_nodes(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_| count += 1);
        count
    }

    /// Returns a scalar as text.
    fn scalar_text(&self) -> Option<String> {
        match &self.content {
            NodeContent::Scalar(Value::String(text)) => Some(text.clone()),
            NodeContent::Scalar(value) => Some(value.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse_yaml;
    use crate::CommandError;

    #[test]
    fn documents_are_read_with_values_and_lines() {
        let text =
            "a: &x\n  - 1\n  - 2.5\n  - \"3\"\nb:\n- *x\n- {c: true, d: ~, e: 0.05s}\n---\n[]";
        let documents = parse_yaml(&"f".into(), text).ok().unwrap();
        let expected = json!({"a": [1, 2.5, "3"], "b": [[1, 2.5, "3"],
            {"c": true, "d": null, "e": "0.05s"}]});
        assert_eq!(documents[0].to_json(), expected);
        assert_eq!(documents[1].to_json(), json!([]));
        assert_eq!(documents[0].items("b")[1].line, 7);
        assert_eq!(documents[0].items("a")[2].line, 4);
    }

    #[test]
    fn booleans_and_ignored_members_are_those_of_envoy() {
        let text = "a: [on, Off, yes, N, oN]\n!ignore b: &x {c: 1}\n!ignore b: 2\non: *x\ny: 1\n";
        let documents = parse_yaml(&"f".into(), text).ok().unwrap();
        let expected = json!({"a": [true, false, true, false, "oN"], "on": {"c": 1}, "y": 1});
        assert_eq!(documents[0].to_json(), expected);
    }

    #[test]
    fn json_is_yaml() {
        let text = r#"{"a": {"@type": "type.googleapis.com/x.v3.Y", "b": [1, "\n"]}}"#;
        let documents = parse_yaml(&"f".into(), text).ok().unwrap();
        let node = documents[0].get("a").unwrap();
        assert!(node.is_of_type("Y") && !node.is_of_type("X"));
        assert_eq!(node.get("b").unwrap().to_json(), json!([1, "\n"]));
    }

    #[test]
    fn fields_are_found_by_both_names_of_protobuf() {
        let text = r#"{"aBigOne": {"own_limit": "7"}}"#;
        let documents = parse_yaml(&"f".into(), text).ok().unwrap();
        assert_eq!(documents[0].number("a_big_one/own_limit"), Some(7));
        assert_eq!(documents[0].number("aBigOne/own_limit"), Some(7));
        assert!(documents[0].get("a_big_one/ownLimit").is_none());
    }

    #[test]
    fn invalid_documents_are_errors_with_their_line() {
        let bomb: String = (0..40).fold("a0: &a0 [1]\n".into(), |text: String, at| {
            let next = at + 1;
            text + &format!("a{next}: &a{next} [*a{at}, *a{at}, *a{at}]\n")
        });
        let deep = "- ".repeat(200);
        for (text, expected) in [
            ("a: [", "f:"),
            ("a: 1\nb: 2\na: 3", "f:3: the key \"a\" occurs twice"),
            ("? [a]\n: 1", "a key must be a text"),
            (&bomb, "has more than 200000 nodes"),
            (&deep, "nested above 128"),
            (
                "a: {{ b }}",
                "f:1: a key must be a text; render the template",
            ),
        ] {
            let Err(CommandError::Data(error)) = parse_yaml(&"f".into(), text) else {
                panic!("{text} is accepted");
            };
            assert!(error.contains(expected), "{error}");
        }
    }
}
