//! Files that can be used, and what is said of those that can't.

use super::*;
use crate::config::{CameraDevice, LogFormat};
use mien_base::clock::Wall;
use mien_base::recipe::{Action, Anonymise};

const WHOLE: &str = include_str!("../../../../mien.toml");

fn parse(text: &str) -> Result<Config, Faults> {
    Config::parse(Path::new("/etc/mien/mien.toml"), text)
}

/// Line, key and message of each fault.
fn faults(text: &str) -> Vec<(usize, String, String)> {
    let found = parse(text).unwrap_err().faults;
    found.into_iter().map(|f| (f.line, f.key, f.message)).collect()
}

const CAMERA: &str = "[[camera]]\nname = \"door\"\ndevice = \"/dev/video0\"\n";
const OUTPUT: &str = "[[output]]\nname = \"rec\"\nkind = \"segments\"\ndir = \"/r\"\n";
const PIPELINE: &str = "[[pipeline]]\nname = \"door\"\ncamera = \"door\"\noutputs = [\"rec\"]\n";

#[test]
fn the_example_in_the_repository_can_be_used() {
    let config = parse(WHOLE).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(!config.cameras.is_empty() && !config.pipelines.is_empty());
    assert!(config.fleet.is_none() && config.telemetry.metrics.is_none(), "nothing listens");
    let secret = WHOLE.lines().filter(|line| line.starts_with("# ") && line.contains(" = "));
    assert!(secret.count() > 10, "what is usual is shown, commented out");
}

#[test]
fn every_key_that_the_example_shows_is_known() {
    // With the comment signs of its settings taken away the example must hold, too.
    let all: Vec<&str> = WHOLE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => rest,
            _ => line,
        })
        .collect();
    let config = parse(&all.join("\n")).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(config.fleet.is_some() && config.telemetry.metrics.is_some());
    assert!(config.profiles.len() == 1 && config.outputs.len() >= 4);
}

#[test]
fn an_empty_file_is_a_daemon_without_cameras() {
    let config = parse("").unwrap();
    assert!(config.cameras.is_empty() && config.fleet.is_none());
    assert_eq!(config.telemetry.log, LogFormat::Journald);
}

#[test]
fn all_faults_are_told_at_once_with_line_and_key() {
    let text = format!(
        "[device]\nnumber = 268435456\n{CAMERA}fps = 900\nsise = \"640x480\"\n\
         [[output]]\nname = \"rec\"\nkind = \"tape\"\n\
         [[pipeline]]\nname = \"Door\"\ncamera = \"dor\"\noutputs = [\"rec\"]\nanonymise = \"eyes\"\n"
    );
    let found = faults(&text);
    let told: Vec<(usize, &str)> =
        found.iter().map(|(line, key, _)| (*line, key.as_str())).collect();
    assert_eq!(
        told,
        [
            (2, "device.number"),
            (6, "camera.door.fps"),
            (7, "camera.door.sise"),
            (10, "output.rec.kind"),
            (12, "pipeline.Door.name"),
            (13, "pipeline.Door.camera"),
            (14, "pipeline.Door.outputs"),
            (15, "pipeline.Door.anonymise"),
        ]
    );
    assert!(found[1].2.contains("0.1 to 240"), "{}", found[1].2);
    assert!(found[2].2.contains("did you mean `size`"), "{}", found[2].2);
    assert!(found[3].2.contains("segments, v4l2, mjpeg, snapshots"), "{}", found[3].2);
    assert!(found[7].2.contains("recognisable"), "{}", found[7].2);
    let shown = parse(&text).unwrap_err().to_string();
    assert!(shown.contains("8 faults") && shown.contains("/etc/mien/mien.toml:6: camera.door.fps"));
}

#[test]
fn what_is_missing_is_asked_for() {
    let unknown = faults("[[camera]]\nfsp = 1\n[[pipeline]]\nx = 1\n[fleet]\ny = 1\n");
    for key in ["camera.1.fsp", "pipeline.1.x", "fleet.y"] {
        assert!(unknown.iter().any(|fault| fault.1 == key), "{key} is not told beside what misses");
    }
    let found = faults("[[camera]]\nname = \"door\"\n[[output]]\nkind = \"mjpeg\"\nname = \"p\"\n");
    let keys: Vec<&str> = found.iter().map(|(_, key, _)| key.as_str()).collect();
    assert_eq!(keys, ["camera.door.device", "output.p.listen", "output.p.token"]);
    assert!(found.iter().all(|(_, _, message)| message.contains("is missing; write")), "{found:?}");
}

#[test]
fn broken_toml_names_its_line() {
    let found = faults("[device]\nname = \n");
    assert_eq!(found[0].0, 2, "{found:?}");
    assert!(found[0].2.contains("TOML"));
    assert_eq!(faults("[device]\nname = \"a\"\nname = \"b\"\n")[0].0, 3);
}

#[test]
fn nothing_listens_beyond_this_machine() {
    for listen in ["0.0.0.0:8080", "192.168.1.4:80", "[::]:80", "127.0.0.1:0", "8080"] {
        let text = format!(
            "[telemetry]\nmetrics = \"{listen}\"\n[[output]]\nname = \"p\"\nkind = \"mjpeg\"\n\
             listen = \"{listen}\"\ntoken = \"t\"\n"
        );
        let found = faults(&text);
        assert_eq!(found.len(), 2, "{listen}: {found:?}");
        assert!(found.iter().all(|(_, _, message)| message.contains("127.0.0.1:PORT")));
    }
}

#[test]
fn no_two_write_to_one_place() {
    let text = format!(
        "{CAMERA}{OUTPUT}[[output]]\nname = \"in\"\nkind = \"snapshots\"\ndir = \"/r/x\"\n\
         every = \"1 min\"\n{PIPELINE}[[pipeline]]\nname = \"two\"\ncamera = \"door\"\n\
         outputs = [\"rec\"]\n[[camera]]\nname = \"door\"\ndevice = \"/dev/video1\"\n"
    );
    let keys: Vec<String> = faults(&text).into_iter().map(|(_, key, _)| key).collect();
    assert_eq!(keys, ["output.in.dir", "pipeline.two.outputs", "camera.door.name"]);
}

#[test]
fn paths_stand_beside_the_file() {
    let text = format!("{CAMERA}[[output]]\nname = \"rec\"\nkind = \"segments\"\ndir = \"r\"\n");
    let config = parse(&text.replace("/dev/video0", "file:clip.y4m")).unwrap();
    assert_eq!(config.cameras[0].device, CameraDevice::File("/etc/mien/clip.y4m".into()));
    assert_eq!(config.written(), [Path::new("/etc/mien/r")]);
}

#[test]
fn a_profile_changes_what_it_names_and_nothing_else() {
    let text = format!(
        "[device]\nutc_offset = \"+01:00\"\n{CAMERA}{OUTPUT}{PIPELINE}anonymise = \"blur\"\n\
         label_height = 0.1\n[profile.night]\nfrom = \"22:00\"\nto = \"06:00\"\n\
         [profile.night.pipeline.door]\nanonymise = \"solid\"\n"
    );
    let config = parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
    let at = |hour: u64| Wall(Wall::from_date(2026, 12, 4).unwrap().0 + hour * 3600);
    let is = |hour: u64| config.pipelines_at(at(hour))["door"].recipe.clone();
    assert!(matches!(is(12).action, Action::Anonymise(Anonymise::Blur { .. })));
    assert!(matches!(is(21).action, Action::Anonymise(Anonymise::Solid { .. })), "22:00 at +1");
    assert!((is(21).mark.label_height - 0.1).abs() < 1e-6);
    let off = text.replace("anonymise = \"solid\"", "enabled = false");
    assert!(parse(&off).unwrap().pipelines_at(at(21)).is_empty());
    let found = faults(&text.replace("anonymise = \"solid\"", "camera = \"door\""));
    assert_eq!(found[0].1, "profile.night.pipeline.door.camera");
    let found = faults(&text.replace("pipeline.door]", "pipeline.dor]"));
    assert!(found[0].2.contains("there are door"), "{found:?}");
}

#[test]
fn rules_and_swaps_are_those_of_mien_process() {
    let text = format!(
        "{CAMERA}{OUTPUT}{PIPELINE}swap = \"alice\"\nothers = \"image=me.png\"\nzones = [\"0,0,50,50\"]\n\
         boost = 2\n[[pipeline.rule]]\nwho = \"carol\"\ndo = \"pass\"\n[[pipeline.rule]]\n\
         who = \"dan\"\ndo = \"swap:bob\"\n"
    );
    let config = parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
    let pipeline = &config.pipelines[0];
    assert_eq!(pipeline.overlay.as_deref(), Some(Path::new("/etc/mien/me.png")));
    let swapped: Vec<String> =
        crate::config::swapped(&pipeline.recipe).map(ToString::to_string).collect();
    assert_eq!(swapped, ["bob", "alice"]);
    assert!(matches!(&pipeline.recipe.action, Action::Swap(swap) if swap.boost == 2));
    let found = faults(&text.replace("do = \"pass\"", "do = \"explode\"\nwen = 1"));
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].1, "pipeline.door.rule.1.wen");
}

#[test]
fn a_file_that_is_not_there_or_too_large_is_one_fault() {
    let found = Config::load(Path::new("/nowhere/mien.toml")).unwrap_err();
    assert!(found.to_string().contains("/nowhere/mien.toml"), "{found}");
    let path = std::env::temp_dir().join(format!("mien-config-{}", std::process::id()));
    std::fs::write(&path, vec![b'#'; (limits::TEXT_FILE + 1) as usize]).unwrap();
    let found = Config::load(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(found.to_string().contains("256 KiB"), "{found}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\PC\n]{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_change_of_the_example_makes_the_reader_panic(at in 0..4000_usize, with in "\\PC{0,3}") {
        let mut text = WHOLE.to_owned();
        if text.is_char_boundary(at) && at < text.len() {
            text.insert_str(at, &with);
        }
        let _ = parse(&text);
    }
}
