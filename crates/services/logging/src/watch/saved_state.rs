//! The state of the machines as JSON, which outlives the process that runs them.

use std::collections::{BTreeMap, HashMap};

use helio_core::Tai;
use serde_json::{Value as Json, json};
use thiserror::Error;

use super::{Instance, MAX_INSTANCES, MAX_STEPS, RunningMachine, Step, Watch};

/// An error in a saved state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("what was kept of the machines cannot be read: {0}")]
pub struct WatchStateError(String);

impl Watch {
    /// The machines' state as JSON, for [`Watch::restore`].
    #[must_use]
    pub fn keep(&self) -> Json {
        let machines = self.machines.iter().map(|running| {
            let all = running.instances.iter();
            let all = all.map(|(value, instance)| (value.clone(), running.kept(instance)));
            (running.machine.name.clone(), json!(all.collect::<BTreeMap<_, _>>()))
        });
        json!({ "now": self.now.nanos(), "machines": machines.collect::<BTreeMap<_, _>>() })
    }

    /// Restores the machines' state. Instances whose machine or state is no longer declared are
    /// omitted; their number is returned.
    ///
    /// # Errors
    /// [`WatchStateError`] if this is not a saved state; nothing changes then.
    pub fn restore(&mut self, kept: &Json) -> Result<u64, WatchStateError> {
        let wrong = |what: &str| WatchStateError(format!("{what} is missing or of another kind"));
        let now = kept["now"].as_i64().ok_or_else(|| wrong("now"))?;
        let machines = kept["machines"].as_object().ok_or_else(|| wrong("machines"))?;
        let (mut found, mut left) = (Vec::new(), 0);
        for (name, instances) in machines {
            let instances = instances.as_object().ok_or_else(|| wrong("a machine"))?;
            let place = self.machines.iter().position(|running| running.machine.name == *name);
            let Some(place) = place else {
                left += instances.len() as u64;
                continue;
            };
            let mut all = HashMap::new();
            for (value, kept) in instances {
                match self.machines[place].restored(kept).ok_or_else(|| wrong("a state"))? {
                    Some(one) if all.len() < MAX_INSTANCES => _ = all.insert(value.clone(), one),
                    _ => left += 1,
                }
            }
            found.push((place, all));
        }
        self.now = Tai::from_nanos(now);
        for (place, all) in found {
            let running = &mut self.machines[place];
            (running.instances, running.due) = (all, self.now);
        }
        Ok(left)
    }
}

impl RunningMachine {
    fn kept(&self, instance: &Instance) -> Json {
        let steps = instance
            .steps
            .iter()
            .map(|step| json!([step.time.nanos(), step.level.number(), step.logger, step.message]));
        json!({
            "state": self.machine.states[instance.state].name,
            "since": instance.since.nanos(),
            "counts": instance.counts,
            "steps": steps.collect::<Vec<_>>(),
            "antenna": instance.antenna,
            "array": instance.array,
        })
    }

    /// None if this is not a saved instance; `Some(None)` if its state is no longer declared.
    fn restored(&self, kept: &Json) -> Option<Option<Instance>> {
        let name = kept["state"].as_str()?;
        let counts = kept["counts"].as_array()?;
        let count = |count: &Json| count.as_u64().and_then(|count| u32::try_from(count).ok());
        let counts: Vec<u32> = counts.iter().map(count).collect::<Option<_>>()?;
        let steps = kept["steps"].as_array()?.iter().take(MAX_STEPS).map(|step| {
            Some(Step {
                time: Tai::from_nanos(step[0].as_i64()?),
                level: u8::try_from(step[1].as_u64()?).ok().and_then(crate::Level::new)?,
                logger: step[2].as_str()?.to_owned(),
                message: step[3].as_str()?.to_owned(),
            })
        });
        let steps = steps.collect::<Option<Vec<_>>>()?;
        let since = Tai::from_nanos(kept["since"].as_i64()?);
        let text = |name: &str| kept[name].as_str().map(str::to_owned);
        let (antenna, array) = (text("antenna")?, text("array")?);
        let state = self.machine.states.iter().position(|state| state.name == name);
        let state = state.filter(|at| self.machine.states[*at].ways.len() == counts.len());
        Some(state.map(|state| Instance { state, since, counts, steps, antenna, array }))
    }
}
