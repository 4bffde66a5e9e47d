//! Recorded runs for the commands that read them: folders with the events of a few cases.

use std::path::Path;

use serde_json::{Value, json};

/// Writes the record of a run with these cases and their outcomes. `facts` describe the run in addition to the usual
/// ones, or replace them.
pub(crate) fn write(folder: &Path, at: &str, facts: Value, cases: &[(&str, Value)]) {
    let mut run = json!({
        "id": folder.file_name().unwrap().to_str(), "started": at, "harness": "0.1.0", "provider": "process",
        "host": "Linux", "seed": 1, "sources": {"kubernetes": "module"}, "command": "cargo xtask ci",
    });
    run.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
    let versions = json!({"kube-apiserver": "v1.36.3"});
    let mut events = vec![
        json!({"event": "run-started", "at": at, "run": run}),
        json!({"event": "booted", "at": at, "execution": "native", "factor": 1.0, "versions": versions}),
        json!({"event": "suite-planned", "at": at, "cases": cases.len(), "seed": 1}),
    ];
    let mut exit = "ok";
    for (case, outcome) in cases {
        exit = match outcome["outcome"].as_str() {
            Some("passed") => exit,
            Some("failed") => "conformance",
            _ if exit == "ok" => "infrastructure",
            _ => exit,
        };
        events.push(json!({
            "event": "case-finished", "at": at, "case": case, "check": case, "profile": "default", "level": "must",
            "requirement": "It holds.", "source": "KEP", "outcome": outcome, "seconds": 0.5, "counters": {}, "repeat": "again",
        }));
    }
    events.push(json!({"event": "run-finished", "at": at, "exit": exit, "seconds": 2.0}));
    std::fs::create_dir_all(folder).unwrap();
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    std::fs::write(folder.join("events.jsonl"), lines).unwrap();
}
