//! What the keeper records.

use snakepit_custody::Command;

use crate::support::{self, Home};

#[test]
fn an_exit_is_recorded_before_the_intent_of_the_replacement() {
    let home = Home::new();
    let run = home.open();
    for _ in 0..50 {
        run.spawn(Command::new("true")).unwrap().wait();
    }
    let kinds: Vec<(u8, u64)> = support::records(&run);
    for key in 2..=50 {
        let exit = kinds.iter().position(|entry| *entry == (6, key - 1)).unwrap();
        let intent = kinds.iter().position(|entry| *entry == (4, key)).unwrap();
        let record = kinds.iter().position(|entry| *entry == (5, key)).unwrap();
        assert!(exit < intent && intent < record, "worker {key}");
    }
}

#[test]
fn the_ledger_does_not_grow_for_ever() {
    let home = Home::new();
    let run = home.open();
    let lasting = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    for _ in 0..3000 {
        run.spawn(Command::new("/bin/true")).unwrap().wait();
    }
    assert!(support::records(&run).len() < 9000);
    // Living workers are still recorded after the file was rewritten.
    let living = home.living_on_record();
    assert_eq!(living.len(), 1);
    assert_eq!(living[0].pid, Some(lasting.pid()));
    assert!(living[0].alive);
}
