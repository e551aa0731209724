//! What this machine offers.

mod tiers;
