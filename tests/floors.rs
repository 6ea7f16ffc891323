//! The floors, checked: crate edges, module order, the worker's closure, unsafe, file heads and lengths.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crate -> crates it may use. `base` is the ground floor; `worker` and `daemon` never meet.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("pixels", &["base"]),
    ("nn", &["base"]),
    ("engine", &["base", "pixels", "nn"]),
    ("media", &["base", "pixels"]),
    ("vault", &["base"]),
    ("face", &["base", "pixels", "engine"]),
    ("worker", &["base", "pixels", "engine", "media", "face"]),
    ("daemon", &["base", "vault"]),
];

/// The root program composes; it touches no pixel, so it must not reach these.
const ROOT_NEVER: &[&str] = &["mien-pixels", "mien-nn", "mien-engine", "mien-media", "mien-face"];

/// The worker parses hostile pictures: it gets no network, no keys, no database.
const WORKER_NEVER: &[&str] = &[
    "aes-gcm",
    "c2pa",
    "ed25519-dalek",
    "hyper",
    "mien-daemon",
    "mien-vault",
    "mio",
    "reqwest",
    "rumqttc",
    "rusqlite",
    "rustls",
    "tokio",
];

/// The only places that may hold `unsafe`: kernels, one system call at a time, a camera's calls and
/// buffers, and the map of a model in memory that was sealed before.
const UNSAFE_IN: &[&str] = &[
    "pixels/simd/",
    "nn/simd/",
    "worker/camera/v4l2/node.rs",
    "worker/sandbox.rs",
    "worker/sealed.rs",
];

const LONGEST_FILE: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

fn src_files() -> Vec<(String, String)> {
    let src = root().join("src");
    let files = rust_files(&src);
    assert!(files.len() > 40, "the tree is where it was");
    files
        .into_iter()
        .map(|path| {
            let rel = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
            (rel, fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let table: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    let deps = table.get("dependencies").and_then(|d| d.as_table());
    deps.into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

#[test]
fn crates_use_only_lower_floors() {
    let src = root().join("src");
    let on_disk: BTreeSet<_> = fs::read_dir(&src)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.join("Cargo.toml").exists())
        .map(|p| p.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<_> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(on_disk, listed, "every folder with a Cargo.toml is a floor, and the reverse");
    for (name, allowed) in CRATES {
        for dep in dependencies(&src.join(name).join("Cargo.toml")) {
            if let Some(ours) = dep.strip_prefix("mien-") {
                assert!(allowed.contains(&ours), "{name} must not use {ours}");
            }
        }
    }
    let of_root = dependencies(&root().join("Cargo.toml"));
    let wrong: Vec<_> = ROOT_NEVER.iter().filter(|name| of_root.contains(**name)).collect();
    assert!(wrong.is_empty(), "the root program must not use {wrong:?}");
}

#[test]
fn worker_reaches_no_network_keys_or_database() {
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let deps = package.get("dependencies").and_then(|d| d.as_array()).cloned();
        let deps = deps.unwrap_or_default();
        let names = deps.iter().map(|d| d.as_str().unwrap().split(' ').next().unwrap().to_owned());
        uses.entry(package["name"].as_str().unwrap().to_owned()).or_default().extend(names);
    }
    let mut seen = BTreeSet::new();
    let mut todo = vec!["mien-worker".to_owned()];
    while let Some(name) = todo.pop() {
        if seen.insert(name.clone()) {
            todo.extend(uses.get(&name).into_iter().flatten().cloned());
        }
    }
    assert!(seen.contains("mien-face"), "the walk reaches what it must");
    let leaked: Vec<_> = WORKER_NEVER.iter().filter(|n| seen.contains(**n)).collect();
    assert!(leaked.is_empty(), "mien-worker reaches {leaked:?}");
}

#[test]
fn modules_use_only_those_listed_above_them() {
    let files = src_files();
    for (name, _) in CRATES {
        let lib = &files.iter().find(|(rel, _)| *rel == format!("{name}/lib.rs")).unwrap().1;
        let order: Vec<_> = lib
            .lines()
            .map(|l| l.trim_start_matches("pub(crate) ").trim_start_matches("pub "))
            .filter_map(|l| l.strip_prefix("mod "))
            .map(|l| l.trim_end_matches(';').to_owned())
            .collect();
        for (rel, text) in files.iter().filter(|(rel, _)| rel.starts_with(&format!("{name}/"))) {
            let own = rel[name.len() + 1..].split('/').next().unwrap().trim_end_matches(".rs");
            let Some(floor) = order.iter().position(|m| m == own) else { continue };
            let body = text.split("\n#[cfg(test)]\n").next().unwrap();
            let body = code(body).collect::<Vec<_>>().join("\n");
            for (at, _) in body.match_indices("crate::") {
                let used: String = body[at + 7..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if let Some(i) = order.iter().position(|m| *m == used) {
                    assert!(i <= floor, "{rel} uses crate::{used}, listed below it");
                }
            }
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (rel, text) in src_files() {
        assert!(text.starts_with("//! "), "{rel} has no first line saying what it is");
        let body = text.split("\n#[cfg(test)]\n").next().unwrap();
        let lines = if rel.ends_with("/tests.rs") { 0 } else { body.lines().count() };
        assert!(lines <= LONGEST_FILE, "{rel}: {lines} lines");
    }
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    for (rel, text) in src_files() {
        let holds = code(&text).any(|l| l.contains("unsafe {") || l.contains("unsafe fn"));
        assert!(!holds || UNSAFE_IN.iter().any(|p| rel.starts_with(p)), "{rel} holds unsafe code");
    }
}

#[test]
fn no_placeholder_stands_in_for_behaviour() {
    for (rel, text) in src_files() {
        // A doc test that must not compile may call `todo!()`.
        let body = code(&text).collect::<Vec<_>>().join("\n");
        for word in ["todo!(", "unimplemented!("] {
            assert!(!body.contains(word), "{rel} holds {word}");
        }
        for word in ["TODO", "FIXME", "XXX"] {
            assert!(!text.contains(word), "{rel} holds {word}");
        }
    }
}

#[test]
fn cross_toml_holds_only_known_keys() {
    let table: toml::Table =
        fs::read_to_string(root().join("Cross.toml")).unwrap().parse().unwrap();
    for (key, value) in &table {
        let allowed: &[&str] = match key.as_str() {
            "build" => &["default-target", "pre-build", "env"],
            "target" => continue,
            _ => panic!("Cross.toml: unknown key {key}"),
        };
        for name in value.as_table().unwrap().keys() {
            assert!(allowed.contains(&name.as_str()), "Cross.toml: unknown key {key}.{name}");
        }
    }
}
