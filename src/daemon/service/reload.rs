//! A new configuration: checked, applied where it differs, taken back as a whole when a part fails.

use mien_base::error::ErrorKind;
use mien_base::recipe::Recipe;
use mien_base::report::Failure;
use serde_json::{Value, json};

use super::control::Peer;
use super::protocol::{Answer, Steer};
use super::run::Service;
use super::wanted::{self, Step};
use crate::audit::Kind;
use crate::config::Config;
use crate::telemetry::Metrics;
use crate::{Error, Result};
use mien_base::error::chain;

impl Service {
    /// Reads the configuration's file again and applies it; after a fault everything is as it was.
    pub(super) fn reload(&mut self, by: Option<Peer>) -> Answer {
        self.own.notify.reloading();
        let by = by.map(|peer| peer.uid);
        let done = Config::load(&self.config.path)
            .map_err(Self::unusable)
            .and_then(|config| self.replace(config));
        let answer = match done {
            Ok((digest, changes)) => {
                self.reloads += 1;
                self.own.log.info("configuration applied", &[("changes", &changes.len())]);
                let body = json!({ "config": digest, "changes": changes, "by": by });
                self.aside(Kind::Config, body.clone());
                Answer::Done(body)
            }
            Err(error) => {
                let why = chain(&error);
                self.own.log.error("configuration refused", &[("why", &why)]);
                let reason = error.kind().reason();
                self.aside(
                    Kind::Refused,
                    json!({ "command": "reload", "reason": reason, "by": by }),
                );
                Answer::Failed(Failure { kind: error.kind(), message: why })
            }
        };
        self.look();
        let line = if matches!(answer, Answer::Done(_)) {
            "configuration applied"
        } else {
            "configuration refused; what was goes on"
        };
        self.own.notify.ready(line);
        answer
    }

    /// Runs otherwise than the file says, until that is read again.
    pub(super) fn steer(&mut self, steer: &Steer, by: Peer) -> Answer {
        let mut new = self.config.clone();
        if !steered(&mut new, steer) {
            let why = "The configuration has no pipeline or profile of that name".to_owned();
            return Answer::failed(ErrorKind::Usage, why);
        }
        let answer = match self.replace(new) {
            Ok((_, changes)) => {
                let body = json!({ "steered": name(steer), "changes": changes, "by": by.uid });
                self.aside(Kind::Config, body.clone());
                Answer::Done(body)
            }
            Err(error) => Answer::Failed(Failure { kind: error.kind(), message: chain(&error) }),
        };
        self.look();
        answer
    }

    fn replace(&mut self, new: Config) -> Result<(String, Vec<Value>)> {
        if new == self.config {
            return Ok((new.digest, Vec::new()));
        }
        let mut changes = Vec::new();
        // What can fail without touching anything comes first.
        let moved = self.socket(&new) != self.socket(&self.config)
            || new.control.users != self.config.control.users;
        let (old_metrics, new_metrics) = (self.config.telemetry.metrics, new.telemetry.metrics);
        let metrics = if new_metrics == old_metrics {
            None
        } else {
            changes.push(json!("metrics"));
            Some(new_metrics.map(Metrics::start).transpose()?)
        };
        let control = if moved && self.socket(&new) != self.socket(&self.config) {
            Some(self.listen(&new)?)
        } else {
            None
        };
        self.parts(&new)?;
        let then = wanted::at(&new, self.own.clock.wall());
        let steps = match self.running.change(&then, self.own.lines.as_ref()) {
            Ok(steps) => steps,
            Err(error) => {
                let old = self.config.clone();
                if let Err(second) = self.parts(&old) {
                    self.own.log.error("not taken back", &[("why", &chain(&second))]);
                }
                return Err(error);
            }
        };
        changes.extend(steps.iter().map(|step| match step {
            Step::Stop(name) => json!({ "stopped": name }),
            Step::Apply(name) => json!({ "applied": name }),
            Step::Start(name) => json!({ "started": name }),
        }));
        if moved {
            changes.push(json!("control"));
            match control {
                Some(control) => self.control = Some(control),
                // The same path with other users: it can only be bound again.
                None => {
                    self.control = None;
                    self.control = Some(self.listen(&new)?);
                }
            }
        }
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        self.own.log.set(new.telemetry.log, new.telemetry.level);
        self.config = new;
        Ok((self.config.digest.clone(), changes))
    }

    /// Tells all parts, or after a fault none of them.
    fn parts(&mut self, new: &Config) -> Result<()> {
        let old = self.config.clone();
        for n in 0..self.own.parts.len() {
            let told = self.own.parts[n].reload(new);
            if let Err(error) = told {
                for part in self.own.parts.iter_mut().take(n) {
                    // It ran like this a moment ago.
                    let _: std::result::Result<(), Error> = part.reload(&old);
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

fn name(steer: &Steer) -> &str {
    match steer {
        Steer::Pipeline { name, .. } | Steer::Profile { name } => name,
    }
}

/// Changes a configuration in memory; false when there is nothing of that name.
fn steered(config: &mut Config, steer: &Steer) -> bool {
    match steer {
        Steer::Pipeline { name, run, recipe } => {
            let profiles = config.profiles.iter_mut();
            let there = profiles.filter_map(|profile| profile.pipelines.get_mut(name));
            let base = config.pipelines.iter_mut().filter(|pipeline| pipeline.name == *name);
            let mut found = false;
            for pipeline in base.chain(there) {
                found = true;
                pipeline.enabled = run.unwrap_or(pipeline.enabled);
                if let Some(recipe) = recipe {
                    // The mark is the device's, whoever writes the recipe.
                    let mark = pipeline.recipe.mark.clone();
                    pipeline.recipe = Recipe { mark, ..(**recipe).clone() };
                }
            }
            found
        }
        Steer::Profile { name } => {
            let at = config.profiles.iter().position(|profile| profile.name == *name);
            let Some(at) = at else { return false };
            let mut profile = config.profiles.remove(at);
            // From its beginning to its beginning is all day.
            profile.to = profile.from;
            profile.days.clear();
            config.profiles.insert(0, profile);
            true
        }
    }
}
