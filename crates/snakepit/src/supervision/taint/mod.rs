//! Where the next worker may run, when the last one died of the place it ran in.
//!
//! A worker that died of its GPU or of broken memory leaves something behind: the next one on the same device would most likely
//! die as well. So `fault.rs` recognizes such deaths, and [`Slots`] keeps their places free for a while.

pub(crate) mod fault;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::fault::{Fault, FaultKind};
use crate::call::waiting::after;

/// The most slots that are tainted at a time; the first to be free again is forgotten for another one.
const MOST_TAINTED: usize = 256;

/// For how long a place is not used after a worker died of it.
///
/// ```
/// use std::time::Duration;
/// use snakepit::Taint;
///
/// let taint = Taint::default().lasts(Duration::from_secs(300)).pattern("TPU driver is wedged");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Taint {
    pub(crate) lasts: Duration,
    pub(crate) patterns: Vec<String>,
}

impl Default for Taint {
    fn default() -> Self {
        Self { lasts: Duration::from_mins(1), patterns: Vec::new() }
    }
}

impl Taint {
    /// For how long the device, or the slot, of such a worker is not used; 60 s unless it is set.
    pub fn lasts(mut self, time: Duration) -> Self {
        self.lasts = time;
        self
    }

    /// A text that, in the last lines of a worker that died, says that its place is to blame. GPU and allocator faults are
    /// known already.
    pub fn pattern(mut self, text: impl Into<String>) -> Self {
        self.patterns.push(text.into());
        self
    }
}

/// Where a worker runs. It is given back, not copied.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct Place {
    /// No other worker of the pool has the same number at the same time.
    pub(crate) slot: usize,
    pub(crate) device: Option<Arc<str>>,
}

/// No device may be used before then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllTainted {
    pub(crate) until: Instant,
}

/// What a place is called: its device if it has one.
pub(crate) fn name_of(device: Option<&str>, slot: usize) -> String {
    match device {
        Some(device) => format!("device {device}"),
        None => format!("slot {slot}"),
    }
}

/// A place that is not used for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tainted {
    /// The device, or nothing if it is a slot.
    pub device: Option<Arc<str>>,
    /// The slot of the worker that died there.
    pub slot: usize,
    /// Of what it died.
    pub fault: Fault,
    /// Until when the place is not used.
    pub until: Instant,
}

#[derive(Debug)]
struct Device {
    name: Arc<str>,
    /// Whether new workers may have it; one that the settings no longer name is kept while workers run on it.
    offered: bool,
    workers: usize,
    tainted: Option<Tainted>,
}

/// The places of a pool: slots without end, and the devices that it names, if it does.
#[derive(Debug)]
pub(crate) struct Slots {
    lasts: Duration,
    devices: Vec<Device>,
    taken: BTreeSet<usize>,
    /// Slots of a pool without devices.
    tainted: BTreeMap<usize, Tainted>,
}

impl Slots {
    /// A device that is named twice is still one.
    pub(crate) fn new(policy: &Taint, devices: impl IntoIterator<Item = Arc<str>>) -> Self {
        let (taken, tainted) = (BTreeSet::new(), BTreeMap::new());
        let mut slots = Self { lasts: policy.lasts, devices: Vec::new(), taken, tainted };
        slots.adopt(policy, devices);
        slots
    }

    /// Other settings. What is known of a device stays, for the settings may come back.
    pub(crate) fn adopt(&mut self, policy: &Taint, devices: impl IntoIterator<Item = Arc<str>>) {
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

    /// A place for one more worker: the smallest free number, and the device with the fewest workers, the first of equals.
    pub(crate) fn take(&mut self, now: Instant) -> Result<Place, AllTainted> {
        self.forget_old(now);
        let usable = self.devices.iter_mut().filter(|device| device.offered && device.tainted.is_none());
        let device = match usable.min_by_key(|device| device.workers) {
            Some(device) => {
                device.workers += 1;
                Some(Arc::clone(&device.name))
            }
            None => match self
                .devices
                .iter()
                .filter(|device| device.offered)
                .filter_map(Device::tainted_until)
                .min()
            {
                Some(until) => return Err(AllTainted { until }),
                None => None,
            },
        };
        let free = |slot: &usize| !self.taken.contains(slot) && !self.tainted.contains_key(slot);
        // As many numbers as are not free, and one more: one of these is.
        let candidates = 0..=self.taken.len() + self.tainted.len();
        let slot = candidates.clone().find(free).unwrap_or(*candidates.end());
        self.taken.insert(slot);
        Ok(Place { slot, device })
    }

    /// The worker of this place is gone.
    pub(crate) fn give_back(&mut self, place: Place) {
        let Place { slot, device } = place;
        self.taken.remove(&slot);
        if let Some(device) = self.device(device.as_ref()) {
            device.workers = device.workers.saturating_sub(1);
        }
    }

    /// The worker of this place died of it. Others that run on the same device go on.
    pub(crate) fn taint(&mut self, place: &Place, fault: Fault, now: Instant) {
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

    /// The places that are not used now.
    pub(crate) fn tainted(&mut self, now: Instant) -> Vec<Tainted> {
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
