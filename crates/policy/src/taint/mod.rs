//! Which slot and device the next worker gets after a worker died because of its device.
//!
//! The next worker on a failed GPU, or on broken memory, would probably die as well. `fault.rs` recognizes such deaths,
//! and [`Slots`] leaves their slots and devices unused for a while.

pub mod fault;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::fault::{Fault, FaultKind};
use super::time::after;
#[cfg(feature = "config")]
use snakepit_settings::HumanTime;
use snakepit_settings::settings;

/// The most slots that are tainted at a time. Beyond it, the slot whose time ends first is forgotten.
const MOST_TAINTED: usize = 256;

settings! {
    /// How long a device, or a slot, is left unused after it caused the death of a worker.
    ///
    /// ```
    /// use std::time::Duration;
    /// use snakepit::policy::Taint;
    ///
    /// let taint = Taint::default().lasts(Duration::from_secs(300)).pattern("TPU driver is wedged");
    /// ```
    #[derive(Clone, PartialEq, Eq, Debug)]
    #[must_use]
    pub struct Taint {
        /// How long the device or slot of such a worker is left unused.
        lasts: Duration as HumanTime = Duration::from_mins(1),
        /// Texts in the last lines of a dead worker that blame its device. The faults of GPUs and allocators are built
        /// in.
        @manual patterns: Vec<String> = Vec::new(),
    }
}

impl Taint {
    /// Adds a text that blames the device of a dead worker if it occurs in the worker's last lines.
    pub fn pattern(mut self, text: impl Into<String>) -> Self {
        self.patterns.push(text.into());
        self
    }
}

/// The slot and the device of one worker. An assignment is given back, not copied.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub struct Assignment {
    /// The slot number. No other worker of the pool has the same number at the same time.
    pub slot: usize,
    /// The device, if the pool has devices.
    pub device: Option<Arc<str>>,
}

/// The error that every device is tainted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllTainted {
    /// When the first device may be used again.
    pub until: Instant,
}

/// Returns the name of a device, or of a slot without one.
pub fn name_of(device: Option<&str>, slot: usize) -> String {
    match device {
        Some(device) => format!("device {device}"),
        None => format!("slot {slot}"),
    }
}

/// A device, or a slot, that is not used for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tainted {
    /// The device, or `None` for a slot.
    pub device: Option<Arc<str>>,
    /// The slot of the worker that died.
    pub slot: usize,
    /// The fault that the worker died of.
    pub fault: Fault,
    /// The time until which the device or slot is not used.
    pub until: Instant,
}

#[derive(Debug)]
struct Device {
    name: Arc<str>,
    /// Whether new workers may use the device. A device that the settings no longer name is kept while workers run on
    /// it.
    offered: bool,
    workers: usize,
    tainted: Option<Tainted>,
}

/// The slots of a pool, which are unlimited, and its devices, if it names any.
#[derive(Debug)]
pub struct Slots {
    lasts: Duration,
    devices: Vec<Device>,
    taken: BTreeSet<usize>,
    /// The tainted slots of a pool without devices.
    tainted: BTreeMap<usize, Tainted>,
}

impl Slots {
    /// Returns the slots of a pool. A device that is named twice counts once.
    pub fn new(policy: &Taint, devices: impl IntoIterator<Item = Arc<str>>) -> Self {
        let (taken, tainted) = (BTreeSet::new(), BTreeMap::new());
        let mut slots = Self { lasts: policy.lasts, devices: Vec::new(), taken, tainted };
        slots.adopt(policy, devices);
        slots
    }

    /// Changes the settings. Taints of removed devices are kept, because the settings may come back.
    pub fn adopt(&mut self, policy: &Taint, devices: impl IntoIterator<Item = Arc<str>>) {
        self.lasts = policy.lasts;
        let mut before = std::mem::take(&mut self.devices);
        for name in devices {
            if self.devices.iter().all(|device| device.name != name) {
                let known = before.iter().position(|device| device.name == name);
                let (workers, tainted) = known.map_or((0, None), |index| {
                    let known = before.swap_remove(index);
                    (known.workers, known.tainted)
                });
                self.devices.push(Device { name, offered: true, workers, tainted });
            }
        }
        before.retain_mut(|device| {
            device.offered = false;
            device.workers > 0 || device.tainted.is_some()
        });
        self.devices.append(&mut before);
    }

    /// Takes a slot and a device for one more worker: the smallest free slot, and the device with the fewest workers.
    /// Of equal devices it takes the first.
    pub fn take(&mut self, now: Instant) -> Result<Assignment, AllTainted> {
        self.forget_old(now);
        let offered = self.devices.iter_mut().filter(|device| device.offered);
        let device = match offered.min_by_key(|device| (device.tainted_until(), device.workers)) {
            Some(device) => {
                // A device that is not tainted would have come first.
                if let Some(until) = device.tainted_until() {
                    return Err(AllTainted { until });
                }
                device.workers += 1;
                Some(Arc::clone(&device.name))
            }
            None => None,
        };
        let free = |slot: &usize| !self.taken.contains(slot) && !self.tainted.contains_key(slot);
        // There is one more candidate than there are slots in use, so one of them is free.
        let candidates = 0..=self.taken.len() + self.tainted.len();
        let slot = candidates.clone().find(free).unwrap_or(*candidates.end());
        self.taken.insert(slot);
        Ok(Assignment { slot, device })
    }

    /// Gives back the slot and device of a worker that is gone.
    pub fn give_back(&mut self, place: Assignment) {
        let Assignment { slot, device } = place;
        self.taken.remove(&slot);
        if let Some(device) = self.device(device.as_ref()) {
            device.workers = device.workers.saturating_sub(1);
        }
    }

    /// Taints the device or slot of a worker that died of it. Other workers on the device continue.
    pub fn taint(&mut self, place: &Assignment, fault: Fault, now: Instant) {
        let until = after(now, self.lasts);
        let tainted = Tainted { device: place.device.clone(), slot: place.slot, fault, until };
        if let Some(device) = self.device(place.device.as_ref()) {
            device.tainted = Some(tainted);
            return;
        }
        self.forget_old(now);
        self.tainted.insert(place.slot, tainted);
        while self.tainted.len() > MOST_TAINTED {
            let first = self.tainted.iter().min_by_key(|(_, it)| it.until).map(|(&slot, _)| slot);
            let Some(first) = first else { return };
            self.tainted.remove(&first);
        }
    }

    /// Returns the devices and slots that are not used now.
    pub fn tainted(&mut self, now: Instant) -> Vec<Tainted> {
        self.forget_old(now);
        let devices = self.devices.iter().filter_map(|device| device.tainted.as_ref());
        devices.chain(self.tainted.values()).cloned().collect()
    }

    fn device(&mut self, name: Option<&Arc<str>>) -> Option<&mut Device> {
        let name = name?;
        self.devices.iter_mut().find(|device| device.name == *name)
    }

    fn forget_old(&mut self, now: Instant) {
        for device in &mut self.devices {
            device.tainted.take_if(|it| it.until <= now);
        }
        self.tainted.retain(|_, it| it.until > now);
    }
}

impl Device {
    fn tainted_until(&self) -> Option<Instant> {
        self.tainted.as_ref().map(|it| it.until)
    }
}

#[cfg(test)]
mod tests;
