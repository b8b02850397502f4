//! Folders of recordings, and the exact bytes that are served from them.

use super::support::{call, Node, TemporaryFolder};

#[test]
fn responses_are_compact_and_otherwise_as_recorded() {
    let folder = TemporaryFolder::new();
    let recorded = r#"[ { "test": {"id": "x"}, "request" : {"jsonrpc":"2.0","method":"m","params":[ { "b" : 1, "a" : 2 } ],"id":1},
        "response" : { "id" : 1 , "result" : { "z" : 1e400, "a" : [ 1.0, -0, 0.10, 18446744073709551616 ],
            "s" : " \u00e9 \" \\ \/ é ", "" : { } , "id" : 5 },
        "jsonrpc" : "2.0" } } ]"#;
    folder.write("m/test_1.json", recorded);
    folder.write("deeper/n/test_1.json", recorded.replace("\"m\"", "\"n\""));
    let node = Node::on(&[folder.path()]);
    let expected = r#"{"id":"i","result":{"z":1e400,"a":[1.0,-0,0.10,18446744073709551616],"s":" \u00e9 \" \\ \/ é ","":{},"id":5},"jsonrpc":"2.0"}"#;
    for params in ["[{\"a\":2,\"b\":1}]", "[ {\"b\":1,\n\"a\":2}\t]"] {
        for method in ["m", "n"] {
            assert_eq!(
                node.post("/", &call("\"i\"", method, params)).text(),
                expected
            );
        }
    }
}

#[test]
fn json_file_is_served_as_a_page_at_its_path() {
    let folder = TemporaryFolder::new();
    folder.write(
        "eth/v1/node/version.json",
        "{ \"data\" : {\"version\" : \"a b\"} }\n",
    );
    folder.write("list.v1.json", "[ {\"data\":1}, 2 ]");
    folder.write("notes.txt", "no JSON");
    let node = Node::on(&[folder.path()]);
    let page = node.get("/eth/v1/node/version");
    assert_eq!(page.text(), "{\"data\":{\"version\":\"a b\"}}");
    assert_eq!(
        page.header("content-type").as_deref(),
        Some("application/json")
    );
    assert_eq!(node.get("/list.v1").text(), "[{\"data\":1},2]");
    assert_eq!(node.get("/notes").status, 404);
}

#[test]
fn broken_file_is_named_in_a_warning_and_the_rest_is_served() {
    let folder = TemporaryFolder::new();
    folder.write("m/test_1.json", "[{\"request\":");
    folder.write("m/test_2.json", r#"[{"request":{"method":"m"}}]"#);
    folder.write(
        "m/test_3.json",
        r#"[{"request":{"method":"m"},"response":{"id":1,"result":3}}]"#,
    );
    folder.write("m/test_4.json", "");
    std::fs::write(folder.0.join("m/test_5.json"), b"\"\xff\"").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_replay-node"))
        .args(["--list", folder.path()])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    for name in ["test_1.json", "test_2.json", "test_4.json", "test_5.json"] {
        assert_eq!(stderr.matches(name).count(), 1, "{stderr}");
    }
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
    assert_eq!(output.stdout, b"m\t[]\t19\n");
}

#[test]
fn recordings_of_all_folders_are_served() {
    let (one, two) = (TemporaryFolder::new(), TemporaryFolder::new());
    one.write(
        "m/test_1.json",
        r#"[{"request":{"method":"m"},"response":{"id":1,"result":1}}]"#,
    );
    two.write(
        "m/test_1.json",
        r#"[{"request":{"method":"m"},"response":{"id":1,"result":2}}]"#,
    );
    two.write(
        "n/test_1.json",
        r#"[{"request":{"method":"n"},"response":{"id":1,"result":2}}]"#,
    );
    let node = Node::on(&[one.path(), two.path()]);
    assert_eq!(
        node.post("/", &call("1", "m", "[]")).text(),
        r#"{"id":1,"result":1}"#
    );
    assert_eq!(
        node.post("/", &call("1", "n", "[]")).text(),
        r#"{"id":1,"result":2}"#
    );
}
