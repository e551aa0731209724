//! Who is suspected, refused, cleared and forgotten.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::args;
use crate::custody::WorkerId;
use crate::supervision::testing::crash;
use crate::value::Value;

const OWN: Charge = Charge { blame: Blame::Own, among: 1 };
const PERHAPS: Charge = Charge { blame: Blame::Perhaps, among: 1 };

fn minutes(count: u64) -> Duration {
    Duration::from_mins(count)
}

fn number(number: u32) -> Encoded {
    args![number].into_encoded().expect("arguments")
}

/// The death of a worker of its own.
fn death(number: usize) -> Arc<Autopsy> {
    let worker = WorkerId::new(format!("w{number}")).expect("an id");
    Arc::new(Autopsy { worker, ..(*crash()).clone() })
}

fn book() -> (QuarantineBook, Instant) {
    (QuarantineBook::new(Some(Quarantine::default())), Instant::now())
}

fn kill(book: &QuarantineBook, args: &Encoded, times: usize, now: Instant) {
    for count in 0..times {
        book.suspect("render", args, &death(count), OWN, now);
    }
}

#[test]
fn a_call_that_keeps_killing_workers_is_refused_with_its_autopsies() {
    let (book, now) = book();
    let poison = number(1);
    kill(&book, &poison, 2, now);
    assert!(book.refuses("render", &poison, now).is_none(), "two may be an accident");
    let third = death(7);
    assert_eq!(book.suspect("render", &poison, &third, OWN, now), Some(3));
    let (fingerprint, autopsies) = book.refuses("render", &poison, now).expect("refused");
    assert_eq!(fingerprint, book.fingerprint("render", &poison));
    assert_eq!(autopsies.len(), 3);
    assert!(Arc::ptr_eq(&autopsies[2], &third));
    assert!(book.refuses("render", &number(2), now).is_none());
    assert!(book.refuses("paint", &poison, now).is_none());
}

#[test]
fn an_answer_clears_the_suspect() {
    let (book, now) = book();
    let call = number(1);
    for _ in 0..5 {
        kill(&book, &call, 2, now);
        book.cleared("render", &number(2), now);
        assert!(!book.is_empty());
        book.cleared("render", &call, now);
        assert!(book.is_empty());
    }
}

#[test]
fn one_worker_dies_once_however_often_it_had_begun_the_call() {
    let (book, now) = book();
    let (call, autopsy) = (number(1), death(1));
    (0..10).for_each(|_| assert!(book.suspect("render", &call, &autopsy, OWN, now).is_none()));
    assert!(book.refuses("render", &call, now).is_none());
}

#[test]
fn a_death_that_may_have_come_from_outside_counts_half() {
    let (book, now) = book();
    let (hit, mixed) = (number(1), number(2));
    let perhaps = |args: &Encoded, count| book.suspect("render", args, &death(count), PERHAPS, now);
    assert!((0..5).all(|count| perhaps(&hit, count).is_none()));
    assert!(book.refuses("render", &hit, now).is_none(), "five kills may be an operator's");
    assert_eq!(perhaps(&hit, 5), Some(6));
    assert_eq!(book.refuses("render", &hit, now).expect("refused").1.len(), 6);
    kill(&book, &mixed, 2, now);
    assert_eq!(perhaps(&mixed, 2), None, "two and a half");
    assert_eq!(perhaps(&mixed, 3), Some(4));
}

#[test]
fn calls_that_died_together_share_the_blame_and_are_tried_alone_before_they_are_refused() {
    let (book, now) = book();
    let (ping, killer) = (number(1), number(2));
    let together = Charge { blame: Blame::Own, among: 2 };
    for count in 0..20 {
        assert_eq!(book.suspect("render", &ping, &death(count), together, now), None);
    }
    assert!(matches!(book.admittance("render", &ping, now), Admittance::Trial));
    let suspect = &book.suspects(now)[0];
    assert!(suspect.on_trial && suspect.autopsies.len() == 12, "{} deaths", suspect.autopsies.len());
    book.cleared("render", &ping, now);
    assert!(matches!(book.admittance("render", &ping, now), Admittance::Free));
    kill_with(&book, &killer, together, 0..2);
    assert!(matches!(book.admittance("render", &killer, now), Admittance::Free), "two may be an accident");
    kill_with(&book, &killer, together, 2..3);
    assert!(matches!(book.admittance("render", &killer, now), Admittance::Trial));
    kill_with(&book, &killer, OWN, 3..4);
    assert!(matches!(book.admittance("render", &killer, now), Admittance::Trial), "two and a half");
    kill_with(&book, &killer, OWN, 4..5);
    assert!(matches!(book.admittance("render", &killer, now), Admittance::Refused(_)));
}

fn kill_with(book: &QuarantineBook, args: &Encoded, charge: Charge, workers: std::ops::Range<usize>) {
    for worker in workers {
        book.suspect("render", args, &death(worker), charge, Instant::now());
    }
}

#[test]
fn other_settings_judge_everybody_anew_and_none_forget_all() {
    let (book, now) = book();
    let (once, thrice) = (number(1), number(3));
    kill(&book, &once, 1, now);
    kill(&book, &thrice, 3, now);
    let refused = |args: &Encoded, now| book.refuses("render", args, now).is_some();
    assert!(book.adopt(Some(Quarantine::default()), now).is_empty(), "nothing has changed");
    let strict = Quarantine::default().deaths(1).lasts(minutes(60));
    assert_eq!(book.adopt(Some(strict), now), [(Arc::from("render"), 1)]);
    assert!(refused(&once, now + minutes(59)) && refused(&thrice, now + minutes(59)));
    assert!(book.adopt(Some(Quarantine::default().deaths(2)), now).is_empty());
    assert!(!refused(&once, now), "one death is too few again");
    assert_eq!(book.suspects(now).len(), 2);
    assert_eq!(book.adopt(Some(strict.remembered(1)), now).len(), 1);
    assert_eq!(book.suspects(now).len(), 1, "there is room for one");
    assert!(book.adopt(None, now).is_empty() && book.is_empty());
    kill(&book, &once, 9, now);
    assert!(book.is_empty(), "nobody is suspected");
    book.adopt(Some(strict), now);
    assert!(!refused(&once, now));
    kill(&book, &once, 1, now);
    assert!(refused(&once, now));
}

#[test]
fn a_shorter_memory_holds_for_deaths_that_are_known_already() {
    let (book, now) = book();
    let call = number(1);
    book.suspect("render", &call, &death(1), OWN, now);
    book.suspect("render", &call, &death(2), OWN, now + minutes(5));
    let shorter = Quarantine::default().deaths(2).within(minutes(3));
    assert!(book.adopt(Some(shorter), now + minutes(6)).is_empty());
    assert_eq!(book.suspects(now + minutes(6))[0].autopsies.len(), 1);
    assert!(book.suspects(now + minutes(8)).is_empty());
}

#[test]
fn deaths_far_apart_are_no_series() {
    let (book, mut now) = book();
    let call = number(1);
    for count in 0..10 {
        book.suspect("render", &call, &death(count), OWN, now);
        assert!(book.refuses("render", &call, now).is_none());
        now += minutes(6);
    }
}

#[test]
fn the_quarantine_ends_and_then_the_book_is_empty() {
    let (book, now) = book();
    let poison = number(1);
    kill(&book, &poison, 3, now);
    let end = now + minutes(10);
    assert!(book.refuses("render", &poison, end - Duration::from_millis(1)).is_some());
    assert!(book.refuses("other", &number(9), end).is_none());
    assert!(book.is_empty(), "any call that looks forgets what is over");
    assert!(book.refuses("render", &poison, end).is_none());
}

#[test]
fn suspects_are_listed_and_can_be_released_by_hand() {
    let (book, now) = book();
    kill(&book, &number(1), 3, now);
    kill(&book, &number(2), 1, now + minutes(1));
    let suspects = book.suspects(now + minutes(1));
    let listed: Vec<_> = suspects.iter().map(|it| (it.autopsies.len(), it.refused_until)).collect();
    assert_eq!(listed, [(1, None), (3, Some(now + minutes(10)))]);
    assert_eq!((&*suspects[1].command, suspects[1].last), ("render", now));
    assert_eq!(suspects[1].fingerprint.to_string().len(), 16);
    assert!(book.release(suspects[1].fingerprint));
    assert!(!book.release(suspects[1].fingerprint));
    assert!(book.refuses("render", &number(1), now).is_none());
}

#[test]
fn the_oldest_is_forgotten_first_and_who_is_refused_last() {
    let book = QuarantineBook::new(Some(Quarantine::default().remembered(3)));
    let now = Instant::now();
    kill(&book, &number(0), 3, now);
    for count in 1..100 {
        kill(&book, &number(count), 1, now + Duration::from_secs(count.into()));
    }
    let later = now + Duration::from_secs(100);
    assert!(book.refuses("render", &number(0), later).is_some());
    let suspects = book.suspects(later);
    let known: Vec<_> = suspects.iter().map(|it| it.fingerprint).collect();
    let expected = [99, 98, 0].map(|count| book.fingerprint("render", &number(count)));
    assert_eq!(known, expected);
    assert_eq!(book.pages().outlines.values().sum::<usize>(), 3);
}

#[test]
fn much_output_is_not_kept() {
    let (book, now) = book();
    let line = "ä".repeat(5000);
    let autopsy = Autopsy { output: vec![line.clone(); 20], fault: Some(line), ..(*crash()).clone() };
    book.suspect("render", &number(1), &Arc::new(autopsy), OWN, now);
    let suspects = book.suspects(now);
    let kept = &suspects[0].autopsies[0];
    let bytes: usize = kept.output.iter().chain(&kept.fault).map(String::len).sum();
    assert!(bytes <= KEPT_TEXT && kept.output.len() == 3, "{bytes} bytes, {} lines", kept.output.len());
    assert!(kept.output[0].ends_with('…'));
    let autopsy = Autopsy { stack: Some("ä".repeat(5000)), ..(*crash()).clone() };
    book.suspect("render", &number(2), &Arc::new(autopsy), OWN, now);
    let suspects = book.suspects(now);
    let stack = |it: &Suspect| it.autopsies[0].stack.as_ref().map(String::len);
    assert!(suspects.iter().find_map(stack).is_some_and(|len| len <= KEPT_LINE));
}

#[test]
fn what_differs_anywhere_has_another_fingerprint() {
    let (book, _) = book();
    let large = |fill: u8, len: usize| {
        args![Value::from(Bytes::from(vec![fill; len]))].into_encoded().expect("arguments")
    };
    let prints = [
        book.fingerprint("a", &number(1)),
        book.fingerprint("b", &number(1)),
        book.fingerprint("a", &number(2)),
        book.fingerprint("a", &args! { a: 1 }.into_encoded().expect("arguments")),
        book.fingerprint("a", &large(1, 100_000)),
        book.fingerprint("a", &large(2, 100_000)),
        book.fingerprint("a", &large(1, 100_001)),
    ];
    assert!(large(1, 100_000).has_bodies(), "this is about bodies, too");
    for (index, print) in prints.iter().enumerate() {
        assert!(!prints[index + 1..].contains(print), "{index}");
    }
    assert_eq!(book.fingerprint("a", &large(1, 100_000)), prints[4]);
}

#[test]
fn the_same_arguments_are_the_same_call_also_when_they_came_in_a_frame() {
    let (book, _) = book();
    let bodies = [1, 2].map(|fill| Value::from(Bytes::from(vec![fill; 100_000])));
    let made = Encoded::encode(&bodies).expect("arguments");
    let mut payload = bytes::BytesMut::new();
    made.write_to(&mut payload);
    let came = Encoded::from_payload(payload.freeze(), true).expect("a payload");
    assert_eq!(book.fingerprint("a", &made), book.fingerprint("a", &came));
    assert_eq!(book.outline("a", &made), book.outline("a", &came));
}

proptest! {
    #[test]
    fn the_book_stays_bounded_and_its_parts_agree(
        // Which call, whether its worker died, and seconds that pass.
        steps in prop::collection::vec((0..6u32, prop::bool::weighted(0.8), 0..200u64), 0..200),
    ) {
        let book = QuarantineBook::new(Some(Quarantine::default().remembered(4)));
        let mut now = Instant::now();
        for (worker, (call, died, seconds)) in steps.into_iter().enumerate() {
            now += Duration::from_secs(seconds);
            let args = number(call);
            if book.refuses("render", &args, now).is_some() {
                let suspects = book.suspects(now);
                let known = book.fingerprint("render", &args);
                let suspect = suspects.iter().find(|it| it.fingerprint == known).expect("listed");
                prop_assert_eq!(suspect.autopsies.len(), 3);
                prop_assert!(suspect.last + minutes(10) > now);
            } else if died {
                book.suspect("render", &args, &death(worker), OWN, now);
            } else {
                book.cleared("render", &args, now);
                let known = book.fingerprint("render", &args);
                prop_assert!(book.suspects(now).iter().all(|it| it.fingerprint != known));
            }
            let suspects = book.suspects(now);
            prop_assert!(suspects.len() <= 4);
            prop_assert_eq!(book.is_empty(), suspects.is_empty());
            prop_assert_eq!(book.pages().outlines.values().sum::<usize>(), suspects.len());
        }
        prop_assert!(book.suspects(now + minutes(11)).is_empty());
        prop_assert!(book.pages().outlines.is_empty());
    }
}
