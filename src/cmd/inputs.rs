//! Which file becomes which: inputs expanded, outputs named, clashes found before any work begins.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use mien_base::wire::Format;
use mien_base::wire::clip::Container;

use super::args::FormatArg;
use super::error::{Error, Result};

/// Endings of files that are taken from a folder.
const PICTURES: &[&str] = &["jpg", "jpeg", "jpe", "png", "webp"];
const CLIPS: &[&str] = &["mp4", "m4v", "mov", "y4m"];
/// Deepest folder below a given one.
const DEPTH: usize = 32;
/// Most pictures of one run.
const MOST: usize = 1_000_000;

/// One picture or clip to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// `-` is standard input.
    pub input: PathBuf,
    /// `-` is standard output.
    pub output: PathBuf,
    /// Format that the output's name or the user asked for; `None` follows the input.
    pub format: Option<FormatArg>,
}

/// Expands inputs and names outputs.
pub(crate) fn plan(
    inputs: &[PathBuf],
    output: &Path,
    format: Option<FormatArg>,
    recursive: bool,
) -> Result<Vec<Task>> {
    let stdin = inputs.iter().filter(|p| is_dash(p)).count();
    if stdin > 0 && inputs.len() > 1 {
        return Err(Error::Usage("Standard input (`-`) is taken alone".to_owned()));
    }
    let folder_in = inputs.iter().any(|p| p.is_dir());
    let into_folder = !is_dash(output)
        && (folder_in || inputs.len() > 1 || output.is_dir() || ends_in_slash(output));
    if into_folder && stdin > 0 {
        let text = "Standard input has no name: give a file or `-` as --output, not a folder";
        return Err(Error::Usage(text.to_owned()));
    }
    if is_dash(output) && (folder_in || inputs.len() > 1) {
        let text =
            "Standard output (`-`) takes one output: give one input, or a folder as --output";
        return Err(Error::Usage(text.to_owned()));
    }
    if !into_folder {
        let format = format.or(if is_dash(output) { None } else { by_name(output)? });
        return Ok(vec![Task { input: inputs[0].clone(), output: output.to_owned(), format }]);
    }
    if output.is_file() {
        let text =
            format!("--output `{}` is a file; several inputs need a folder", output.display());
        return Err(Error::Usage(text));
    }
    let mut tasks = Vec::new();
    for input in inputs {
        if input.is_dir() {
            walk(input, output, recursive, format, 0, &mut tasks)?;
        } else {
            tasks.push(into(input, output, format)?);
        }
    }
    check_clashes(&tasks)?;
    Ok(tasks)
}

/// It may be a clip: all but the names of pictures.
pub(crate) fn may_be_clip(path: &Path) -> bool {
    !ending(path).is_some_and(|e| PICTURES.contains(&e.as_str()))
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

fn ending(path: &Path) -> Option<String> {
    path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
}

/// Format by the ending of an output's name.
pub(crate) fn by_name(path: &Path) -> Result<Option<FormatArg>> {
    match ending(path).as_deref() {
        Some("jpg" | "jpeg" | "jpe") => Ok(Some(FormatArg::Jpeg)),
        Some("png") => Ok(Some(FormatArg::Png)),
        Some("mp4" | "m4v" | "mov") => Ok(Some(FormatArg::Mp4)),
        Some("y4m") => Ok(Some(FormatArg::Y4m)),
        None => Ok(None),
        Some(other) => Err(Error::Usage(format!(
            "`.{other}` of --output `{}` is not written: name it .jpg or .png (a clip .mp4 or .y4m), \
             or give --format",
            path.display()
        ))),
    }
}

/// Format of a picture by the ending of its name.
pub(crate) fn picture_by_name(option: &str, path: &Path) -> Result<Option<Format>> {
    let Some(format) = by_name(path)? else { return Ok(None) };
    format.picture().map(Some).ok_or_else(|| {
        let path = path.display();
        Error::Usage(format!("{option} writes a picture: name `{path}` .jpg or .png"))
    })
}

impl FormatArg {
    /// As a format of pictures.
    pub(crate) fn picture(self) -> Option<Format> {
        match self {
            Self::Jpeg => Some(Format::Jpeg),
            Self::Png => Some(Format::Png),
            Self::Mp4 | Self::Y4m => None,
        }
    }

    /// As a format of clips.
    pub(crate) fn clip(self) -> Option<Container> {
        match self {
            Self::Mp4 => Some(Container::Mp4),
            Self::Y4m => Some(Container::Y4m),
            Self::Jpeg | Self::Png => None,
        }
    }
}

fn into(input: &Path, folder: &Path, format: Option<FormatArg>) -> Result<Task> {
    let Some(name) = input.file_name() else {
        return Err(Error::Usage(format!("`{}` is no picture and no clip", input.display())));
    };
    let mut output = folder.join(name);
    let is_clip = ending(&output).is_some_and(|e| CLIPS.contains(&e.as_str()));
    // In a mixed folder a format is meant for those that can be written in it.
    let format = format.filter(|format| is_clip == format.clip().is_some());
    match format {
        Some(FormatArg::Jpeg) => drop(output.set_extension("jpg")),
        Some(FormatArg::Png) => drop(output.set_extension("png")),
        Some(FormatArg::Mp4) => drop(output.set_extension("mp4")),
        Some(FormatArg::Y4m) => drop(output.set_extension("y4m")),
        // WebP is read, not written: PNG keeps every pixel and the alpha.
        None if ending(&output).as_deref() == Some("webp") => drop(output.set_extension("png")),
        None if is_clip && ending(&output).as_deref() != Some("y4m") => {
            output.set_extension("mp4");
        }
        None => {}
    }
    let format = format.or(by_name(&output).unwrap_or(None));
    Ok(Task { input: input.to_owned(), output, format })
}

fn walk(
    folder: &Path,
    output: &Path,
    recursive: bool,
    format: Option<FormatArg>,
    depth: usize,
    tasks: &mut Vec<Task>,
) -> Result<()> {
    let failed =
        |source| Error::File { what: "Can't read folder", path: folder.to_owned(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
        if entries.len() + tasks.len() > MOST {
            return Err(Error::Usage(format!("More than {MOST} inputs in one run; split it")));
        }
    }
    entries.sort();
    for path in entries {
        let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if path.is_dir() {
            // A link to a folder may lead in a circle: it is not followed.
            if recursive && depth < DEPTH && !path.is_symlink() {
                let below = output.join(path.file_name().expect("an entry has a name"));
                walk(&path, &below, recursive, format, depth + 1, tasks)?;
            }
        } else if path.is_file()
            && ending(&path)
                .is_some_and(|e| PICTURES.contains(&e.as_str()) || CLIPS.contains(&e.as_str()))
        {
            tasks.push(into(&path, output, format)?);
        }
    }
    Ok(())
}

/// Refuses to write over what is to be read: an original is never replaced.
pub(crate) fn check_apart<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let real = |path: &'a Path| Some((path.canonicalize().ok().filter(|p| p.is_file())?, path));
    let originals: BTreeMap<PathBuf, &Path> = inputs.into_iter().filter_map(real).collect();
    for (target, output) in outputs.into_iter().filter_map(real) {
        if let Some(input) = originals.get(&target) {
            return Err(Error::Usage(format!(
                "`{}` would be written over the original `{}`; name another output",
                output.display(),
                input.display()
            )));
        }
    }
    Ok(())
}

fn check_clashes(tasks: &[Task]) -> Result<()> {
    if tasks.is_empty() {
        return Err(Error::Usage(
            "No pictures (.jpg, .png, .webp) and no clips (.mp4, .mov, .y4m) among the inputs"
                .to_owned(),
        ));
    }
    let mut seen: BTreeMap<&Path, &Path> = BTreeMap::new();
    for task in tasks {
        if let Some(other) = seen.insert(&task.output, &task.input) {
            return Err(Error::Usage(format!(
                "`{}` and `{}` would both become `{}`; run them apart",
                other.display(),
                task.input.display(),
                task.output.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("mien-inputs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("in/deep")).unwrap();
        for file in ["in/b.JPG", "in/a.webp", "in/notes.txt", "in/.c.png", "in/deep/d.png"] {
            fs::write(folder.join(file), b"x").unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_gives_its_pictures_in_order() {
        let at = folder("order");
        let tasks = plan(&[at.join("in")], &at.join("out"), None, true).unwrap();
        let names: Vec<_> = tasks.iter().map(|t| t.output.strip_prefix(&at).unwrap()).collect();
        assert_eq!(names, ["out/a.png", "out/b.JPG", "out/deep/d.png"].map(Path::new));
        let flat = plan(&[at.join("in")], &at.join("out"), None, false).unwrap();
        assert_eq!(flat.len(), 2);
        fs::remove_dir_all(at).unwrap();
    }

    #[test]
    fn a_format_is_meant_for_those_that_can_be_written_in_it() {
        let at = folder("mixed");
        for file in ["in/d.MOV", "in/e.y4m"] {
            fs::write(at.join(file), b"x").unwrap();
        }
        let names = |format| {
            let tasks = plan(&[at.join("in")], &at.join("out"), format, false).unwrap();
            let name = |t: &Task| t.output.file_name().unwrap().to_str().unwrap().to_owned();
            tasks.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["a.png", "b.JPG", "d.mp4", "e.y4m"]);
        assert_eq!(names(Some(FormatArg::Png)), ["a.png", "b.png", "d.mp4", "e.y4m"]);
        assert_eq!(names(Some(FormatArg::Mp4)), ["a.png", "b.JPG", "d.mp4", "e.mp4"]);
        fs::remove_dir_all(at).unwrap();
    }

    #[test]
    fn clashes_and_impossible_outputs_are_found_before_work() {
        let at = folder("clash");
        let (a, b) = (at.join("in/b.JPG"), at.join("in/deep/b.JPG"));
        fs::write(&b, b"x").unwrap();
        let clash = plan(&[a.clone(), b], &at.join("out"), None, false).unwrap_err();
        assert!(clash.to_string().contains("both become"), "{clash}");
        for (inputs, output) in [
            (vec![PathBuf::from("-"), a.clone()], at.join("out")),
            (vec![at.join("in")], PathBuf::from("-")),
            (vec![a.clone()], at.join("x.webp")),
            (vec![a.clone(), a.clone()], at.join("in/notes.txt")),
        ] {
            assert!(plan(&inputs, &output, None, false).is_err(), "{inputs:?} {output:?}");
        }
        fs::remove_dir_all(at).unwrap();
    }
}
