//! Checks of replies: a message that names a mailbox is answered there, and the answer acknowledges it.

use std::sync::Arc;
use std::time::Duration;

use snakepit_mailbox::{
    DeadLetterPolicy, ERROR_ATTRIBUTE, MailboxError, MessageId, ReceiveOptions, Reply, RequestOptions,
    SendOptions,
};
use tokio::task::JoinHandle;

use crate::mailboxes::fixture::fresh_name;
use crate::mailboxes::test_mailbox::{TestMailbox, assert_expired, assert_out_of_range};

pub(super) async fn a_reply_arrives_and_acknowledges(questions: TestMailbox<'_>) {
    let answers = questions.another().await;
    questions.send_with("6 * 7", SendOptions::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(50).await;
    let id = question.reply(&42).await.expect("it is answered");
    let answer = answers.receive_one(50).await;
    assert_eq!((answer.id, answer.read::<i32>().expect("a number")), (id, 42));
    questions.assert_count([0, 0, 0, 0]).await;
    assert_expired(&question.reply(&43).await);
    answers.assert_count([0, 1, 0, 0]).await;
}

pub(super) async fn a_mailbox_can_reply_to_itself(test: TestMailbox<'_>) {
    test.send_with("again", SendOptions::new().reply_to(test.mailbox.name())).await;
    test.receive_one(50).await.reply("and again").await.expect("it is answered");
    assert_eq!(test.receive_one(50).await.read::<String>().expect("a text"), "and again");
    test.assert_count([0, 1, 0, 0]).await;
}

pub(super) async fn without_a_name_there_is_no_reply(test: TestMailbox<'_>) {
    let message = test.send_and_receive("a", 50).await;
    let outcome = message.reply(&1).await;
    assert!(matches!(outcome, Err(MailboxError::NoReplyTo)), "{outcome:?}");
    message.ack().await.expect("it is still leased");
}

pub(super) async fn a_reply_to_a_mailbox_that_nobody_has_opened_waits_there(test: TestMailbox<'_>) {
    let name = fresh_name();
    test.send_with("a", SendOptions::new().reply_to(&name)).await;
    test.receive_one(50).await.reply(&42).await.expect("it is answered");
    test.assert_count([0, 0, 0, 0]).await;
    let answers =
        test.fixture.open(&name, DeadLetterPolicy::new()).await.expect("the mailbox of the replies");
    let received = answers.receive(ReceiveOptions::new()).await.expect("it can be received");
    assert_eq!(received.len(), 1, "the reply waits");
    assert_eq!(received[0].read::<i32>().expect("a number"), 42);
}

pub(super) async fn a_reply_with_an_expired_receipt_sends_nothing(questions: TestMailbox<'_>) {
    let answers = questions.another().await;
    questions.send_with("a", SendOptions::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(2).await;
    questions.pass(2).await;
    assert_expired(&question.reply(&1).await);
    answers.assert_count([0, 0, 0, 0]).await;
    assert_eq!(questions.receive_one(2).await.delivery_count, 2);
}

pub(super) async fn a_reply_out_of_range_leaves_the_message_leased(questions: TestMailbox<'_>) {
    let answers = questions.another().await;
    questions.send_with("a", SendOptions::new().reply_to(answers.mailbox.name())).await;
    let question = questions.receive_one(50).await;
    let receipt = question.receipt.clone().expect("a receipt");
    let options = SendOptions::new().delay(Duration::from_hours(367 * 24));
    assert_out_of_range(&questions.mailbox.reply(&receipt, Vec::new(), options).await, "delay");
    answers.assert_count([0, 0, 0, 0]).await;
    question.ack().await.expect("it is still leased");
}

pub(super) async fn a_reply_has_the_id_the_attributes_and_the_trace_of_its_request(
    questions: TestMailbox<'_>,
) {
    let answers = questions.another().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let options = SendOptions::new()
        .reply_to(answers.mailbox.name())
        .attribute("user", "7")
        .attribute("step", "ask")
        .attribute(ERROR_ATTRIBUTE, "of the request")
        .trace(trace);
    let request = questions.send_with("a", options).await;
    let question = questions.receive_one(50).await;
    assert_eq!(question.in_reply_to, None);
    let receipt = question.receipt.clone().expect("a receipt");
    let options = SendOptions::new().attribute("step", "answer");
    questions.mailbox.reply(&receipt, b"b".to_vec(), options).await.expect("it is answered");
    let answer = answers.receive_one(50).await;
    assert_eq!((answer.in_reply_to, answer.trace.as_deref()), (Some(request), Some(trace)));
    let attributes: Vec<(&str, &str)> =
        answer.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(attributes, [("step", "answer"), ("user", "7")]);
}

impl TestMailbox<'_> {
    async fn result(&self, id: MessageId) -> Option<Reply> {
        self.mailbox.result(id, Duration::ZERO).await.expect("a result can be asked for")
    }

    /// Makes a request in a new task, with a timeout in units.
    fn ask(&self, body: &str, timeout: u32, send: SendOptions) -> JoinHandle<Result<Reply, MailboxError>> {
        let (mailbox, body) = (Arc::clone(&self.mailbox), body.as_bytes().to_vec());
        let options = RequestOptions::new().timeout(self.units(timeout)).send(send);
        tokio::spawn(async move { mailbox.request(body, options).await })
    }
}

pub(super) async fn a_result_is_kept_for_its_time_and_read_by_its_id(questions: TestMailbox<'_>) {
    let answers = questions.another().await;
    let options = SendOptions::new().keep_result(questions.units(10)).attribute("user", "7");
    let quiet = questions.send_with("quiet", options.clone()).await;
    let loud = questions.send_with("loud", options.reply_to(answers.mailbox.name())).await;
    let forgotten =
        questions.send_with("forgotten", SendOptions::new().reply_to(answers.mailbox.name())).await;
    assert_eq!(questions.result(quiet).await, None);
    let mut ids = Vec::new();
    for (number, question) in questions.receive(10, 50).await.iter().enumerate() {
        ids.push(question.reply(&number).await.expect("it is answered"));
    }
    questions.assert_count([0, 0, 0, 0]).await;
    for _ in 0..2 {
        let replies = [questions.result(quiet).await, questions.result(loud).await];
        for (number, reply) in replies.into_iter().enumerate() {
            let reply = reply.expect("it is kept");
            assert_eq!((reply.id, reply.read::<usize>().expect("a number")), (ids[number], number));
            assert_eq!(reply.in_reply_to, [quiet, loud][number]);
            assert_eq!(reply.attributes.get("user").map(String::as_str), Some("7"));
        }
    }
    assert_eq!((questions.result(forgotten).await, answers.result(quiet).await), (None, None));
    answers.assert_count([2, 0, 0, 0]).await;
    questions.pass(10).await;
    assert_eq!((questions.result(quiet).await, questions.result(loud).await), (None, None));
}

pub(super) async fn a_result_is_kept_for_more_than_nothing_and_up_to_366_days(test: TestMailbox<'_>) {
    let longest = Duration::from_hours(366 * 24);
    for time in [Duration::ZERO, longest + Duration::from_millis(1)] {
        let options = SendOptions::new().keep_result(time);
        assert_out_of_range(&test.mailbox.send(Vec::new(), options).await, "keep_result");
    }
    let id = test.send_with("a", SendOptions::new().keep_result(longest)).await;
    assert_out_of_range(&test.mailbox.result(id, Duration::from_secs(21)).await, "wait");
}

pub(super) async fn a_result_is_kept_for_days(test: TestMailbox<'_>) {
    let day = Duration::from_hours(24);
    let id = test.send_with("a", SendOptions::new().keep_result(day * 3)).await;
    // The time begins with the reply.
    test.fixture.pass(day * 2).await;
    test.receive_one(50).await.reply(&7).await.expect("it is answered");
    test.fixture.pass((day * 3).saturating_sub(test.units(1))).await;
    assert_eq!(test.result(id).await.expect("it is kept").read::<u8>().expect("a number"), 7);
    test.pass(1).await;
    assert_eq!(test.result(id).await, None);
}

pub(super) async fn a_reply_wakes_who_waits_for_the_result(test: TestMailbox<'_>) {
    let options = SendOptions::new().keep_result(test.units(100));
    let (first, second) = (test.send_with("1", options.clone()).await, test.send_with("2", options).await);
    let wait = test.long_wait();
    let waiting = [first, second, first].map(|id| {
        let mailbox = Arc::clone(&test.mailbox);
        tokio::spawn(async move {
            let began = tokio::time::Instant::now();
            let reply = mailbox.result(id, wait).await.expect("a result can be asked for");
            (reply.expect("a reply").body, began.elapsed())
        })
    });
    test.pass(1).await;
    let questions = test.receive(10, 50).await;
    questions[1].reply(&"two").await.expect("it is answered");
    questions[0].reply(&"one").await.expect("it is answered");
    for (task, expected) in waiting.into_iter().zip(["one", "two", "one"]) {
        let (body, took) = task.await.expect("no panic");
        assert_eq!(body, format!("{expected:?}"));
        assert!(took < wait / 2, "it was not woken: {took:?}");
    }
}

pub(super) async fn each_of_many_requests_gets_its_own_answer(test: TestMailbox<'_>) {
    const MANY: usize = 40;
    let ask = |number: usize| {
        let number = number.to_string();
        test.ask(&number, 200, SendOptions::new().attribute("number", &number))
    };
    let asking: Vec<_> = (0..MANY).map(ask).collect();
    let mut questions = Vec::new();
    while questions.len() < MANY {
        let options = ReceiveOptions::new().max_messages(10).wait(test.long_wait());
        questions.extend(test.mailbox.receive(options).await.expect("it can be received"));
    }
    // The last request is answered first.
    for question in questions.iter().rev() {
        let number: usize = question.read().expect("a number");
        question.reply(&(number * 2)).await.expect("it is answered");
    }
    for (number, task) in asking.into_iter().enumerate() {
        let reply = task.await.expect("no panic").expect("an answer");
        assert_eq!(reply.read::<usize>().expect("a number"), number * 2);
        assert_eq!(reply.attributes.get("number"), Some(&number.to_string()));
    }
}

pub(super) async fn a_request_that_nobody_answers_ends_in_time(test: TestMailbox<'_>) {
    let asking = test.ask("a", 3, SendOptions::new());
    test.pass(1).await;
    test.pass(3).await;
    let outcome = asking.await.expect("no panic");
    let Err(MailboxError::NoReply { id, .. }) = outcome else { panic!("{outcome:?}") };
    // The request still exists, and a late answer can be read by its id.
    let question = test.receive_one(50).await;
    assert_eq!(question.id, id);
    question.reply(&"late").await.expect("it is answered");
    assert_eq!(test.result(id).await.expect("it is kept").read::<String>().expect("a text"), "late");
}

pub(super) async fn a_request_that_is_dropped_harms_nobody(test: TestMailbox<'_>) {
    let ask = |body| test.ask(body, 200, SendOptions::new());
    let (dropped, kept) = (ask("dropped"), ask("kept"));
    test.pass(1).await;
    dropped.abort();
    assert!(dropped.await.expect_err("it was dropped").is_cancelled());
    for question in test.receive(10, 50).await {
        let body = String::from_utf8_lossy(&question.body).into_owned();
        question.reply(&body).await.expect("it is answered");
    }
    let reply = kept.await.expect("no panic").expect("an answer");
    assert_eq!(reply.read::<String>().expect("a text"), "kept");
}

pub(super) async fn results_outlive_their_process(mut test: TestMailbox<'_>) {
    let id = test.send_with("a", SendOptions::new().keep_result(test.units(50))).await;
    test.receive_one(50).await.reply(&7).await.expect("it is answered");
    test.reopen().await;
    assert_eq!(test.result(id).await.expect("it is kept").read::<u8>().expect("a number"), 7);
    test.pass(50).await;
    assert_eq!(test.result(id).await, None);
}
