//! Which places are given out, kept free and given out again.

use proptest::prelude::*;

use super::*;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn slots(devices: &[&str]) -> (Slots, Instant) {
    let devices = devices.iter().map(|&name| Arc::from(name));
    (Slots::new(&Taint::default(), devices), Instant::now())
}

fn fault() -> Fault {
    Fault { kind: FaultKind::Gpu, line: None }
}

fn names(places: &[Assignment]) -> Vec<(usize, Option<&str>)> {
    places.iter().map(|place| (place.slot, place.device.as_deref())).collect()
}

#[test]
fn the_smallest_free_number_is_given() {
    let (mut slots, now) = slots(&[]);
    let mut places: Vec<_> = (0..4).map(|_| slots.take(now).expect("a place")).collect();
    assert_eq!(names(&places), [(0, None), (1, None), (2, None), (3, None)]);
    slots.give_back(places.remove(1));
    slots.give_back(places.remove(0));
    assert_eq!(slots.take(now).map(|it| it.slot), Ok(0));
    assert_eq!(slots.take(now).map(|it| it.slot), Ok(1));
    assert_eq!(slots.take(now).map(|it| it.slot), Ok(4));
}

#[test]
fn a_tainted_slot_is_skipped_until_the_taint_expires() {
    let (mut slots, now) = slots(&[]);
    let place = slots.take(now).expect("a place");
    slots.taint(&place, fault(), now);
    slots.give_back(place);
    assert_eq!(
        slots.tainted(now),
        [Tainted { device: None, slot: 0, fault: fault(), until: now + seconds(60) }]
    );
    let next = slots.take(now + seconds(59)).expect("a place");
    assert_eq!(next.slot, 1);
    assert_eq!(slots.take(now + seconds(60)).map(|it| it.slot), Ok(0));
    assert!(slots.tainted(now + seconds(60)).is_empty());
}

#[test]
fn workers_are_spread_over_the_devices() {
    let (mut slots, now) = slots(&["cuda:0", "cuda:1", "cuda:0"]);
    let mut places: Vec<_> = (0..4).map(|_| slots.take(now).expect("a place")).collect();
    let (zero, one) = (Some("cuda:0"), Some("cuda:1"));
    assert_eq!(names(&places), [(0, zero), (1, one), (2, zero), (3, one)]);
    slots.give_back(places.remove(3));
    assert_eq!(slots.take(now), Ok(Assignment { slot: 3, device: one.map(Arc::from) }));
}

#[test]
fn a_tainted_device_is_skipped_until_the_taint_expires() {
    let (mut slots, now) = slots(&["cuda:0", "cuda:1"]);
    let place = slots.take(now).expect("a place");
    slots.taint(&place, fault(), now);
    slots.give_back(place);
    for slot in 0..3 {
        let place = slots.take(now).expect("a place");
        assert_eq!((place.slot, place.device.as_deref()), (slot, Some("cuda:1")), "the slot is not to blame");
    }
    let back = slots.take(now + seconds(60)).expect("a place");
    assert_eq!(back.device.as_deref(), Some("cuda:0"));
}

#[test]
fn if_every_device_is_tainted_the_error_says_until_when() {
    let (mut slots, now) = slots(&["cuda:0", "cuda:1"]);
    let (first, second) = (slots.take(now).expect("a place"), slots.take(now).expect("a place"));
    slots.taint(&first, fault(), now);
    slots.taint(&second, fault(), now + seconds(10));
    slots.give_back(first);
    assert_eq!(slots.take(now + seconds(10)), Err(AllTainted { until: now + seconds(60) }));
    assert_eq!(slots.tainted(now + seconds(10)).len(), 2);
    assert!(slots.take(now + seconds(60)).is_ok());
}

#[test]
fn tainted_slots_are_bounded() {
    let (mut slots, now) = slots(&[]);
    for _ in 0..MOST_TAINTED + 10 {
        let place = slots.take(now).expect("a place");
        slots.taint(&place, fault(), now);
        slots.give_back(place);
    }
    assert_eq!(slots.tainted(now).len(), MOST_TAINTED);
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Take,
    GiveBack(prop::sample::Index),
    Die(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..40u64).prop_map(Step::Pass),
        4 => Just(Step::Take),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        2 => any::<prop::sample::Index>().prop_map(Step::Die),
    ]
}

proptest! {
    #[test]
    fn no_slot_is_assigned_twice_or_while_tainted(
        steps in prop::collection::vec(step(), 0..200),
        devices in 0..4usize,
    ) {
        let names = ["cuda:0", "cuda:1", "cuda:2"];
        let (mut slots, mut now) = slots(&names[..devices]);
        let mut held: Vec<Assignment> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(time) => now += seconds(time),
                Step::Take => {
                    let tainted = slots.tainted(now);
                    match slots.take(now) {
                        Ok(place) => {
                            prop_assert!(held.iter().all(|other| other.slot != place.slot));
                            prop_assert_eq!(place.device.is_some(), devices > 0);
                            let avoided = tainted.iter().all(|it| match &it.device {
                                Some(device) => place.device.as_ref() != Some(device),
                                None => place.slot != it.slot,
                            });
                            prop_assert!(avoided);
                            held.push(place);
                        }
                        Err(AllTainted { until }) => {
                            prop_assert!(devices > 0 && tainted.len() == devices);
                            prop_assert!(until > now && until <= now + seconds(60));
                        }
                    }
                }
                Step::GiveBack(which) if !held.is_empty() => {
                    slots.give_back(held.swap_remove(which.index(held.len())));
                }
                Step::Die(which) if !held.is_empty() => {
                    let place = held.swap_remove(which.index(held.len()));
                    slots.taint(&place, fault(), now);
                    slots.give_back(place);
                }
                Step::GiveBack(_) | Step::Die(_) => {}
            }
            let workers: usize = slots.devices.iter().map(|device| device.workers).sum();
            prop_assert_eq!(workers, if devices > 0 { held.len() } else { 0 });
            prop_assert_eq!(slots.taken.len(), held.len());
        }
        prop_assert!(slots.take(now + seconds(60)).is_ok(), "every taint ends");
    }
}

#[test]
fn new_settings_bring_new_devices_and_earlier_taints_are_kept() {
    let (mut slots, now) = slots(&["cuda:0", "cuda:1"]);
    let taken: Vec<_> = (0..3).map(|_| slots.take(now).expect("a place")).collect();
    slots.taint(&taken[0], fault(), now);
    slots.adopt(&Taint::default(), ["cuda:2".into()]);
    let two = Some("cuda:2");
    assert_eq!(
        names(&[slots.take(now).expect("a place"), slots.take(now).expect("a place")]),
        [(3, two), (4, two)]
    );
    slots.adopt(&Taint::default(), ["cuda:0".into(), "cuda:1".into()]);
    assert_eq!(
        slots.take(now).map(|it| it.device),
        Ok(Some("cuda:1".into())),
        "the other one is still tainted"
    );
    let later = now + seconds(60);
    assert_eq!(
        slots.take(later).map(|it| it.device),
        Ok(Some("cuda:0".into())),
        "the fewest run on it, but two"
    );
    slots.adopt(&Taint::default(), []);
    assert_eq!(slots.take(later).map(|it| it.device), Ok(None));
}
