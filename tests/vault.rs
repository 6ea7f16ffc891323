//! Models as goods, through the program: nothing plain on the disk, and kills at any instant.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_vault::install::Packages;
use mien_vault::manifest::Version;
use mien_vault::{Home, digest};
use support::Bench;

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Parts of models that are found nowhere by chance.
fn marks(folder: &Path) -> Vec<Vec<u8>> {
    let mut marks = Vec::new();
    for path in files(folder).iter().filter(|path| path.extension().is_some_and(|e| e == "onnx")) {
        let bytes = fs::read(path).unwrap();
        for at in [bytes.len() / 4, bytes.len() / 2, bytes.len() * 3 / 4] {
            let part = bytes[at..at + 32].to_vec();
            let values: BTreeSet<u8> = part.iter().copied().collect();
            if values.len() > 8 {
                marks.push(part);
            }
        }
    }
    marks
}

/// A home whose own plain models, of an earlier version, were sealed by `mien model fetch`.
fn sealed(name: &str) -> (Bench, Vec<Vec<u8>>) {
    let bench = Bench::bare(name);
    let models = bench.home().join("models");
    fs::create_dir(&models).unwrap();
    for path in files(Path::new(&std::env::var_os("MIEN_MODELS").unwrap())) {
        if path.extension().is_some_and(|e| e == "onnx") {
            fs::copy(&path, models.join(path.file_name().unwrap())).unwrap();
        }
    }
    let marks = marks(&models);
    assert!(marks.len() > 10);
    let ran = bench.run(&["model", "fetch", "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    (bench, marks)
}

fn holds(bytes: &[u8], marks: &[Vec<u8>]) -> bool {
    let first: BTreeSet<u8> = marks.iter().map(|mark| mark[0]).collect();
    let known: BTreeSet<&[u8]> = marks.iter().map(Vec::as_slice).collect();
    bytes.windows(32).any(|part| first.contains(&part[0]) && known.contains(part))
}

#[test]
#[ignore = "needs the models: tests/run sets MIEN_MODELS"]
fn no_file_of_the_home_holds_a_byte_of_a_sealed_model_and_it_works_all_the_same() {
    let (bench, marks) = sealed("sealed");
    let left = files(&bench.home().join("models"));
    assert!(left.iter().all(|path| path.extension().is_none_or(|e| e != "onnx")), "{left:?}");
    let picture = support::picture("astronaut.png");
    let (picture, out) = (picture.to_str().unwrap(), bench.path("out.png"));
    let ran = bench.run(&["process", picture, "-o", out.to_str().unwrap(), "--quiet"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for path in files(&bench.home()) {
        assert!(!holds(&fs::read(&path).unwrap(), &marks), "{}", path.display());
    }
    // The same search finds them where they are: it can fail.
    let models = PathBuf::from(std::env::var_os("MIEN_MODELS").unwrap());
    assert!(files(&models).iter().any(|path| holds(&fs::read(path).unwrap(), &marks)));
}

#[test]
#[ignore = "needs the models and strace: tests/run has both"]
fn a_run_writes_to_the_database_and_the_output_alone() {
    let (bench, _) = sealed("strace");
    let picture = support::picture("astronaut.png");
    let (out, log) = (bench.path("out.png"), bench.path("strace.log"));
    let mut traced = Command::new("strace")
        .args(["-f", "-qq", "-e"])
        .arg("trace=open,openat,openat2,creat,memfd_create,prctl,fcntl,mmap,prlimit64,setrlimit")
        .args(["-o", log.to_str().unwrap(), env!("CARGO_BIN_EXE_mien"), "process"])
        .args([picture.to_str().unwrap(), "-o", out.to_str().unwrap(), "--quiet"])
        .env("MIEN_HOME", bench.home())
        .current_dir(&bench.at)
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace; tests/run installs it");
    let maps = maps_of_workers(&mut traced);
    let traced = traced.wait_with_output().unwrap();
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let log = fs::read_to_string(log).unwrap();
    let mut written = 0;
    for line in log.lines().filter(|line| !line.contains(" = -1 ")) {
        let opens = line.contains("open") || line.contains("creat(");
        let writes =
            line.contains("O_WRONLY") || line.contains("O_RDWR") || line.contains("creat(");
        if !opens || !writes || line.contains("memfd_create") {
            continue;
        }
        written += 1;
        let name = line.split('"').nth(1).unwrap_or_default();
        // The output has no name before it is whole (O_TMPFILE), or one beside its own.
        let output = line.contains("O_TMPFILE")
            || name.starts_with(bench.at.join("").to_str().unwrap())
                && !name.starts_with(bench.home().to_str().unwrap());
        let state = ["mien.db", "home/keys/", ".lock"].iter().any(|part| name.contains(part));
        assert!(output || state || name == "/dev/null", "{line}");
    }
    assert!(written > 0, "the log shows what is opened for writing");
    // Each model came as sealed memory, and neither process may be dumped.
    assert!(log.matches("memfd_create(\"mien-model\"").count() >= 2, "{log}");
    assert!(log.contains("F_SEAL_WRITE"), "sealed");
    assert!(log.matches("PR_SET_DUMPABLE, SUID_DUMP_DISABLE").count() >= 2, "no core dumps");
    assert!(log.contains("RLIMIT_CORE, {rlim_cur=0, rlim_max=0}"), "no core dumps");
    // The worker looks at the seals, and maps that memory to be read: no second copy.
    assert!(mapped(&log) >= 2, "{log}");
    // The maps of a process that may not be dumped are the superuser's to read.
    if rustix::process::geteuid().is_root() {
        let sealed = |line: &&String| {
            line.contains(" r--p ") && line.ends_with("/memfd:mien-model (deleted)")
        };
        assert!(maps.iter().any(|line| sealed(&line)), "{maps:?}");
        assert!(maps.iter().all(|line| sealed(&line)), "{maps:?}");
    }
}

/// How often the log shows a descriptor whose seals are looked at, and then its pages mapped.
fn mapped(log: &str) -> usize {
    let mut sealed = BTreeSet::new();
    let mut mapped = 0;
    for line in log.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or_default();
        let call = call.trim_start();
        if call.contains("F_GET_SEALS") && call.contains("F_SEAL_WRITE") {
            let fd = call.trim_start_matches("fcntl(").split(',').next().unwrap_or_default();
            sealed.insert((thread, fd));
        }
        let map = call.split_once("PROT_READ, MAP_PRIVATE, ").filter(|_| call.starts_with("mmap("));
        if let Some((_, rest)) = map {
            let fd = rest.split(',').next().unwrap_or_default();
            mapped += usize::from(sealed.remove(&(thread, fd)));
        }
    }
    mapped
}

/// The lines that name a memfd in the maps of workers, for as long as `run` runs.
fn maps_of_workers(run: &mut Child) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    while run.try_wait().unwrap().is_none() {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let at = entry.path();
            let command = fs::read(at.join("cmdline")).unwrap_or_default();
            let program = env!("CARGO_BIN_EXE_mien").as_bytes();
            if !command.starts_with(program) || !command[program.len()..].starts_with(b"\0worker\0")
            {
                continue;
            }
            let maps = fs::read_to_string(at.join("maps")).unwrap_or_default();
            let named = maps.lines().filter(|line| line.contains("memfd:")).map(str::to_owned);
            lines.extend(named);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    lines
}

/// A made model as two versions, each a package for this home.
fn packages(bench: &Bench, bytes: usize) -> [PathBuf; 2] {
    ["1.0.0", "1.1.0"].map(|version| {
        let model = bench.path(&format!("{version}.onnx"));
        let seed = version.as_bytes()[2];
        let weights: Vec<u8> = (0..bytes).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        fs::write(&model, weights).unwrap();
        let text = format!(
            "id = \"made\"\nrole = \"gate\"\nfamily = \"opennsfw\"\nversion = \"{version}\"\n\
             licence = \"MIT\"\ncommercial = true\norigin = \"made\"\n"
        );
        fs::write(model.with_extension("toml"), text).unwrap();
        let package = bench.path(&format!("{version}.mienpkg"));
        let (from, to) = (model.to_str().unwrap(), package.to_str().unwrap());
        let ran = bench.run(&["model", "pack", from, "-o", to, "--key", "shop"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        package
    })
}

/// Kills the running program at `kills` instants of install, activation and going back. After each: the
/// version that serves is whole and one of the two, or none was ever installed.
fn kill_it(kills: u32, seed: u64) {
    let bench = Bench::bare("kill");
    let ran = bench.run(&["key", "new", "--file"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = bench.run(&["key", "new", "shop", "--role", "models"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let [old, new] = packages(&bench, 24 << 20);
    let digests = ["1.0.0", "1.1.0"]
        .map(|version| digest::of(&fs::read(bench.path(&format!("{version}.onnx"))).unwrap()));
    let store = Packages::new(&Home::at(&bench.home()), Arc::new(SystemClock::start()));
    let id = "made".parse().unwrap();
    // Instants are chosen within what one whole install takes on this machine.
    let clock = SystemClock::start();
    assert_eq!(bench.run(&["model", "install", old.to_str().unwrap()]).code, 0);
    let most = u64::try_from(clock.mono().0.as_micros()).unwrap();
    assert_eq!(bench.run(&["model", "remove", "made"]).code, 0);
    let mut state = seed;
    let mut dice = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((state >> 33) % most)
    };
    let (mut killed, mut served) = (0, false);
    for round in 0.. {
        if killed == kills {
            break;
        }
        assert!(round < 10 * kills, "{killed} of {round} were running when they were killed");
        let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
        let arguments: &[&str] = match round % 5 {
            0 => &["model", "install", old],
            1 => &["model", "install", new, "--activate"],
            2 => &["model", "rollback", "made"],
            3 => &["model", "activate", "made", "--version", "1.1.0"],
            _ => &["model", "remove", "made", "--version", "1.0.0"],
        };
        let mut command = bench.mien(arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Only an install copies; the others are done sooner.
        std::thread::sleep(dice(if round % 5 < 2 { most } else { most / 4 }));
        if child.try_wait().unwrap().is_none() {
            killed += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Whole, by every check that there is.
        let active = store.active(&id).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(active.is_some() || !served, "round {round}: what served is gone");
        if let Some(package) = active {
            served = true;
            package.check(store.device().unwrap()).unwrap();
            assert!(digests.contains(&package.manifest().sha256));
        }
    }
    // What was cut off goes on: everything ends as it was meant.
    let ran = bench.run(&["model", "install", new.to_str().unwrap(), "--activate"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let package = store.active(&id).unwrap().unwrap();
    assert_eq!(package.manifest().version, Version(1, 1, 0));
    let incoming = bench.home().join("packages/incoming");
    let left: Vec<_> = files(&incoming);
    assert!(left.iter().all(|path| path.extension().is_some_and(|e| e == "part")), "{left:?}");
    let ran = bench.run(&["audit", "verify"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
}

#[test]
fn kills_at_any_instant_leave_one_whole_version_serving_and_the_record_intact() {
    kill_it(support::kills(), 1);
}

#[test]
fn a_key_that_is_taken_back_takes_its_models_with_it_and_another_machine_opens_nothing() {
    let bench = Bench::bare("revoked");
    assert_eq!(bench.run(&["key", "new", "--file"]).code, 0);
    assert_eq!(bench.run(&["key", "new", "shop", "--role", "models"]).code, 0);
    let [old, _] = packages(&bench, 1000);
    let old = old.to_str().unwrap();
    assert_eq!(bench.run(&["model", "install", old]).code, 0);
    let shown = bench.run(&["model", "verify", old, "--json"]).json();
    let id = shown["signed_by"][0].as_str().unwrap().to_owned();
    let other = Bench::bare("other");
    assert_eq!(other.run(&["key", "new", "--file"]).code, 0);
    let ran = other.run(&["model", "install", old]);
    assert!(ran.code == 6 && ran.err.contains("KeyUnknown"), "{} {}", ran.code, ran.err);
    let public = bench.run(&["key", "show", "shop", "--json"]).json()["public"].clone();
    let trust = ["key", "trust", public.as_str().unwrap(), "--name", "shop", "--role", "models"];
    assert_eq!(other.run(&trust).code, 0);
    let ran = other.run(&["model", "install", old]);
    assert!(ran.code == 6 && ran.err.contains("WrongDevice"), "{} {}", ran.code, ran.err);
    assert_eq!(bench.run(&["key", "revoke", &id]).code, 0);
    let ran = bench.run(&["model", "verify", old]);
    assert!(ran.code == 6 && ran.err.contains("KeyRevoked"), "{} {}", ran.code, ran.err);
    let rows = bench.run(&["model", "list", "--json"]).json();
    let made = rows.as_array().unwrap().iter().find(|row| row["model"] == "made").unwrap();
    assert_eq!(made["kept"], "refused");
    let record = bench.run(&["audit", "query", "--kind", "key", "--json"]);
    assert!(record.out.contains("revoke"), "{} {}", record.out, record.err);
}

#[test]
fn what_can_not_be_done_says_what_where_and_what_to_do() {
    let bench = Bench::bare("wrong");
    assert_eq!(bench.run(&["key", "new", "--file"]).code, 0);
    fs::write(bench.path("text.mienpkg"), "no package").unwrap();
    fs::write(bench.path("m.onnx"), "no model").unwrap();
    fs::write(bench.path("m.toml"), "id = \"m\"\nrol = \"gate\"\n").unwrap();
    fs::write(bench.path("alone.onnx"), "no model").unwrap();
    fs::write(bench.path("c.toml"), "identity = \"ada\"\n").unwrap();
    let public = "0".repeat(63);
    let id = "0".repeat(32);
    let rows: &[(&[&str], i32, &[&str])] = &[
        (&["model", "inspect", "none.mienpkg"], 3, &["none.mienpkg", "No such file"]),
        (&["model", "inspect", "text.mienpkg"], 6, &["text.mienpkg", "NotAPackage"]),
        (&["model", "verify", "."], 3, &["not a regular file"]),
        (&["model", "verify", "text.mienpkg"], 6, &["text.mienpkg", "NotAPackage"]),
        (&["model", "install", "none.mienpkg"], 3, &["none.mienpkg", "No such file"]),
        (&["model", "install", "text.mienpkg"], 6, &["text.mienpkg", "NotAPackage"]),
        (&["model", "pack", "m.onnx", "-o", "m.mienpkg"], 2, &["m.toml", "`rol`"]),
        (&["model", "pack", "alone.onnx", "-o", "a.mienpkg"], 3, &["alone.toml"]),
        (&["model", "pack", "m.onnx"], 2, &["--output"]),
        (&["model", "import", "none.onnx"], 3, &["none.toml"]),
        (&["model", "activate", "none"], 2, &["`none`", "mien model list"]),
        (&["model", "activate", "none", "--version", "1"], 2, &["1.0.0"]),
        (&["model", "activate", "none", "--version", "1.0.0"], 2, &["`none`", "mien model list"]),
        (&["model", "activate", "../none"], 2, &["../none"]),
        (&["model", "rollback", "none"], 2, &["`none`", "no version to go back to"]),
        (&["model", "remove", "none"], 2, &["`none`", "mien model list"]),
        (&["key", "new"], 2, &["exists already", "rotate"]),
        (&["key", "new", "shop"], 2, &["--role"]),
        (&["key", "new", "shop", "--role", "all"], 2, &["models", "consent"]),
        (&["key", "new", "device", "--role", "models"], 2, &["`device`", "taken"]),
        (&["key", "show", "none"], 2, &["`none`", "mien key new none"]),
        (&["key", "rotate", "none"], 2, &["`none`", "mien key new none"]),
        (&["key", "revoke", "12"], 2, &["32 digits"]),
        (&["key", "revoke", &id], 2, &[&id, "mien key list"]),
        (&["key", "trust", &public, "--name", "a", "--role", "models"], 2, &["64 digits"]),
        (&["source", "enrol", "a/b", "m.onnx"], 2, &["a/b"]),
        (&["source", "enrol", "ada", "none.png"], 6, &["`centerface`", "mien model fetch"]),
        (&["source", "show", "ada"], 2, &["`ada`", "not enrolled"]),
        (&["consent", "sign", "ada", "none.toml", "--key", "x", "-o", "o"], 3, &["none.toml"]),
        (&["consent", "sign", "ada", "c.toml", "--key", "x", "-o", "o"], 7, &["`subject`"]),
        (&["consent", "grant", "ada", "--signed", "none"], 3, &["none"]),
        (&["consent", "list", "Ada!"], 2, &["Ada!"]),
        (&["audit", "prune", "--days", "30"], 2, &["180"]),
    ];
    let before = bench.files();
    let mut wrong = Vec::new();
    for (args, code, words) in rows {
        let ran = bench.run(args);
        let told = words.iter().all(|word| ran.err.contains(word));
        if ran.code != *code || !told || ran.err.contains("panicked") {
            wrong.push(format!("{args:?}: {} instead of {code}, {words:?}: {}", ran.code, ran.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(bench.files(), before, "nothing half-written is left");
    assert_eq!(bench.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_trust_store_that_others_may_write_is_not_believed() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::bare("exposed");
    assert_eq!(bench.run(&["key", "new", "--file"]).code, 0);
    assert_eq!(bench.run(&["key", "new", "shop", "--role", "models"]).code, 0);
    let [old, _] = packages(&bench, 1000);
    let trust = bench.home().join("keys/trust.json");
    let set = |mode| fs::set_permissions(&trust, fs::Permissions::from_mode(mode)).unwrap();
    set(0o666);
    let ran = bench.run(&["model", "verify", old.to_str().unwrap()]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("trust.json") && ran.err.contains("chmod go-w"), "{}", ran.err);
    set(0o600);
    assert_eq!(bench.run(&["model", "verify", old.to_str().unwrap()]).code, 0);
}
