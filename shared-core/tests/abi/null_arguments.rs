//! Calls of all functions with NULL for each pointer and 0 for each number, from a program that is
//! generated from the header.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::c_hosts::compile;
use crate::header::split_comments;

/// A function of the header: its return type, its name and its parameters.
struct Function<'a> {
    returns: &'a str,
    name: &'a str,
    parameters: Vec<&'a str>,
}

impl<'a> Function<'a> {
    fn from_declaration(text: &'a str) -> Option<Self> {
        let (head, rest) = text.trim().split_once('(')?;
        let parameters = rest.strip_suffix(')')?.split(',').map(str::trim);
        let (returns, name) = head.split_at(head.rfind("sszip_")?);
        Some(Self {
            returns: returns.trim(),
            name,
            parameters: parameters.filter(|text| *text != "void").collect(),
        })
    }

    /// Returns the call with a value of zero for each parameter.
    fn call(&self) -> String {
        let values = self.parameters.iter().map(|parameter| {
            match (parameter.contains('*'), parameter.starts_with("sszip_str ")) {
                (true, _) => "NULL",
                (false, true) => "none",
                (false, false) => "0",
            }
        });
        let values: Vec<_> = values.collect();
        format!("{}({})", self.name, values.join(", "))
    }

    /// Returns the condition that the result of this call must meet.
    fn expectation(&self) -> String {
        let call = self.call();
        if self.returns.ends_with('*') {
            return format!("{call} == NULL");
        }
        match self.returns {
            "sszip_status" => format!("{call} == SSZIP_STATUS_NULL"),
            "sszip_str" => format!("{call}.len == 0"),
            "void" => format!("({call}, 1)"),
            // a time that is not due is negative
            _ => format!("(long long) {call} <= 0"),
        }
    }
}

#[test]
fn every_function_accepts_null_pointers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/sszip.h")).unwrap();
    let (code, _) = split_comments(&header);
    let functions = code.split_once("extern \"C\" {").unwrap().1.split(';');
    let functions = functions.filter_map(Function::from_declaration);
    let with_pointer = |function: &Function<'_>| function.call().contains("NULL");
    let functions: Vec<_> = functions.filter(with_pointer).collect();
    assert!(functions.len() > 70, "{}", functions.len());

    let mut program = String::from(
        "#include <stdio.h>\n#include <sszip.h>\nstatic const sszip_str none;\n\
         int main(void)\n{\n    int failed = 0;\n",
    );
    for function in &functions {
        let expectation = function.expectation();
        writeln!(
            program,
            "    if (!({expectation})) {{ puts(\"{expectation}\"); failed = 1; }}"
        )
        .unwrap();
    }
    program.push_str("    (void) none;\n    return failed;\n}\n");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nulls.c");
    fs::write(&source, program).unwrap();
    let output = Command::new(compile("nulls", &[source])).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
