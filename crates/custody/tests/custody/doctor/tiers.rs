//! Which tiers this machine offers.

use snakepit_custody::Tier;

use crate::support::Home;

#[test]
fn a_run_names_its_tier_and_the_probe_says_that_it_works() {
    let home = Home::new();
    let run = home.open();
    let auto = if cfg!(portable) { Tier::Group } else { Tier::Shim };
    assert_eq!(run.tier(), auto);
    assert!(
        snakepit_custody::probe().tiers.iter().any(|found| found.tier == run.tier() && found.works.is_ok())
    );
}
