//! What the worker finds out about a model before it serves: what its file holds, and how far it
//! is from the one that it stands in for.

use std::fs;
use std::io::Seek as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mien_base::clock::Clock as _;
use mien_base::error::ErrorKind;
use mien_base::id::ModelId;
use mien_base::limits;
use mien_base::model::{Distance, Folded, Manifest as Model, Survey};
use mien_base::recipe::Recipe;
use mien_base::report::Failure;
use mien_daemon::files::Input;
use mien_daemon::supervise::MeasureJob;
use mien_vault::draft::{self, Draft};
use mien_vault::manifest::{Bounds, Contract, Manifest, Port, Version};
use mien_vault::{Home, ModelSource as _, ModelStore, accept, digest};

use super::desk::Desk;
use super::error::{Error, Result};
use super::model_args::{ImportArgs, MeasureArgs};
use super::{out, pack};

/// The pictures by which this machine measures: `frames` of its home, else the demo's portraits.
fn frames(home: &Home) -> Result<Vec<PathBuf>> {
    for folder in [home.frames(), home.pictures()] {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let picture = |path: &PathBuf| {
            let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            ["png", "jpg", "jpeg", "webp"].contains(&ending)
        };
        paths.retain(picture);
        paths.sort();
        paths.truncate(limits::MEASURED);
        if !paths.is_empty() {
            return Ok(paths);
        }
    }
    Err(Error::Usage(format!(
        "No frames to measure by: put up to {} pictures with faces into `{}`",
        limits::MEASURED,
        home.frames().display()
    )))
}

fn distance(
    desk: &mut Desk,
    pair: (&Model, &Model),
    models: (&OwnedFd, &OwnedFd),
    frames: &[PathBuf],
) -> Result<Distance> {
    let inputs: Vec<Input> = frames.iter().cloned().map(Input::Path).collect();
    let detect = Recipe::default().detect;
    let (reference, candidate) = pair;
    let job = desk.next_job()?;
    let job = MeasureJob { job, reference, candidate, models, inputs: &inputs, detect: &detect };
    Ok(desk.worker.measure(&job)?)
}

fn words(distance: &Distance) -> String {
    let mut words = format!("{} faces compared, {} missed", distance.faces, distance.missed);
    for (name, value) in [
        ("mean box overlap", distance.box_iou),
        ("mean landmark drift", distance.landmark_drift),
        ("least cosine", distance.cosine),
    ] {
        if let Some(value) = value {
            words.push_str(&format!(", {name} {value:.4}"));
        }
    }
    words
}

fn as_bounds(distance: &Distance) -> Bounds {
    Bounds {
        box_iou: distance.box_iou,
        landmark_drift: distance.landmark_drift,
        cosine: distance.cosine,
        psnr: None,
    }
}

/// Measures an installed INT8 version against a full one: the newest installed of the same name,
/// or what serves as `against`. INT8 is never measured by INT8: errors would add up unseen.
pub(crate) fn installed(
    desk: &mut Desk,
    id: &ModelId,
    version: Version,
    against: Option<&ModelId>,
) -> Result<Bounds> {
    let store = ModelStore::new(&desk.home, desk.clock.clone());
    let packages = store.packages();
    let candidate = packages.version(id, version)?;
    let of = against.unwrap_or(id);
    let full = packages.list()?.into_iter().filter(|installed| {
        installed.manifest.id == *of && !accept::needs_measuring(&installed.manifest)
    });
    let (reference, reference_fd) = match full.map(|installed| installed.manifest.version).max() {
        Some(version) => {
            let package = packages.version(of, version)?;
            (package.manifest().model(), package.open(packages.device()?)?)
        }
        // A plain file, or a package that is INT8 itself.
        None if packages.active(of)?.is_none() => {
            let plain = store.by_id(of)?;
            let fd = store.open(&plain)?;
            (plain, fd)
        }
        None => {
            return Err(Error::Usage(format!(
                "No FP32 or FP16 version of `{of}` is here to measure `{id}` {version} by; --against names one"
            )));
        }
    };
    let frames = frames(&desk.home)?;
    let pair = (&reference, &candidate.manifest().model());
    let candidate_fd = candidate.open(packages.device()?)?;
    let found = distance(desk, pair, (&reference_fd, &candidate_fd), &frames)?;
    out::note(&format!("measured on {} pictures: {}", frames.len(), words(&found)));
    Ok(as_bounds(&found))
}

/// A model file of the user's, with its manifest.
fn given(path: &Path, desk: &Desk) -> Result<(Manifest, OwnedFd)> {
    let (model, beside) = draft::places(path);
    let (manifest, mut file) = Draft::read(&beside)?.measure(&model, desk.clock.wall())?;
    file.rewind().map_err(|source| Error::File { what: "Can't read", path: model, source })?;
    Ok((manifest, file.into()))
}

pub(crate) fn measure(args: &MeasureArgs) -> Result<()> {
    let mut desk = Desk::open_bare(&args.run)?;
    let (candidate, candidate_file) = given(&args.model, &desk)?;
    let failed = |source| Error::File { what: "Can't read", path: args.against.clone(), source };
    let file = fs::File::open(&args.against).map_err(failed)?;
    let (sha256, bytes) = digest::of_reader(&file, limits::MODEL_FILE).map_err(failed)?;
    let reference = Model { sha256, bytes, ..candidate.model() };
    let given = if args.frames.is_empty() { frames(&desk.home)? } else { args.frames.clone() };
    if given.len() > limits::MEASURED {
        return Err(Error::Usage(format!("At most {} pictures are taken", limits::MEASURED)));
    }
    let pair = (&reference, &candidate.model());
    let found = distance(&mut desk, pair, (&file.into(), &candidate_file), &given)?;
    if args.run.json { out::json(&found) } else { out::line(&words(&found)) }
}

const ELEMENTS: [&str; 17] = [
    "unknown",
    "float32",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "float64",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
];

fn contract(survey: &Survey) -> Contract {
    let ports = |ports: &[mien_base::model::PortFacts]| {
        let port = |port: &mien_base::model::PortFacts| Port {
            name: port.name.clone(),
            shape: port.shape.clone(),
            dtype: (*ELEMENTS.get(usize::from(port.element)).unwrap_or(&"unknown")).to_owned(),
        };
        ports.iter().map(port).collect()
    };
    Contract { inputs: ports(&survey.inputs), outputs: ports(&survey.outputs) }
}

pub(crate) fn import(args: &ImportArgs) -> Result<()> {
    let mut desk = Desk::open_bare(&args.run)?;
    let (model, beside) = draft::places(&args.model);
    let draft = Draft::read(args.manifest.as_deref().unwrap_or(&beside))?;
    let (manifest, mut file) = draft.measure(&model, desk.clock.wall())?;
    let job = desk.next_job()?;
    let input = Input::Path(model.clone());
    let (survey, folded) = desk.worker.inspect(job, &manifest.model(), &input)?;
    if args.run.json {
        out::json(&survey)?;
    } else {
        let operators: Vec<String> =
            survey.operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
        out::line(&format!("operators: {}", operators.join(", ")))?;
        for (name, ports) in [("input", &survey.inputs), ("output", &survey.outputs)] {
            for port in ports {
                let shape: Vec<String> = port
                    .shape
                    .iter()
                    .map(|n| if *n == 0 { "?".to_owned() } else { n.to_string() })
                    .collect();
                out::line(&format!("{name}: {} [{}]", port.name, shape.join(",")))?;
            }
        }
        let Folded { inputs, weights, attributes } = survey.folded;
        out::line(&format!(
            "folded: {inputs} initialisers out of the inputs, {weights} weights to floats, \
             {attributes} kernels, strides, dilations or pads said"
        ))?;
    }
    if let Some(why) = &survey.refused {
        let message = format!("The CPU backend does not run `{}`: {why}", model.display());
        return Err(Error::Failed(Failure { kind: ErrorKind::Model, message }));
    }
    let Some(output) = &args.output else { return Ok(()) };
    let keys = (args.key.as_slice(), args.device.as_slice());
    let manifest = Manifest { contract: contract(&survey), ..manifest };
    // What was folded is in memory alone.
    match folded {
        Some(bytes) => {
            let (sha256, length) = (digest::of(&bytes), bytes.len() as u64);
            let manifest = Manifest { sha256, bytes: length, ..manifest };
            pack::seal(keys, &manifest, &mut bytes.as_slice(), output)
        }
        None => pack::seal(keys, &manifest, &mut file, output),
    }
}
