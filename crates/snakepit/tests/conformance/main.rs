//! One contract for all adapters: `snakepit::conformance` over each of them.

mod mock {
    //! Workers that are closures.
    snakepit::conformance_tests!(snakepit::conformance::MockSubject);
}
mod python;
