//! Test that the benchmark runs, and all implementations have the same output.

#[path = "../../../shared-core/tests/support/tier.rs"]
mod tier;

use std::process::Command;

use serde_json::Value;
use tier::times;

#[test]
fn quick_run_measures_every_case() {
    if times(0, 1) == 0 {
        // the other tests compare the outputs of the same implementations
        return;
    }
    let folder = std::env::temp_dir().join(format!("ssz-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let out = folder.join("out.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ssz-bench"));
    bench.arg("--quick").arg("--work").arg(&folder).arg(&out);
    let done = bench.output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stderr}");
    let results: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let groups = results["groups"].as_array().unwrap();
    for group in groups {
        for way in group["ways"].as_array().unwrap() {
            assert!(way["ns"][0].as_f64() > Some(0.0), "{group}");
        }
    }
    // two blocks and a state
    assert_eq!(groups.len(), 6 + 6 + 6);
    assert_eq!(results["witnesses"][0]["ways"].as_array().unwrap().len(), 5);
}
