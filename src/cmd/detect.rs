//! `mien detect`: the faces of a picture or a clip, printed or drawn.

use mien_base::wire;
use mien_daemon::kind::Kind;
use mien_daemon::supervise::DetectJob;

use super::args::DetectArgs;
use super::desk::{self, Desk};
use super::error::{Error, Result};
use super::{clips, inputs, out, recipe};

pub(crate) fn run(args: &DetectArgs) -> Result<()> {
    let detect = recipe::detect(&args.detect)?;
    let draw = match &args.draw {
        Some(path) => {
            inputs::check_apart([args.file.as_path()], [path.as_path()])?;
            let to_stdout = path.as_os_str() == "-";
            if to_stdout && args.run.json {
                return Err(Error::Usage(
                    "--json and `--draw -` both write standard output".into(),
                ));
            }
            let format = if to_stdout { None } else { inputs::picture_by_name("--draw", path)? };
            Some((desk::output(path), wire::Output { format, quality: 92 }))
        }
        None => None,
    };
    let range = args.range.as_deref().map(clips::range).transpose()?;
    let mut desk = Desk::open_bare(&args.run)?;
    let (job, wall) = (desk.next_job()?, desk.wall);
    let stop = desk.worker.cancel_handle().flag();
    let (input, kind) = desk::input(&args.file).sniff(&stop)?;
    if kind != Kind::Picture {
        if draw.is_some() {
            return Err(Error::Usage("--draw takes a picture, not a clip".to_owned()));
        }
        return clips::detect(&mut desk, &args.run, &detect, &input, range);
    }
    let mark = desk.sign(job);
    let draw_to = draw.as_ref().map(|(output, write)| (output, *write, &mark));
    let found = desk.worker.detect(&DetectJob {
        job,
        detect: &detect,
        input: &input,
        draw: draw_to,
        wall,
    })?;
    if args.run.json {
        return out::json(&found.report);
    }
    if args.run.quiet || args.draw.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Ok(());
    }
    let report = &found.report;
    let rows: Vec<Vec<String>> = report
        .faces
        .iter()
        .enumerate()
        .map(|(at, face)| {
            let [x0, y0, x1, y1] = face.rect;
            vec![
                at.to_string(),
                format!("{x0:.1}"),
                format!("{y0:.1}"),
                format!("{:.1}", x1 - x0),
                format!("{:.1}", y1 - y0),
                format!("{:.3}", face.score),
            ]
        })
        .collect();
    if rows.is_empty() {
        return out::line("no face");
    }
    out::line(&out::table(&["face", "x", "y", "width", "height", "score"], &rows))
}
