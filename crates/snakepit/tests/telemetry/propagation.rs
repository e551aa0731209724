//! With the feature `opentelemetry`, a call belongs to its caller's trace.

use std::sync::{Arc, OnceLock};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use snakepit::telemetry::TraceContext;
use snakepit::{CallError, Snakepit, args};
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{Pit, soon, worker};

/// A tool with a span of its own, which is created where the tool runs.
async fn tool_of_the_host(pit: Snakepit) -> Result<Option<String>, CallError> {
    let call = async { pit.call("where", args! {}).await };
    call.instrument(tracing::info_span!("tool_of_the_host")).await
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let found = spans.iter().rfind(|span| span.name == name);
    found.unwrap_or_else(|| {
        panic!("no {name} among {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_current_span_is_the_caller_and_the_call_is_its_child() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .expect("the only one");

    let shared: Arc<OnceLock<Snakepit>> = Arc::default();
    let inside = Arc::clone(&shared);
    let builder = Snakepit::builder().pool(worker("traces.py").workers(1));
    let pit =
        Pit::build(builder.tool("nested", move |(): (), _| {
            tool_of_the_host(inside.get().cloned().expect("it is started"))
        }))
        .await;
    let _ = shared.set((*pit).clone());

    let work = async {
        let seen: String = soon("a call", pit.call("where", args! {})).await.expect("an answer");
        seen
    };
    let seen = work.instrument(tracing::info_span!("outer")).await;
    let seen = TraceContext::new(&seen).expect("valid");
    let spans = exporter.get_finished_spans().expect("spans");
    let (outer, call) = (named(&spans, "outer"), named(&spans, "snakepit.call"));
    assert_eq!(seen.trace_id(), outer.span_context.trace_id().to_string());
    assert_eq!(seen.span_id(), call.span_context.span_id().to_string(), "the call's own span is the parent");
    assert_eq!(call.parent_span_id, outer.span_context.span_id());
    exporter.reset();

    // A remote caller, and a tool that is traced itself: one trace from end to end.
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = pit.call::<[String; 3]>("ask", args! { tool: "nested" }).traceparent(parent);
    let [span, nested, _] = soon("a call", call).await.expect("an answer");
    let spans = exporter.get_finished_spans().expect("spans");
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let ours: Vec<_> =
        spans.iter().filter(|span| span.span_context.trace_id().to_string() == trace).collect();
    let tool = named(&spans, "tool_of_the_host");
    assert_eq!(ours.len(), 3, "both calls and the tool: {ours:?}");
    let (span, nested) =
        (TraceContext::new(&span).expect("valid"), TraceContext::new(&nested).expect("valid"));
    assert_eq!(tool.parent_span_id.to_string(), span.span_id(), "the tool is a child of the worker's span");
    let inner = ours.iter().find(|call| call.span_context.span_id().to_string() == nested.span_id());
    assert_eq!(inner.expect("the nested call").parent_span_id, tool.span_context.span_id());
    pit.end().await;
}
