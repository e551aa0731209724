//! Checks of ranges: an option out of range is rejected and never clamped, and both ends of a range are valid.

use std::time::Duration;

use snakepit_mailbox::{DeadLetterPolicy, LeaseExtension, ReceiveOptions, SendOptions};

use crate::mailboxes::fixture::fresh_name;
use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, assert_out_of_range};

const TWELVE_HOURS: Duration = Duration::from_hours(12);
const TOO_LONG: Duration = Duration::from_millis(43_200_001);

pub(super) async fn a_receive_takes_1_to_10_messages(test: TestMailbox<'_>) {
    for messages in [0, 11, usize::MAX] {
        let outcome = test.mailbox.receive(ReceiveOptions::new().max_messages(messages)).await;
        assert_out_of_range(&outcome, "max_messages");
    }
    for messages in [1, 10] {
        test.mailbox.receive(ReceiveOptions::new().max_messages(messages)).await.expect("in range");
    }
}

pub(super) async fn a_lease_lasts_0_s_to_12_h(test: TestMailbox<'_>) {
    test.send("a").await;
    for time in [TOO_LONG, Duration::MAX] {
        let outcome = test.mailbox.receive(ReceiveOptions::new().visibility_timeout(time)).await;
        assert_out_of_range(&outcome, "visibility_timeout");
    }
    let zero = test
        .mailbox
        .receive(ReceiveOptions::new().visibility_timeout(Duration::ZERO))
        .await
        .expect("in range");
    assert_expired(&zero[0].ack().await);
    let most =
        test.mailbox.receive(ReceiveOptions::new().visibility_timeout(TWELVE_HOURS)).await.expect("in range");
    most[0].ack().await.expect("it is leased");
}

pub(super) async fn a_receive_waits_0_s_to_20_s(test: TestMailbox<'_>) {
    for wait in [Duration::from_millis(20_001), Duration::MAX] {
        assert_out_of_range(&test.mailbox.receive(ReceiveOptions::new().wait(wait)).await, "wait");
    }
    test.send("a").await;
    let most = test.mailbox.receive(ReceiveOptions::new().wait(Duration::from_secs(20))).await;
    assert_eq!(most.expect("in range").len(), 1);
}

pub(super) async fn a_nack_pauses_0_s_to_12_h(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 100).await;
    let receipt = message.receipt.clone().expect("a receipt");
    assert_out_of_range(&test.mailbox.nack(&receipt, TOO_LONG.into()).await, "visibility_timeout");
    assert_out_of_range(
        &test.mailbox.nack_all(std::slice::from_ref(&receipt), TOO_LONG.into()).await,
        "visibility_timeout",
    );
    test.assert_count([0, 1, 0, 0]).await;
    test.mailbox.nack(&receipt, TWELVE_HOURS.into()).await.expect("in range");
    test.assert_count([0, 0, 1, 0]).await;
}

pub(super) async fn an_extension_lasts_0_s_to_12_h(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 100).await;
    let receipt = message.receipt.clone().expect("a receipt");
    for extension in [LeaseExtension::AtLeast, LeaseExtension::Exactly] {
        let outcome = test.mailbox.extend(&receipt, TOO_LONG, extension).await;
        assert_out_of_range(&outcome, "visibility_timeout");
        test.mailbox.extend(&receipt, TWELVE_HOURS, extension).await.expect("in range");
    }
    message.ack().await.expect("it is leased");
}

pub(super) async fn a_delay_lasts_0_s_to_366_days(test: TestMailbox<'_>) {
    let hours = 366 * 24;
    let most = Duration::from_hours(hours);
    for delay in [most + Duration::from_millis(1), Duration::MAX] {
        let outcome = test.mailbox.send(Vec::new(), SendOptions::new().delay(delay)).await;
        assert_out_of_range(&outcome, "delay");
    }
    test.assert_count([0, 0, 0, 0]).await;
    test.send_with("a", SendOptions::new().delay(most)).await;
    test.assert_count([0, 0, 1, 0]).await;
    if test.fixture.patience() >= most {
        test.fixture.pass(Duration::from_hours(hours - 1)).await;
        test.assert_count([0, 0, 1, 0]).await;
        test.fixture.pass(Duration::from_hours(2)).await;
        test.assert_count([1, 0, 0, 0]).await;
    }
}

pub(super) async fn a_time_to_live_is_more_than_nothing(test: TestMailbox<'_>) {
    let outcome = test.mailbox.send(Vec::new(), SendOptions::new().time_to_live(Duration::ZERO)).await;
    assert_out_of_range(&outcome, "time_to_live");
    test.assert_count([0, 0, 0, 0]).await;
    test.send_with("a", SendOptions::new().time_to_live(Duration::MAX)).await;
    test.assert_count([1, 0, 0, 0]).await;
}

pub(super) async fn priorities_are_all_of_an_i8(test: TestMailbox<'_>) {
    for priority in [i8::MIN, -1, 0, 1, i8::MAX] {
        test.send_with("a", SendOptions::new().priority(priority)).await;
    }
    let mut seen: Vec<i8> = test.receive(10, 10).await.iter().map(|message| message.priority).collect();
    seen.sort_unstable();
    assert_eq!(seen, [i8::MIN, -1, 0, 1, i8::MAX]);
}

pub(super) async fn a_message_is_delivered_at_least_once(test: TestMailbox<'_>) {
    let none = test.fixture.open(&fresh_name(), DeadLetterPolicy::new().max_deliveries(0)).await;
    assert_out_of_range(&none, "max_deliveries");
}
