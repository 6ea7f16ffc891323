//! What should run, what does, and the fewest steps from one to the other.

use std::collections::BTreeMap;

use mien_base::clock::Wall;

use crate::config::Config;
use crate::live::Wanted;

/// By name.
pub(super) type Set = BTreeMap<String, Wanted>;

/// What a configuration wants at a time.
pub(super) fn at(config: &Config, wall: Wall) -> Set {
    let pipelines = config.pipelines_at(wall);
    let wanted = pipelines.into_values().filter_map(|pipeline| {
        let outputs = pipeline.outputs.iter().filter_map(|name| config.output(name).cloned());
        let wanted = Wanted {
            name: pipeline.name.clone(),
            camera: config.camera(&pipeline.camera)?.clone(),
            outputs: outputs.collect(),
            recipe: pipeline.recipe.clone(),
            overlay: pipeline.overlay.clone(),
            worker: config.worker.clone(),
        };
        Some((wanted.name.clone(), wanted))
    });
    wanted.collect()
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Stop(String),
    Apply(String),
    Start(String),
}

/// The changes, in an order in which no two pipelines hold one camera or output: what ends first.
/// What is the same is not touched.
pub(super) fn steps(now: &Set, then: &Set) -> Vec<Step> {
    let (mut stops, mut applies, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, running) in now {
        match then.get(name) {
            None => stops.push(Step::Stop(name.clone())),
            Some(wanted) if wanted == running => {}
            Some(wanted) if applicable(running, wanted) => applies.push(Step::Apply(name.clone())),
            Some(_) => {
                stops.push(Step::Stop(name.clone()));
                starts.push(Step::Start(name.clone()));
            }
        }
    }
    let new = then.keys().filter(|name| !now.contains_key(*name));
    starts.extend(new.map(|name| Step::Start(name.clone())));
    [stops, applies, starts].concat()
}

/// Only what is done to faces differs.
fn applicable(running: &Wanted, wanted: &Wanted) -> bool {
    let recipe = wanted.recipe.clone();
    Wanted { recipe, overlay: wanted.overlay.clone(), ..running.clone() } == *wanted
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use mien_base::recipe::{Action, Anonymise};
    use std::path::Path;

    pub(in super::super) fn config(text: &str) -> Config {
        Config::parse(Path::new("/etc/mien.toml"), text).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// Pipelines of these names, each with a camera and an output of its own.
    pub(in super::super) fn text(names: &[&str]) -> String {
        let one = |name: &&str| {
            format!(
                "[[camera]]\nname = \"{name}\"\ndevice = \"by-id:{name}\"\n\
                 [[output]]\nname = \"{name}\"\nkind = \"segments\"\ndir = \"/r/{name}\"\n\
                 [[pipeline]]\nname = \"{name}\"\ncamera = \"{name}\"\noutputs = [\"{name}\"]\n"
            )
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn only_what_differs_is_touched_and_what_ends_comes_first() {
        let now = at(&config(&text(&["a", "b", "c", "d"])), Wall(0));
        let mut then = at(&config(&text(&["b", "c", "d", "e"])), Wall(0));
        assert!(steps(&now, &now).is_empty());
        then.get_mut("c").unwrap().recipe.action =
            Action::Anonymise(Anonymise::Blur { sigma: 0.3 });
        then.get_mut("d").unwrap().camera.fps = Some(5.0);
        let found = steps(&now, &then);
        let name = ToString::to_string;
        assert_eq!(
            found,
            [
                Step::Stop(name("a")),
                Step::Stop(name("d")),
                Step::Apply(name("c")),
                Step::Start(name("d")),
                Step::Start(name("e")),
            ]
        );
    }
}
