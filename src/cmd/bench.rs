//! `mien bench`: the main job at several sizes, cold and warm, and compared with a stored run.

use std::fs;
use std::path::{Path, PathBuf};

use mien_base::recipe::{Action, Recipe};
use mien_base::report::StageTime;
use mien_vault::catalog::Group;
use mien_vault::fetch::Selection;

use super::args::{BenchArgs, FormatArg};
use super::desk::Desk;
use super::error::{Error, Result};
use super::fetch::Fetcher;
use super::figures::{self, Environment, Row, Run};
use super::inputs::Task;
use super::out;
use super::recipe::Asked;

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let sizes = args.sizes.iter().map(|text| height(text)).collect::<Result<Vec<u16>>>()?;
    let action: Action =
        args.action.parse().map_err(|error| Error::Usage(format!("--action: {error}")))?;
    let then = args.compare.as_deref().map(stored).transpose()?;
    let home = mien_vault::Home::from_env()?;
    let mut fetcher = Fetcher::new(args.run.quiet)?;
    fetcher.models(&home, Selection::Usual, None)?;
    let picture = match &args.picture {
        Some(picture) => picture.clone(),
        None => {
            fetcher.pictures(&home, Group::Demo, None)?;
            home.pictures().join("astronaut.png")
        }
    };
    let scratch = Scratch::new()?;
    let now = measure(args, &sizes, &action, &picture, &scratch.0)?;
    if args.run.json {
        out::json(&now)?;
    } else {
        out::line(&text(&now))?;
    }
    match then {
        Some(then) => against(&now, &then, args.run.json),
        None => Ok(()),
    }
}

fn height(text: &str) -> Result<u16> {
    let digits = text.strip_suffix('p').unwrap_or(text);
    match digits.parse() {
        Ok(height @ 64..=4320) => Ok(height),
        _ => Err(Error::Usage(format!("`{text}` does not fit --sizes: 240p to 2160p"))),
    }
}

fn stored(path: &Path) -> Result<Run> {
    let text = super::desk::read_text("Can't read the stored run", path)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("`{}` is no stored run: {error}", path.display())))
}

/// A folder for the pictures of the run, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mien-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|source| Error::File {
            what: "Can't make the folder",
            path: folder.clone(),
            source,
        })?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn measure(
    args: &BenchArgs,
    sizes: &[u16],
    action: &Action,
    picture: &Path,
    scratch: &Path,
) -> Result<Run> {
    let mut desk = Desk::open(&args.run)?;
    if let Action::Swap(swap) = action {
        desk.check_swap(&swap.source)?;
    }
    let recipe = Recipe { action: action.clone(), ..Recipe::default() };
    let asked = Asked { recipe, overlay: None };
    let mut task = Task {
        input: picture.to_owned(),
        output: scratch.join("out.jpg"),
        format: Some(FormatArg::Jpeg),
    };
    desk.process(&task, &asked, 92)?;
    let start_ms = desk.passed().as_secs_f64() * 1e3;
    let facts = desk.worker.facts()?;
    let threads = usize::from(facts.hello.threads);
    let environment = Environment::here(threads, &facts.hello.backend, desk.wall);
    let mut rows = Vec::new();
    for &size in sizes {
        task.input = scratch.join(format!("{size}.jpg"));
        desk.frame(picture, size, &task.input)?;
        let mut runs = Vec::new();
        let (mut faces, mut width, mut height) = (0, 0, 0);
        for _ in 0..=args.rounds {
            let before = desk.passed();
            let report = desk.process(&task, &asked, 92)?.report;
            let ms = (desk.passed() - before).as_secs_f64() * 1e3;
            (faces, width, height) = (report.faces.len(), report.width, report.height);
            runs.push((ms, report.stages));
        }
        let (cold, warm): (f64, &[(f64, Vec<StageTime>)]) = (runs[0].0, &runs[1..]);
        rows.push(Row { faces, width, height, ..Row::of(&format!("{size}p"), cold, warm) });
    }
    let peak = desk.worker.facts()?.peak_rss_kib.unwrap_or(0) as f64 / 1024.0;
    Ok(Run {
        environment,
        action: action.to_string(),
        start_ms,
        worker_peak_mib: peak,
        root_peak_mib: own_peak_mib(),
        rows,
    })
}

fn own_peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn text(run: &Run) -> String {
    let e = &run.environment;
    let mut text = format!(
        "mien {} · {} · {} of {} cores · kernel {} · load {:.1} · {}\n\
         {} · start to first result {:.0} ms · peak memory {:.0} MiB worker, {:.0} MiB root\n\n",
        e.version,
        e.cpu,
        e.threads,
        e.cores,
        e.kernel,
        e.load,
        e.date,
        run.action,
        run.start_ms,
        run.worker_peak_mib,
        run.root_peak_mib
    );
    let rows: Vec<Vec<String>> = run
        .rows
        .iter()
        .map(|row| {
            let inference: f32 = row.stages.iter().map(|s| s.inference_ms).sum();
            vec![
                row.size.clone(),
                format!("{}x{}", row.width, row.height),
                row.faces.to_string(),
                format!("{:.1}", row.cold_ms),
                format!("{:.1}", row.median_ms),
                format!("{:.1}", row.spread_ms),
                format!("{:.1}", row.p95_ms),
                format!("{inference:.1}"),
                format!("{:.1}", 1e3 / row.median_ms.max(1e-3)),
            ]
        })
        .collect();
    let header =
        ["size", "pixels", "faces", "cold ms", "median", "spread", "p95", "inference", "1/s"];
    text.push_str(&out::table(&header, &rows));
    for row in &run.rows {
        text.push_str(&format!("\n{}:", row.size));
        for stage in &row.stages {
            text.push_str(&format!(" {} {:.1}", stage.stage, stage.ms));
        }
    }
    text
}

fn against(now: &Run, then: &Run, json: bool) -> Result<()> {
    let ratios = figures::compare(now, then);
    if ratios.is_empty() {
        return Err(Error::Usage("The stored run has no size in common with this one".to_owned()));
    }
    let words: Vec<String> = ratios.iter().map(|r| format!("{} {:.2}", r.size, r.median)).collect();
    if !json {
        out::line(&format!("\nmedian against the stored run: {}", words.join(", ")))?;
    }
    let slower: Vec<String> =
        ratios.iter().filter(|r| r.slower).map(|r| format!("{} {:.2}", r.size, r.median)).collect();
    if !slower.is_empty() {
        return Err(Error::Slower(format!("More than 10 % slower: {}", slower.join(", "))));
    }
    Ok(())
}
