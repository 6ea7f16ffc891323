//! Outputs and the pipelines that write to them.

use std::time::Duration;

use mien_base::limits;

use super::sections::{DEVICE, LOOPBACK, camera_device, loopback, name};
use super::table::Section;
use super::{Keep, Listen, Mjpeg, Output, OutputKind, Pipeline, Segments, Snapshots, recipe};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy)]
enum Kind {
    Segments,
    V4l2,
    Mjpeg,
    Snapshots,
}

const KINDS: &[(&str, Kind)] = &[
    ("segments", Kind::Segments),
    ("v4l2", Kind::V4l2),
    ("mjpeg", Kind::Mjpeg),
    ("snapshots", Kind::Snapshots),
];

pub(super) fn output(table: Section<'_, '_>) -> Option<Output> {
    let name = name(&table).unwrap_or_default();
    let kind = table.choice("kind", KINDS);
    let words: Vec<String> = KINDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let kind = table.must("kind", kind, &format!("kind = one of {}", words.join(", ")))?;
    let kind = match kind {
        Kind::Segments => segments(&table).map(OutputKind::Segments),
        Kind::V4l2 => {
            let place = |text: &str| table.sheet().place(text);
            let device = table.read("device", DEVICE, |text| camera_device(text, place));
            let device = table.must("device", device, "device = \"/dev/videoN\", a loopback");
            device.map(|device| OutputKind::V4l2 { device })
        }
        Kind::Mjpeg => mjpeg(&table).map(OutputKind::Mjpeg),
        Kind::Snapshots => snapshots(&table).map(OutputKind::Snapshots),
    };
    table.finish();
    Some(Output { name, kind: kind? })
}

fn keep(table: &Section<'_, '_>) -> Keep {
    Keep {
        age: table.span("keep", SECOND * 60..=DAY * 3660),
        bytes: table.bytes("keep_bytes", 1 << 20..=1 << 44).unwrap_or(20 << 30),
        free: table.bytes("keep_free", 1 << 20..=1 << 44).unwrap_or(1 << 30),
    }
}

fn quality(table: &Section<'_, '_>, usual: u8) -> u8 {
    table.whole("quality", 1..=100).map_or(usual, |n| n as u8)
}

fn segments(table: &Section<'_, '_>) -> Option<Segments> {
    let dir = table.path("dir");
    let dir = table.must("dir", dir, "dir = \"FOLDER\"");
    let length = table.span("length", SECOND..=SECOND * 3600);
    let bytes = table.bytes("bytes", 1 << 20..=1 << 34);
    let (quality, keep) = (quality(table, 60), keep(table));
    Some(Segments {
        dir: dir?,
        length: length.unwrap_or(SECOND * 60),
        bytes: bytes.unwrap_or(256 << 20),
        quality,
        keep,
    })
}

fn mjpeg(table: &Section<'_, '_>) -> Option<Mjpeg> {
    let wanted = format!("{LOOPBACK}, or unix:PATH");
    let listen = table.read("listen", &wanted, |text| match text.strip_prefix("unix:") {
        Some("") => None,
        Some(path) => {
            let path = table.sheet().place(path);
            (path.as_os_str().len() <= limits::SOCKET_PATH).then_some(Listen::Unix(path))
        }
        None => loopback(text).map(Listen::Loopback),
    });
    let listen = table.must("listen", listen, "listen = \"127.0.0.1:PORT\" or \"unix:PATH\"");
    let token = table.path("token");
    let token = table.must("token", token, "token = \"FILE\", which holds the token of viewers");
    let fps = table.whole("fps", 1..=60).map_or(5, |n| n as u32);
    let quality = quality(table, 80);
    Some(Mjpeg { listen: listen?, token: token?, fps, quality })
}

fn snapshots(table: &Section<'_, '_>) -> Option<Snapshots> {
    let dir = table.path("dir");
    let dir = table.must("dir", dir, "dir = \"FOLDER\"");
    let every = table.span("every", SECOND..=DAY);
    let every = table.must("every", every, "every = \"60 s\"");
    let (quality, keep) = (quality(table, 90), keep(table));
    Some(Snapshots { dir: dir?, every: every?, quality, keep })
}

pub(super) fn pipeline(
    table: &Section<'_, '_>,
    device: u32,
    cameras: &[&str],
    outputs: &[&str],
) -> Option<Pipeline> {
    let name = name(table);
    let camera = table.text("camera");
    let camera = table.must("camera", camera, "camera = \"NAME\", one of the [[camera]] tables");
    if let Some(camera) = camera.filter(|camera| !cameras.contains(camera)) {
        table.refuse("camera", unknown("camera", camera, cameras));
    }
    let to = table
        .texts("outputs", limits::LIVE_OUTPUTS, "names of outputs", |text| Some(text.to_owned()));
    let to = table.must("outputs", to, "outputs = [\"NAME\"], of the [[output]] tables");
    for (n, output) in to.iter().flatten().enumerate() {
        if !outputs.contains(&output.as_str()) {
            table.refuse("outputs", unknown("output", output, outputs));
        } else if to.iter().flatten().take(n).any(|other| other == output) {
            table.refuse("outputs", format!("names `{output}` twice"));
        }
    }
    let enabled = table.truth("enabled").unwrap_or(true);
    let (recipe, overlay) = recipe::read(table, device);
    Some(Pipeline {
        name: name?,
        camera: camera?.to_owned(),
        outputs: to?,
        enabled,
        recipe,
        overlay,
    })
}

fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let given = super::table::printable(given);
    if known.is_empty() {
        return format!("there is no {what} `{given}`; the file has no [[{what}]] table");
    }
    format!("there is no {what} `{given}`; allowed are {}", known.join(", "))
}
