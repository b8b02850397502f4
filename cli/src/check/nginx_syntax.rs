//! Parser of the syntax of nginx's configuration: words, quotes, comments and blocks.

use std::rc::Rc;

use super::findings::Position;
use super::lua_block::lua_block_length;
use super::text_file::{begins_as_template_tag, syntax_remedy};
use crate::CommandError;

/// Maximum nesting of blocks.
const MAX_DEPTH: usize = 64;

/// Suffix of the directives of OpenResty whose block is Lua.
const LUA_BLOCK: &str = "_by_lua_block";

/// Directives whose block has data in place of directives: keys of clients, for example.
const DATA_BLOCKS: [&str; 4] = ["map", "geo", "types", "split_clients"];

/// A directive with its arguments and its block.
#[derive(Debug)]
pub struct Directive {
    /// The first word.
    pub name: String,
    /// The arguments, without quotes and escapes.
    pub words: Vec<String>,
    /// The directives in its block; empty for a block of Lua.
    pub block: Option<Vec<Directive>>,
    /// The position of its first word.
    pub at: Position,
}

enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    EndOfText,
}

struct Parser<'t> {
    file: Rc<str>,
    bytes: &'t [u8],
    at: usize,
    line: u32,
    /// Line of the first byte of the last token.
    token_line: u32,
    /// Line of the first token that begins as a tag of a template does; 0 if there is none.
    tag_line: u32,
}

/// Parses the text of a file. Includes are directives like others.
///
/// # Errors
/// A syntax error, with its position.
pub fn parse_nginx_text(file: &Rc<str>, text: &str) -> Result<Vec<Directive>, CommandError> {
    let mut parser = Parser {
        file: Rc::clone(file),
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
        token_line: 1,
        tag_line: 0,
    };
    if text.starts_with('\u{feff}') {
        return Err(parser.syntax_error("the file begins with a byte order mark"));
    }
    parser.parse_block(0)
}

impl Directive {
    /// Returns the first argument, or an empty text.
    pub fn first_word(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the directives in its block, if it has one.
    pub fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Whether its block has data in place of directives.
    pub fn has_data(&self) -> bool {
        DATA_BLOCKS.contains(&&*self.name)
    }
}

impl Parser<'_> {
    fn parse_block(&mut self, depth: usize) -> Result<Vec<Directive>, CommandError> {
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut line = self.line;
        loop {
            let token = self.next_token()?;
            if words.is_empty() {
                line = self.token_line;
            }
            match token {
                Token::Word(word) => words.push(word),
                Token::Semicolon | Token::Open if words.is_empty() => {
                    return Err(self.syntax_error("a directive's name is missing"));
                }
                Token::Semicolon => directives.push(self.directive(&mut words, None, line)),
                Token::Open if depth == MAX_DEPTH => {
                    return Err(self.syntax_error("blocks are nested too deeply"));
                }
                Token::Open if words[0].ends_with(LUA_BLOCK) => {
                    self.skip_lua_block()?;
                    directives.push(self.directive(&mut words, Some(Vec::new()), line));
                }
                Token::Open => {
                    let block = self.parse_block(depth + 1)?;
                    directives.push(self.directive(&mut words, Some(block), line));
                }
                Token::Close | Token::EndOfText if !words.is_empty() => {
                    let name = &words[0];
                    let problem = format!("\"{name}\" in line {line} does not end with \";\"");
                    return Err(self.syntax_error(&problem));
                }
                Token::Close if depth == 0 => {
                    return Err(self.syntax_error("unexpected \"}\""));
                }
                Token::EndOfText if depth > 0 => {
                    return Err(self.syntax_error("unexpected end of the file: a \"}\" is missing"));
                }
                Token::Close | Token::EndOfText => return Ok(directives),
            }
        }
    }

    /// Takes the words of a directive.
    fn directive(
        &self,
        words: &mut Vec<String>,
        block: Option<Vec<Directive>>,
        line: u32,
    ) -> Directive {
        let mut words = std::mem::take(words).into_iter();
        Directive {
            name: words.next().unwrap_or_default(),
            words: words.collect(),
            block,
            at: Position {
                file: Rc::clone(&self.file),
                line,
            },
        }
    }

    fn next_token(&mut self) -> Result<Token, CommandError> {
        self.skip_space_and_comments();
        self.token_line = self.line;
        if self.tag_line == 0 && begins_as_template_tag(self.rest()) {
            self.tag_line = self.line;
        }
        let Some(byte) = self.peek() else {
            return Ok(Token::EndOfText);
        };
        let token = match byte {
            b';' => Token::Semicolon,
            b'{' => Token::Open,
            b'}' => Token::Close,
            b'"' | b'\'' => return self.read_quoted_word(byte).map(Token::Word),
            _ => return Ok(Token::Word(self.read_plain_word())),
        };
        self.advance();
        Ok(token)
    }

    fn read_plain_word(&mut self) -> String {
        let mut word = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => {
                    self.read_escape(&mut word);
                    continue;
                }
                // the braces of a variable: ${name}
                b'{' if word.last() == Some(&b'$') => {}
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
                _ => {}
            }
            word.push(byte);
            self.advance();
        }
        String::from_utf8_lossy(&word).into_owned()
    }

    fn read_quoted_word(&mut self, quote: u8) -> Result<String, CommandError> {
        self.advance();
        let mut word = Vec::new();
        loop {
            match self.peek() {
                None => {
                    let problem = format!(
                        "the quote that line {} opens is not closed",
                        self.token_line
                    );
                    return Err(self.syntax_error(&problem));
                }
                Some(b'\\') => self.read_escape(&mut word),
                Some(byte) => {
                    self.advance();
                    if byte == quote {
                        break;
                    }
                    word.push(byte);
                }
            }
        }
        match self.peek() {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' | b')') => {
                Ok(String::from_utf8_lossy(&word).into_owned())
            }
            Some(_) => Err(self.syntax_error("a space is missing after a quoted word")),
        }
    }

    /// Appends the escaped character after a backslash, or both if it has no meaning.
    fn read_escape(&mut self, word: &mut Vec<u8>) {
        self.advance();
        let Some(byte) = self.peek() else {
            word.push(b'\\');
            return;
        };
        self.advance();
        match byte {
            b'"' | b'\'' | b'\\' => word.push(byte),
            b't' => word.push(b'\t'),
            b'r' => word.push(b'\r'),
            b'n' => word.push(b'\n'),
            _ => word.extend([b'\\', byte]),
        }
    }

    fn skip_space_and_comments(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.advance(),
                b'#' => self.skip_line(),
                _ => return,
            }
        }
    }

    fn skip_lua_block(&mut self) -> Result<(), CommandError> {
        let Some(length) = lua_block_length(self.rest()) else {
            let start = self.line;
            let problem = format!("the block of Lua that begins in line {start} is not closed");
            return Err(self.syntax_error(&problem));
        };
        (0..length).for_each(|_| self.advance());
        Ok(())
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.advance();
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn advance(&mut self) {
        if let Some(byte) = self.peek() {
            self.line += u32::from(byte == b'\n');
            self.at += 1;
        }
    }

    fn syntax_error(&self, problem: &str) -> CommandError {
        let at = Position {
            file: Rc::clone(&self.file),
            line: self.line,
        };
        let text = String::from_utf8_lossy(self.bytes);
        let remedy = match text.contains("static_resources") {
            true => "set --format envoy for a configuration of Envoy",
            false => syntax_remedy(&text, &[self.line, self.tag_line]),
        };
        CommandError::Data(format!(
            "{at}: {}; {remedy}",
            sszip_core::log::escape_log_text(problem)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::parse_nginx_text;
    use crate::CommandError;

    fn words(text: &str) -> Vec<Vec<String>> {
        let directives = parse_nginx_text(&"f".into(), text).ok().unwrap();
        let all = directives.into_iter().map(|it| {
            let mut words = vec![it.name];
            words.extend(it.words);
            words
        });
        all.collect()
    }

    #[test]
    fn words_are_split_as_by_nginx() {
        for (text, expected) in [
            ("a b  c;", &["a", "b", "c"][..]),
            ("a 'b c' \"d;\"; # e", &["a", "b c", "d;"]),
            (r#"a b\"c "d\"e" \.x;"#, &["a", "b\"c", "d\"e", "\\.x"]),
            ("a ${b}c$d;", &["a", "${b}c$d"]),
            ("\"\" x;", &["", "x"]),
            ("a {}", &["a"]),
            (
                "access_by_lua_block { x = \"}\" -- }\n y = {} }",
                &["access_by_lua_block"],
            ),
        ] {
            assert_eq!(words(text), [expected], "{text}");
        }
    }

    #[test]
    fn positions_are_those_of_the_first_words() {
        let text = "a\n  b;\n# c\nd {\n e 'f\n g';\n h; }\n";
        let directives = parse_nginx_text(&"f".into(), text).ok().unwrap();
        let lines: Vec<_> = directives.iter().map(|it| it.at.line).collect();
        assert_eq!(lines, [1, 4]);
        let lines: Vec<_> = directives[1].inner().iter().map(|it| it.at.line).collect();
        assert_eq!(lines, [5, 7]);
    }

    #[test]
    fn syntax_errors_have_their_position() {
        let deep = "a {".repeat(100);
        for (text, expected) in [
            ("a", "f:1: \"a\" in line 1 does not end with \";\""),
            ("\na b }", "f:2: \"a\" in line 2 does not end"),
            ("}", "unexpected \"}\""),
            ("a {\n", "f:2: unexpected end of the file"),
            (";", "name is missing"),
            ("a 'b", "the quote that line 1 opens is not closed"),
            ("a 'b'c;", "a space is missing"),
            ("x_by_lua_block { {", "block of Lua that begins in line 1"),
            (&deep, "nested too deeply"),
            ("\u{feff}a;", "f:1: the file begins with a byte order mark"),
            ("a {{ b }};", "is missing; render the template"),
            ("static_resources:\n a: b", "; set --format envoy"),
        ] {
            let Err(CommandError::Data(error)) = parse_nginx_text(&"f".into(), text) else {
                panic!("{text} is accepted");
            };
            assert!(error.contains(expected), "{error}");
        }
    }
}
