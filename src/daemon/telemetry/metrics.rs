//! The figures as text, in the form that Prometheus reads. Labels come from the configuration alone.

use std::fmt::Write as _;

use super::health::Health;
use super::machine::Machine;
use crate::live::{PipelineStatus, State};

/// All figures.
#[must_use]
pub fn text(pipelines: &[PipelineStatus], machine: &Machine, health: &Health) -> String {
    let mut page = Page(String::with_capacity(4096));
    page.one(
        "mien_healthy",
        "gauge",
        "1 when nothing is wrong",
        f64::from(u8::from(health.healthy)),
    );
    if let Some(kib) = machine.rss_kib {
        page.one(
            "mien_resident_bytes",
            "gauge",
            "Resident memory of the daemon",
            kib as f64 * 1024.0,
        );
    }
    if let Some(fds) = machine.fds {
        page.one("mien_descriptors", "gauge", "Open file descriptors of the daemon", fds as f64);
    }
    page.head("mien_disk_free_bytes", "gauge", "Room on the disk of a folder");
    for disk in &machine.disks {
        let folder = disk.folder.to_string_lossy();
        page.line("mien_disk_free_bytes", &[("folder", &folder)], disk.free as f64);
    }
    page.head("mien_temperature_celsius", "gauge", "Temperature of a thermal zone");
    for (zone, degrees) in &machine.temperatures {
        page.line("mien_temperature_celsius", &[("zone", zone)], f64::from(*degrees));
    }
    type Figure = (&'static str, &'static str, &'static str, fn(&PipelineStatus) -> f64);
    let figures: [Figure; 12] = [
        ("mien_pipeline_running", "gauge", "1 when frames leave", |p| {
            f64::from(u8::from(p.state == State::Running))
        }),
        ("mien_frames_captured_total", "counter", "Frames that the camera gave", |p| {
            p.stats.captured as f64
        }),
        ("mien_frames_left_total", "counter", "Frames that left", |p| p.moved as f64),
        ("mien_frames_covered_total", "counter", "Frames that left covered whole", |p| {
            p.stats.covered as f64
        }),
        ("mien_frames_withheld_total", "counter", "Frames that were not let out", |p| {
            p.stats.withheld as f64
        }),
        ("mien_frames_held_total", "counter", "Frames that left with masks held", |p| {
            p.stats.held as f64
        }),
        ("mien_frames_per_second", "gauge", "Frames that left, a second", |p| f64::from(p.fps)),
        ("mien_faces", "gauge", "Faces in the newest frame", |p| f64::from(p.stats.faces)),
        ("mien_masks_held", "gauge", "Faces of the newest frame that are held", |p| {
            f64::from(p.stats.masks)
        }),
        ("mien_queue_age_seconds", "gauge", "Age of a frame when it is taken up", |p| {
            p.stats.queue_us as f64 / 1e6
        }),
        ("mien_workers_lost_total", "counter", "Workers that died or were given up", |p| {
            f64::from(p.workers_lost)
        }),
        ("mien_camera_reopened_total", "counter", "Times a camera was opened anew", |p| {
            f64::from(p.reopened)
        }),
    ];
    for (name, kind, help, value) in figures {
        page.head(name, kind, help);
        for pipeline in pipelines {
            page.line(name, &[("pipeline", &pipeline.name)], value(pipeline));
        }
    }
    page.head("mien_latency_seconds", "gauge", "Time of a stage, by quantile");
    for pipeline in pipelines {
        for lag in &pipeline.stats.lags {
            for (quantile, micros) in [("0.5", lag.p50), ("0.95", lag.p95), ("0.99", lag.p99)] {
                let labels = [
                    ("pipeline", pipeline.name.as_str()),
                    ("stage", &lag.stage),
                    ("quantile", quantile),
                ];
                page.line("mien_latency_seconds", &labels, micros as f64 / 1e6);
            }
        }
    }
    page.head("mien_frames_dropped_total", "counter", "Frames that were dropped, by reason");
    for pipeline in pipelines {
        for (reason, count) in &pipeline.stats.drops {
            let labels = [("pipeline", pipeline.name.as_str()), ("reason", reason)];
            page.line("mien_frames_dropped_total", &labels, *count as f64);
        }
    }
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (n, (key, label)) in labels.iter().enumerate() {
            self.0.push(if n == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{key}=\"");
            for c in label.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::wire::live::Lag;

    #[test]
    fn the_page_is_as_prometheus_reads_it() {
        let mut door = PipelineStatus::new("door", "c");
        door.state = State::Running;
        door.moved = 12;
        door.stats.lags.push(Lag { stage: "a\"b".to_owned(), p50: 1500, ..Lag::default() });
        let machine = super::super::machine(&[]);
        let health = Health { healthy: true, reasons: Vec::new() };
        let page = text(&[door], &machine, &health);
        for line in [
            "mien_healthy 1",
            "mien_frames_left_total{pipeline=\"door\"} 12",
            "mien_latency_seconds{pipeline=\"door\",stage=\"a\\\"b\",quantile=\"0.5\"} 0.0015",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        let named = |line: &str| line.split([' ', '{']).next().unwrap().to_owned();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let head = format!("# TYPE {} ", named(line));
            assert!(page.contains(&head), "{line}");
        }
    }
}
