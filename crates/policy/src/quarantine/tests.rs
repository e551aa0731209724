//! Which calls are suspected, refused, cleared and forgotten.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use snakepit_custody::WorkerId;
use snakepit_protocol::args;
use snakepit_protocol::value::{PayloadLayout, Value};

const OWN: Charge = Charge { blame: Blame::Own, among: 1 };
const PERHAPS: Charge = Charge { blame: Blame::Perhaps, among: 1 };

fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}

fn number(number: u32) -> Encoded {
    args![number].into_encoded().expect("arguments")
}

#[derive(Debug)]
struct Died {
    worker: WorkerId,
    is_short: bool,
}

impl DeathRecord for Died {
    fn worker(&self) -> &WorkerId {
        &self.worker
    }

    fn shortened(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { worker: self.worker.clone(), is_short: true })
    }
}

/// Returns the death of a worker of its own.
fn death(number: usize) -> Arc<Died> {
    let worker = WorkerId::new(format!("w{number}")).expect("an id");
    Arc::new(Died { worker, is_short: false })
}

fn list() -> (SuspectList<Died>, Instant) {
    (SuspectList::new(Some(Quarantine::default())), Instant::now())
}

fn kill(list: &SuspectList<Died>, args: &Encoded, times: usize, now: Instant) {
    for count in 0..times {
        list.suspect("render", args, &death(count), OWN, now);
    }
}

#[test]
fn a_call_that_keeps_killing_workers_is_refused_with_its_autopsies() {
    let (list, now) = list();
    let poison = number(1);
    kill(&list, &poison, 2, now);
    assert!(list.refuses("render", &poison, now).is_none(), "two may be an accident");
    let third = death(7);
    assert_eq!(list.suspect("render", &poison, &third, OWN, now), Some(3));
    let (fingerprint, autopsies) = list.refuses("render", &poison, now).expect("refused");
    assert_eq!(fingerprint, list.fingerprint("render", &poison));
    assert_eq!(autopsies.len(), 3);
    assert_eq!(autopsies[2].worker, third.worker);
    assert!(list.refuses("render", &number(2), now).is_none());
    assert!(list.refuses("paint", &poison, now).is_none());
}

#[test]
fn an_answer_clears_the_suspect() {
    let (list, now) = list();
    let call = number(1);
    for _ in 0..5 {
        kill(&list, &call, 2, now);
        list.cleared("render", &number(2), now);
        assert!(!list.is_empty());
        list.cleared("render", &call, now);
        assert!(list.is_empty());
    }
}

#[test]
fn one_death_counts_once_however_often_the_worker_had_begun_the_call() {
    let (list, now) = list();
    let (call, autopsy) = (number(1), death(1));
    (0..10).for_each(|_| assert!(list.suspect("render", &call, &autopsy, OWN, now).is_none()));
    assert!(list.refuses("render", &call, now).is_none());
}

#[test]
fn a_death_that_may_have_come_from_outside_counts_half() {
    let (list, now) = list();
    let (hit, mixed) = (number(1), number(2));
    let perhaps = |args: &Encoded, count| list.suspect("render", args, &death(count), PERHAPS, now);
    assert!((0..5).all(|count| perhaps(&hit, count).is_none()));
    assert!(list.refuses("render", &hit, now).is_none(), "an operator may have killed all five");
    assert_eq!(perhaps(&hit, 5), Some(6));
    assert_eq!(list.refuses("render", &hit, now).expect("refused").1.len(), 6);
    kill(&list, &mixed, 2, now);
    assert_eq!(perhaps(&mixed, 2), None, "two and a half");
    assert_eq!(perhaps(&mixed, 3), Some(4));
}

#[test]
fn calls_that_died_together_share_the_blame_and_are_tried_alone_before_they_are_refused() {
    let (list, now) = list();
    let (ping, killer) = (number(1), number(2));
    let together = Charge { blame: Blame::Own, among: 2 };
    for count in 0..20 {
        assert_eq!(list.suspect("render", &ping, &death(count), together, now), None);
    }
    assert!(matches!(list.admittance("render", &ping, now), Admittance::Trial));
    let suspect = &list.suspects(now)[0];
    assert!(suspect.on_trial && suspect.autopsies.len() == 12, "{} deaths", suspect.autopsies.len());
    list.cleared("render", &ping, now);
    assert!(matches!(list.admittance("render", &ping, now), Admittance::Free));
    kill_with(&list, &killer, together, 0..2);
    assert!(matches!(list.admittance("render", &killer, now), Admittance::Free), "two may be an accident");
    kill_with(&list, &killer, together, 2..3);
    assert!(matches!(list.admittance("render", &killer, now), Admittance::Trial));
    kill_with(&list, &killer, OWN, 3..4);
    assert!(matches!(list.admittance("render", &killer, now), Admittance::Trial), "two and a half");
    kill_with(&list, &killer, OWN, 4..5);
    assert!(matches!(list.admittance("render", &killer, now), Admittance::Refused(_)));
}

fn kill_with(list: &SuspectList<Died>, args: &Encoded, charge: Charge, workers: std::ops::Range<usize>) {
    for worker in workers {
        list.suspect("render", args, &death(worker), charge, Instant::now());
    }
}

#[test]
fn new_settings_judge_all_suspects_again_and_no_settings_forget_them() {
    let (list, now) = list();
    let (once, thrice) = (number(1), number(3));
    kill(&list, &once, 1, now);
    kill(&list, &thrice, 3, now);
    let refused = |args: &Encoded, now| list.refuses("render", args, now).is_some();
    assert!(list.adopt(Some(Quarantine::default()), now).is_empty(), "nothing has changed");
    let strict = Quarantine::default().deaths(1).lasts(minutes(60));
    assert_eq!(list.adopt(Some(strict), now), [(Arc::from("render"), 1)]);
    assert!(refused(&once, now + minutes(59)) && refused(&thrice, now + minutes(59)));
    assert!(list.adopt(Some(Quarantine::default().deaths(2)), now).is_empty());
    assert!(!refused(&once, now), "one death is too few again");
    assert_eq!(list.suspects(now).len(), 2);
    assert_eq!(list.adopt(Some(strict.remembered(1)), now).len(), 1);
    assert_eq!(list.suspects(now).len(), 1, "there is room for one");
    assert!(list.adopt(None, now).is_empty() && list.is_empty());
    kill(&list, &once, 9, now);
    assert!(list.is_empty(), "no call is suspected");
    list.adopt(Some(strict), now);
    assert!(!refused(&once, now));
    kill(&list, &once, 1, now);
    assert!(refused(&once, now));
}

#[test]
fn a_shorter_window_also_applies_to_known_deaths() {
    let (list, now) = list();
    let call = number(1);
    list.suspect("render", &call, &death(1), OWN, now);
    list.suspect("render", &call, &death(2), OWN, now + minutes(5));
    let shorter = Quarantine::default().deaths(2).within(minutes(3));
    assert!(list.adopt(Some(shorter), now + minutes(6)).is_empty());
    assert_eq!(list.suspects(now + minutes(6))[0].autopsies.len(), 1);
    assert!(list.suspects(now + minutes(8)).is_empty());
}

#[test]
fn deaths_far_apart_do_not_add_up() {
    let (list, mut now) = list();
    let call = number(1);
    for count in 0..10 {
        list.suspect("render", &call, &death(count), OWN, now);
        assert!(list.refuses("render", &call, now).is_none());
        now += minutes(6);
    }
}

#[test]
fn a_quarantine_expires_and_is_then_forgotten() {
    let (list, now) = list();
    let poison = number(1);
    kill(&list, &poison, 3, now);
    let end = now + minutes(10);
    assert!(list.refuses("render", &poison, end - Duration::from_millis(1)).is_some());
    assert!(list.refuses("other", &number(9), end).is_none());
    assert!(list.is_empty(), "any lookup forgets expired suspects");
    assert!(list.refuses("render", &poison, end).is_none());
}

#[test]
fn suspects_are_listed_and_can_be_released_by_hand() {
    let (list, now) = list();
    kill(&list, &number(1), 3, now);
    kill(&list, &number(2), 1, now + minutes(1));
    let suspects = list.suspects(now + minutes(1));
    let listed: Vec<_> = suspects.iter().map(|it| (it.autopsies.len(), it.refused_until)).collect();
    assert_eq!(listed, [(1, None), (3, Some(now + minutes(10)))]);
    assert_eq!((&*suspects[1].command, suspects[1].last), ("render", now));
    assert_eq!(suspects[1].fingerprint.to_string().len(), 16);
    assert!(list.release(suspects[1].fingerprint));
    assert!(!list.release(suspects[1].fingerprint));
    assert!(list.refuses("render", &number(1), now).is_none());
}

#[test]
fn the_oldest_suspect_is_forgotten_first_but_quarantined_calls_last() {
    let list = SuspectList::new(Some(Quarantine::default().remembered(3)));
    let now = Instant::now();
    kill(&list, &number(0), 3, now);
    for count in 1..100 {
        kill(&list, &number(count), 1, now + Duration::from_secs(count.into()));
    }
    let later = now + Duration::from_secs(100);
    assert!(list.refuses("render", &number(0), later).is_some());
    let suspects = list.suspects(later);
    let known: Vec<_> = suspects.iter().map(|it| it.fingerprint).collect();
    let expected = [99, 98, 0].map(|count| list.fingerprint("render", &number(count)));
    assert_eq!(known, expected);
    assert_eq!(list.locked().outlines.values().sum::<usize>(), 3);
}

#[test]
fn only_shortened_autopsies_are_kept() {
    let (list, now) = list();
    let died = death(1);
    assert!(!died.is_short);
    list.suspect("render", &number(1), &died, OWN, now);
    assert!(list.suspects(now)[0].autopsies[0].is_short);
}

#[test]
fn calls_that_differ_anywhere_have_different_fingerprints() {
    let (list, _) = list();
    let large = |fill: u8, len: usize| {
        args![Value::from(Bytes::from(vec![fill; len]))].into_encoded().expect("arguments")
    };
    let prints = [
        list.fingerprint("a", &number(1)),
        list.fingerprint("b", &number(1)),
        list.fingerprint("a", &number(2)),
        list.fingerprint("a", &args! { a: 1 }.into_encoded().expect("arguments")),
        list.fingerprint("a", &large(1, 100_000)),
        list.fingerprint("a", &large(2, 100_000)),
        list.fingerprint("a", &large(1, 100_001)),
    ];
    assert!(large(1, 100_000).has_bodies(), "this covers bodies, too");
    for (index, print) in prints.iter().enumerate() {
        assert!(!prints[index + 1..].contains(print), "{index}");
    }
    assert_eq!(list.fingerprint("a", &large(1, 100_000)), prints[4]);
}

#[test]
fn equal_arguments_have_one_fingerprint_even_if_they_came_in_a_frame() {
    let (list, _) = list();
    let bodies = [1, 2].map(|fill| Value::from(Bytes::from(vec![fill; 100_000])));
    let made = Encoded::encode(&bodies).expect("arguments");
    let mut payload = bytes::BytesMut::new();
    made.write_to(&mut payload);
    let came = Encoded::from_payload(payload.freeze(), PayloadLayout::WithBodies).expect("a payload");
    assert_eq!(list.fingerprint("a", &made), list.fingerprint("a", &came));
    assert_eq!(list.outline("a", &made), list.outline("a", &came));
}

proptest! {
    #[test]
    fn the_suspect_list_stays_bounded_and_consistent(
        // The call, whether its worker died, and the seconds that pass.
        steps in prop::collection::vec((0..6u32, prop::bool::weighted(0.8), 0..200u64), 0..200),
    ) {
        let list = SuspectList::new(Some(Quarantine::default().remembered(4)));
        let mut now = Instant::now();
        for (worker, (call, died, seconds)) in steps.into_iter().enumerate() {
            now += Duration::from_secs(seconds);
            let args = number(call);
            if list.refuses("render", &args, now).is_some() {
                let suspects = list.suspects(now);
                let known = list.fingerprint("render", &args);
                let suspect = suspects.iter().find(|it| it.fingerprint == known).expect("listed");
                prop_assert_eq!(suspect.autopsies.len(), 3);
                prop_assert!(suspect.last + minutes(10) > now);
            } else if died {
                list.suspect("render", &args, &death(worker), OWN, now);
            } else {
                list.cleared("render", &args, now);
                let known = list.fingerprint("render", &args);
                prop_assert!(list.suspects(now).iter().all(|it| it.fingerprint != known));
            }
            let suspects = list.suspects(now);
            prop_assert!(suspects.len() <= 4);
            prop_assert_eq!(list.is_empty(), suspects.is_empty());
            prop_assert_eq!(list.locked().outlines.values().sum::<usize>(), suspects.len());
        }
        prop_assert!(list.suspects(now + minutes(11)).is_empty());
        prop_assert!(list.locked().outlines.is_empty());
    }
}
