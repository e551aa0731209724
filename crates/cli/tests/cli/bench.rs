//! `snakepit bench` needs only python3.

use crate::support::{Scene, finish};

#[test]
fn bench_shows_snakepit_beside_a_raw_echo() {
    let scene = Scene::new();
    let done = finish(scene.verb("bench").env("SNAKEPIT_QUICK", "1"));
    for part in
        ["64 B, one in flight", "raw echo (floor)", "target at most 1.25", "calls/s", "items/s", "Python 3."]
    {
        assert!(done.assert_status(0).stdout.contains(part), "{part:?} is not in {}", done.stdout);
    }
    let done = finish(scene.verb("bench").env("SNAKEPIT_QUICK", "1").arg("--json"));
    let json: serde_json::Value = serde_json::from_str(&done.assert_status(0).stdout).expect("JSON");
    for key in ["p50_us", "floor_p50_us", "ratio", "calls_per_second", "items_per_second"] {
        assert!(json[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {json}");
    }
    scene.assert_clean();
}
