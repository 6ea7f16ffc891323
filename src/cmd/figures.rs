//! Figures of a bench run: medians, spread, the environment they hold for, and comparison by ratio.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use mien_base::clock::Wall;
use mien_base::report::StageTime;

/// A median that is this much slower than the stored one fails the comparison.
const SLOWER: f64 = 1.10;

/// One run of `mien bench`, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub environment: Environment,
    /// What was done to the faces.
    pub action: String,
    /// From the start of the worker to its first result, in ms.
    pub start_ms: f64,
    /// Peak resident memory of the worker in MiB.
    pub worker_peak_mib: f64,
    /// Peak resident memory of the root program in MiB.
    pub root_peak_mib: f64,
    pub rows: Vec<Row>,
}

/// What the figures hold for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub version: String,
    pub cpu: String,
    pub cores: usize,
    pub threads: usize,
    pub kernel: String,
    pub backend: String,
    /// Load average of one minute when the run began: figures of a busy machine are noise.
    pub load: f64,
    pub date: String,
}

/// Figures of one picture size.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub size: String,
    pub width: u32,
    pub height: u32,
    pub faces: usize,
    /// First picture of this size, in ms.
    pub cold_ms: f64,
    /// Warm pictures, in ms.
    pub median_ms: f64,
    pub p95_ms: f64,
    /// Median absolute deviation in ms.
    pub spread_ms: f64,
    /// Median of each stage in ms, and of the model runs inside it.
    pub stages: Vec<StageTime>,
}

/// Quantile of values by linear interpolation; 0 when there are none.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(last);
    sorted[low] * (1.0 - part) + sorted[high] * part
}

impl Row {
    /// Figures of the warm runs of one size: whole times, and the stages of each.
    pub(crate) fn of(size: &str, cold_ms: f64, warm: &[(f64, Vec<StageTime>)]) -> Self {
        let times: Vec<f64> = warm.iter().map(|(ms, _)| *ms).collect();
        let median = quantile(&times, 0.5);
        let off: Vec<f64> = times.iter().map(|ms| (ms - median).abs()).collect();
        let mut by_stage: BTreeMap<usize, (String, [Vec<f64>; 3])> = BTreeMap::new();
        for (_, stages) in warm {
            for (at, stage) in stages.iter().enumerate() {
                let entry = by_stage
                    .entry(at)
                    .or_insert_with(|| (stage.stage.clone(), [Vec::new(), Vec::new(), Vec::new()]));
                let times = [stage.ms, stage.inference_ms, stage.inference_cpu_ms];
                entry.1.iter_mut().zip(times).for_each(|(all, ms)| all.push(f64::from(ms)));
            }
        }
        let stages = by_stage.into_values().map(|(stage, times)| {
            let [ms, inference_ms, inference_cpu_ms] = times.map(|all| quantile(&all, 0.5) as f32);
            StageTime { stage, ms, inference_ms, inference_cpu_ms }
        });
        Self {
            size: size.to_owned(),
            width: 0,
            height: 0,
            faces: 0,
            cold_ms,
            median_ms: median,
            p95_ms: quantile(&times, 0.95),
            spread_ms: quantile(&off, 0.5),
            stages: stages.collect(),
        }
    }
}

impl Environment {
    /// This machine, now.
    pub(crate) fn here(threads: usize, backend: &str, wall: Wall) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let cpu = cpuinfo
            .lines()
            .find(|line| line.starts_with("model name") || line.starts_with("CPU part"))
            .and_then(|line| line.split_once(':'))
            .map_or("unknown", |(_, name)| name.trim());
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: cpu.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            backend: backend.to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
            date: wall.to_string(),
        }
    }
}

/// One size in two runs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub size: String,
    /// Median now by median then: 1.2 is 20 % slower.
    pub median: f64,
    pub slower: bool,
}

/// The sizes that stand in both runs.
pub(crate) fn compare(now: &Run, then: &Run) -> Vec<Ratio> {
    let pair = |row: &Row| {
        let old = then.rows.iter().find(|old| old.size == row.size && old.median_ms > 0.0)?;
        let median = row.median_ms / old.median_ms;
        Some(Ratio { size: row.size.clone(), median, slower: median > SLOWER })
    };
    now.rows.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0], 1.0), 2.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_row_takes_the_median_of_each_stage() {
        let stage = |ms| {
            vec![StageTime {
                stage: "detect".into(),
                ms,
                inference_ms: ms / 2.0,
                inference_cpu_ms: ms / 2.0,
            }]
        };
        let row = Row::of("720p", 9.0, &[(1.0, stage(1.0)), (5.0, stage(3.0)), (2.0, stage(2.0))]);
        assert_eq!((row.median_ms, row.spread_ms), (2.0, 1.0));
        assert_eq!((row.stages[0].ms, row.stages[0].inference_ms), (2.0, 1.0));
    }

    #[test]
    fn more_than_a_tenth_slower_is_slower() {
        let run = |ms: f64| Run {
            environment: Environment::here(1, "cpu", Wall(0)),
            action: "blur".into(),
            start_ms: 0.0,
            worker_peak_mib: 0.0,
            root_peak_mib: 0.0,
            rows: vec![Row { median_ms: ms, ..Row::of("720p", 0.0, &[]) }],
        };
        assert!(!compare(&run(1.05), &run(1.0))[0].slower);
        assert!(compare(&run(1.2), &run(1.0))[0].slower);
    }
}
