//! The tiers that only Linux has.

use snakepit_custody::{Containment, CustodyOptions, OpenError, Run, Tier};

use crate::support::Home;

#[test]
fn the_tiers_of_linux_are_refused_with_a_reason() {
    let home = Home::new();
    for containment in [Containment::Namespace, Containment::Shim] {
        let config = CustodyOptions::default().containment(containment).state_dir(home.path());
        let error = Run::open(config).unwrap_err();
        assert!(matches!(&error, OpenError::Tier { reason, .. } if reason.contains("only Linux")), "{error}");
    }
    assert_eq!(home.open().tier(), Tier::Group);
}
