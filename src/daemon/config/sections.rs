//! Sections of the file that stand alone: device, worker, cameras, control, telemetry, jobs, fleet.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mien_base::id::DeviceId;
use mien_base::limits;

use super::table::{Section, printable};
use super::{
    Camera, CameraDevice, Control, Device, Exposure, Fleet, Jobs, Level, LogFormat, PixelFormat,
    PowerLine, Telemetry, Tls, Worker, machine_number, units,
};

/// A name of a camera, pipeline, output or profile.
pub(super) fn named(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    (1..=limits::SECTION_NAME).contains(&text.len()) && text.bytes().all(plain)
}

/// What `named` takes.
pub(super) const NAMED: &str = "1 to 32 characters of a-z, 0-9, `-`, `_`";

/// The `name` of a table, which it must have.
pub(super) fn name(table: &Section<'_, '_>) -> Option<String> {
    let name = table.read("name", NAMED, |text| named(text).then(|| text.to_owned()));
    table.must("name", name, "name = \"NAME\"")
}

/// What the machine calls itself.
fn host() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
    let name = name.map(|name| name.trim().to_owned());
    name.filter(|name| (1..=limits::NAME).contains(&name.len())).unwrap_or("mien".to_owned())
}

pub(super) fn device(table: Option<Section<'_, '_>>) -> Device {
    let mut device = Device { name: host(), number: machine_number(), utc_offset: 0 };
    let Some(table) = table else { return device };
    let shown = |text: &str| {
        let fits = (1..=limits::NAME).contains(&text.len()) && !text.chars().any(char::is_control);
        fits.then(|| text.to_owned())
    };
    device.name = table.read("name", "1 to 64 bytes of text", shown).unwrap_or(device.name);
    let number = table.whole("number", 0..=u64::from(DeviceId::MAX));
    device.number = number.map_or(device.number, |n| n as u32);
    let wanted = "an offset from UTC, -14:00 to +14:00, for example \"+01:00\"";
    device.utc_offset = table.read("utc_offset", wanted, units::offset).unwrap_or(0);
    table.finish();
    device
}

pub(super) fn worker(table: Option<Section<'_, '_>>) -> Worker {
    let usual = Worker { program: None, threads: None, memory_mib: 6144, allow_unsandboxed: false };
    let Some(table) = table else { return usual };
    let memory = table.bytes("memory", 256 << 20..=1 << 40);
    let worker = Worker {
        program: table.path("program"),
        threads: table.whole("threads", 1..=256).map(|n| n as u16),
        memory_mib: memory.map_or(usual.memory_mib, |bytes| (bytes >> 20) as u32),
        allow_unsandboxed: table.truth("allow_unsandboxed").unwrap_or(false),
    };
    table.finish();
    worker
}

/// What `camera_device` takes.
pub(super) const DEVICE: &str = "by-id:NAME, by-path:NAME, serial:TEXT, bus:TEXT, file:PATH, \
     pattern, or a device node as /dev/video0 (`mien camera list` shows them)";

/// By what a camera, or a device for output, is known.
pub(super) fn camera_device(text: &str, place: impl Fn(&str) -> PathBuf) -> Option<CameraDevice> {
    if text.contains('\0') {
        return None;
    }
    let plain = |text: &str| {
        let fits = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
        fits.then(|| text.to_owned())
    };
    if text == "pattern" {
        return Some(CameraDevice::Pattern);
    }
    let (kind, rest) = match text.split_once(':') {
        Some(parts) if !text.starts_with('/') => parts,
        _ if text.starts_with("/dev/v4l/by-id/") => ("by-id", &text["/dev/v4l/by-id/".len()..]),
        _ if text.starts_with("/dev/v4l/by-path/") => {
            ("by-path", &text["/dev/v4l/by-path/".len()..])
        }
        _ if text.starts_with("/dev/") => return Some(CameraDevice::Node(PathBuf::from(text))),
        _ => return None,
    };
    match kind {
        "by-id" => plain(rest).map(CameraDevice::ById),
        "by-path" => plain(rest).map(CameraDevice::ByPath),
        "serial" => plain(rest).map(CameraDevice::Serial),
        "bus" => (!rest.is_empty()).then(|| CameraDevice::Bus(rest.to_owned())),
        "file" => (!rest.is_empty()).then(|| CameraDevice::File(place(rest))),
        _ => None,
    }
}

pub(super) fn camera(table: Section<'_, '_>) -> Option<Camera> {
    let name = name(&table);
    let place = |text: &str| table.sheet().place(text);
    let device = table.read("device", DEVICE, |text| camera_device(text, place));
    let device = table.must("device", device, "device = \"by-id:NAME\" (`mien camera list`)");
    let size = table.read("size", "WIDTHxHEIGHT, 16x16 to 4096x4096", |text| {
        let side = 16..=limits::CLIP_SIDE;
        units::size(text).filter(|(w, h)| {
            side.contains(w)
                && side.contains(h)
                && w % 2 == 0
                && h % 2 == 0
                && u64::from(*w) * u64::from(*h) <= limits::CLIP_PIXELS
        })
    });
    let formats =
        [("mjpg", PixelFormat::Mjpg), ("yuyv", PixelFormat::Yuyv), ("nv12", PixelFormat::Nv12)];
    let lines = [
        ("off", PowerLine::Off),
        ("50", PowerLine::Hz50),
        ("60", PowerLine::Hz60),
        ("auto", PowerLine::Auto),
    ];
    let exposure = table.read("exposure", "auto, or a time of 1 ms to 1 s", |text| match text {
        "auto" => Some(Exposure::Auto),
        other => {
            let time = units::span(other)?;
            let units = u32::try_from(time.as_micros() / 100).ok()?;
            (10..=10_000).contains(&units).then_some(Exposure::Manual(units))
        }
    });
    let second = Duration::from_secs(1);
    let fps = table.number("fps", 0.1..=240.0);
    let format = table.choice("format", &formats);
    let timeout = table.span("timeout", second / 5..=second * 60);
    let power_line = table.choice("power_line", &lines);
    let camera = device.map(|device| Camera {
        name: name.unwrap_or_default(),
        device,
        size,
        fps,
        format,
        timeout: timeout.unwrap_or(second * 2),
        exposure,
        power_line,
    });
    table.finish();
    camera
}

pub(super) fn control(table: Option<Section<'_, '_>>) -> Control {
    let Some(table) = table else { return Control { socket: None, users: Vec::new() } };
    let most = u64::from(u32::MAX) - 1;
    let users = table.wholes("users", limits::PEERS, "user ids", |n| n <= most);
    let control = Control {
        socket: table.path("socket"),
        users: users.unwrap_or_default().into_iter().map(|n| n as u32).collect(),
    };
    let long = |path: &PathBuf| path.as_os_str().len() > limits::SOCKET_PATH;
    if control.socket.as_ref().is_some_and(long) {
        let most = limits::SOCKET_PATH;
        table.refuse("socket", format!("is too long; allowed are {most} bytes with its folder"));
    }
    table.finish();
    control
}

/// An address that nobody beyond this machine reaches.
pub(super) fn loopback(text: &str) -> Option<SocketAddr> {
    text.parse()
        .ok()
        .filter(|address: &SocketAddr| address.ip().is_loopback() && address.port() > 0)
}

/// What `loopback` takes.
pub(super) const LOOPBACK: &str = "an address of this machine only, 127.0.0.1:PORT or [::1]:PORT";

pub(super) fn telemetry(table: Option<Section<'_, '_>>) -> Telemetry {
    let second = Duration::from_secs(1);
    let usual = Telemetry {
        log: LogFormat::Journald,
        level: Level::Info,
        metrics: None,
        stall: second * 10,
    };
    let Some(table) = table else { return usual };
    let formats =
        [("journald", LogFormat::Journald), ("json", LogFormat::Json), ("plain", LogFormat::Plain)];
    let levels = [
        ("error", Level::Error),
        ("warn", Level::Warn),
        ("info", Level::Info),
        ("debug", Level::Debug),
    ];
    let telemetry = Telemetry {
        log: table.choice("log", &formats).unwrap_or(usual.log),
        level: table.choice("level", &levels).unwrap_or(usual.level),
        metrics: table.read("metrics", LOOPBACK, loopback),
        stall: table.span("stall", second..=second * 600).unwrap_or(usual.stall),
    };
    table.finish();
    telemetry
}

pub(super) fn jobs(table: Option<Section<'_, '_>>) -> Jobs {
    let usual = Jobs { inputs: Vec::new(), outputs: Vec::new(), waiting: 256, running: 1 };
    let Some(table) = table else { return usual };
    let folder = |text: &str| (!text.is_empty()).then(|| table.sheet().place(text));
    let jobs = Jobs {
        inputs: table.texts("inputs", limits::FOLDERS, "folders", folder).unwrap_or_default(),
        outputs: table.texts("outputs", limits::FOLDERS, "folders", folder).unwrap_or_default(),
        waiting: table.whole("waiting", 1..=10_000).map_or(usual.waiting, |n| n as u32),
        running: table.whole("running", 1..=8).map_or(usual.running, |n| n as u32),
    };
    table.finish();
    jobs
}

/// A part of a topic.
fn topic_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=limits::NAME).contains(&text.len()) && text.bytes().all(plain)
}

pub(super) fn fleet(table: Section<'_, '_>) -> Option<Fleet> {
    let part = |text: &str| topic_part(text).then(|| text.to_owned());
    let wanted = "mqtts://HOST[:PORT], or mqtt://HOST[:PORT] of this machine";
    let broker = table.read("broker", wanted, broker);
    let broker = table.must("broker", broker, "broker = \"mqtts://HOST:8883\"");
    let named = "1 to 64 characters of A-Z, a-z, 0-9, `-`, `_`";
    let device = table.read("device", named, part);
    let device = table.must("device", device, "device = \"NAME\", as in its certificate");
    let root = table.read("root", "topic levels of A-Z, a-z, 0-9, `-`, `_` with `/`", |text| {
        let fits = text.len() <= 64 && text.split('/').all(topic_part);
        fits.then(|| text.to_owned())
    });
    let (ca, certificate, key) = (table.path("ca"), table.path("certificate"), table.path("key"));
    let secure = broker.as_ref().is_some_and(|(secure, ..)| *secure);
    let tls = if secure {
        let ca = table.must("ca", ca, "ca = \"FILE\", who signed the broker's certificate");
        let certificate =
            table.must("certificate", certificate, "certificate = \"FILE\", of this device");
        let key = table.must("key", key, "key = \"FILE\", of that certificate");
        match (ca, certificate, key) {
            (Some(ca), Some(certificate), Some(key)) => Some(Tls { ca, certificate, key }),
            _ => None,
        }
    } else {
        None
    };
    // A broker that names clients by their certificates needs a second one for the pools.
    let (certificate, key) = (table.path("pool_certificate"), table.path("pool_key"));
    let pool = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            tls.as_ref().map(|tls| Tls { certificate, key, ..tls.clone() })
        }
        (None, None) => None,
        _ => {
            table.refuse("pool_key", "pool_certificate and pool_key stand together".to_owned());
            None
        }
    };
    let second = Duration::from_secs(1);
    let groups = table.texts("groups", limits::GROUPS, named, part).unwrap_or_default();
    let pools = table.texts("pools", limits::GROUPS, named, part).unwrap_or_default();
    let keep_alive = table.span("keep_alive", second * 5..=second * 600).unwrap_or(second * 30);
    let discovery = table.truth("discovery").unwrap_or(false);
    let set = table.truth("set").unwrap_or(false);
    table.finish();
    let ((_, host, port), device) = broker.zip(device)?;
    let (broker, root) = ((host, port), root.unwrap_or_else(|| "mien/v1".to_owned()));
    Some(Fleet { broker, tls, pool, device, root, groups, pools, keep_alive, discovery, set })
}

/// Whether with TLS, host, port.
fn broker(text: &str) -> Option<(bool, String, u16)> {
    let (secure, rest) = match text.split_once("://")? {
        ("mqtts", rest) => (true, rest),
        ("mqtt", rest) => (false, rest),
        _ => return None,
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() => (host, port.parse().ok().filter(|p| *p > 0)?),
        _ => (rest, if secure { 8883 } else { 1883 }),
    };
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".-:".contains(&b);
    let fits = (1..=253).contains(&inner.len()) && inner.bytes().all(plain);
    let own = inner == "localhost"
        || inner.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    (fits && (secure || own)).then(|| (secure, printable(inner), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_is_known_by_what_does_not_change_with_its_number() {
        let read = |text: &str| camera_device(text, |text| PathBuf::from(format!("/etc/{text}")));
        assert_eq!(read("/dev/v4l/by-id/usb-1"), Some(CameraDevice::ById("usb-1".to_owned())));
        assert_eq!(read("bus:usb-0000:1"), Some(CameraDevice::Bus("usb-0000:1".to_owned())));
        assert_eq!(read("/dev/video3"), Some(CameraDevice::Node("/dev/video3".into())));
        assert_eq!(read("file:a.y4m"), Some(CameraDevice::File("/etc/a.y4m".into())));
        for text in
            ["pattern", "by-id:usb-1", "by-path:p", "serial:7", "bus:usb-0000:1", "/dev/video3"]
        {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for wrong in ["", "video0", "by-id:", "by-id:../x", "usb:1", "/etc/passwd", "file:"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn without_tls_only_a_broker_of_this_machine_is_taken() {
        assert_eq!(broker("mqtts://b.example"), Some((true, "b.example".to_owned(), 8883)));
        assert_eq!(broker("mqtt://127.0.0.1:1884"), Some((false, "127.0.0.1".to_owned(), 1884)));
        assert_eq!(broker("mqtt://[::1]:1884"), Some((false, "::1".to_owned(), 1884)));
        for wrong in ["mqtt://b.example", "mqtts://", "http://b", "mqtts://b:0", "mqtts://a b"] {
            assert_eq!(broker(wrong), None, "{wrong}");
        }
    }
}
