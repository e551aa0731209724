//! Many threads use one mailbox, and the checker judges their history.

use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MemoryMailbox};
use snakepit::mailbox_conformance::load::{self, ClientLoad};
use snakepit::mailbox_conformance::{FinalState, History, Rule, Terms, check};
use snakepit_proving::random;

const LIMIT: u32 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_producers_and_four_consumers_of_ten_thousand_messages_each_lose_nothing() {
    let policy = DeadLetterPolicy::new().max_deliveries(LIMIT);
    let mailbox: Arc<dyn Mailbox> = Arc::new(MemoryMailbox::with_policy("load", policy).expect("a mailbox"));
    let history = History::new();
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let lease = Duration::from_millis(100);
    let patience = Duration::from_secs(90);
    let load = ClientLoad { producers: 4, consumers: 4, messages: 10_000, lease, seed, patience };
    load::run(&history, &mailbox, load).await.expect("the mailbox works");
    let ending = FinalState::of(&history, mailbox.as_ref()).await.expect("it can be looked at");
    let events = history.events();
    let report = check(&events, &ending, Terms { max_deliveries: LIMIT, slack: Duration::ZERO });
    println!("{} events, {} dead letters, {:?}", events.len(), ending.dead.len(), report.fired);
    // The mailbox ends with its process, and the test cannot set the machine's wall clock.
    report.assert_clean(&[Rule::Q9, Rule::Q10]);
}
