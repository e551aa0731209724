//! Plots as inline SVG. This file knows only numbers and names, not evaluations. The page's stylesheet has the colours.
#![expect(clippy::cast_precision_loss, reason = "plots are not that precise")]

use std::fmt::Write as _;

use maud::{Markup, html};
use snakepit::value::harmless;

/// Two plots side by side are about as wide as the page, so their letters are as large as those of the text.
const WIDTH: f64 = 500.0;
/// Where names end and plots begin.
const LEFT: f64 = 120.0;
/// Where plots end and numbers begin.
const RIGHT: f64 = 426.0;
const ROW: f64 = 34.0;
/// The height of the axis below the last row.
const AXIS: f64 = 26.0;
const LONGEST_NAME: usize = 16;
/// The maximum number of answers to draw. More would look like one solid line.
const MOST_TICKS: usize = 600;

/// Returns the colour of the experiment with this number. The six colours repeat.
pub(super) fn colour(at: usize) -> usize {
    at % 6
}

/// A value between 0 and 1 with its range.
pub(super) struct PlotDot {
    pub(super) name: String,
    pub(super) value: Option<f64>,
    pub(super) range: Option<(f64, f64)>,
}

/// Draws values between 0 and 1 with their ranges, one row each.
pub(super) fn dots(rows: &[PlotDot], shown: impl Fn(f64) -> String) -> Markup {
    let bottom = ROW * rows.len() as f64;
    let x = |value: f64| LEFT + value.clamp(0.0, 1.0) * (RIGHT - LEFT);
    svg(
        bottom + AXIS,
        &html! {
            @for value in [0.0, 0.25, 0.5, 0.75, 1.0] { (grid(x(value), bottom, &value.to_string())) }
            @for (at, row) in rows.iter().enumerate() {
                (name(middle(at), &row.name))
                @if let Some(value) = row.value {
                    @if let Some((low, high)) = row.range {
                        line class={ "c" (colour(at)) } x1=(px(x(low))) x2=(px(x(high))) y1=(px(middle(at)))
                            y2=(px(middle(at))) stroke-width="3" stroke-linecap="round" {}
                    }
                    (dot(at, x(value), 6, &format!("{}: {}", row.name, shown(value))))
                    (number(at, &shown(value)))
                }
            }
        },
    )
}

/// Draws a histogram from 0 to 1, with the rows side by side.
pub(super) fn bars(rows: &[(String, &[usize])]) -> Markup {
    let (top, height) = (24.0, 180.0);
    let parts = rows.first().map_or(0, |(_, counts)| counts.len()).max(1);
    let most = rows.iter().flat_map(|(_, counts)| counts.iter()).copied().max().unwrap_or(0).max(1) as f64;
    let (left, right) = (40.0, WIDTH - 10.0);
    let wide = (right - left) / parts as f64;
    let gap = wide * 0.15;
    let bar = (wide - 2.0 * gap) / rows.len().max(1) as f64;
    let share = |part: usize| part as f64 / parts as f64;
    let level = |part: f64| px(top + height * (1.0 - part));
    svg(
        top + height + AXIS,
        &html! {
            @for part in [0.0, 0.5, 1.0] {
                line class="grid" x1=(left) x2=(right) y1=(level(part)) y2=(level(part)) {}
                text x=(px(left - 6.0)) y=(px(top + height * (1.0 - part) + 4.0)) text-anchor="end" {
                    ((most * part).round())
                }
            }
            @for part in 0..=parts {
                text x=(px(left + wide * part as f64)) y=(px(top + height + 18.0)) text-anchor="middle" { (share(part)) }
            }
            @for (at, (row, counts)) in rows.iter().enumerate() {
                @for (part, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    rect class={ "bar c" (colour(at)) } x=(px(left + wide * part as f64 + gap + bar * at as f64))
                        y=(level(*count as f64 / most)) width=(px((bar - 1.0).max(0.5)))
                        height=(px(height * *count as f64 / most)) rx="1.5" {
                        title {
                            (harmless(row)) ": " (count) " samples with a score of " (px(share(part))) " to "
                            (px(share(part + 1)))
                        }
                    }
                }
                (legend(at, rows.len(), row))
            }
        },
    )
}

/// Draws positive numbers on a logarithmic axis: each number as a tick, the middle half as a box, the median and the
/// 99th percentile.
pub(super) fn strips(rows: &[(String, &[f64])], shown: impl Fn(f64) -> String) -> Markup {
    // Values below a hundredth of a millisecond look alike.
    let log = |value: f64| value.max(0.01).log10();
    let all = || rows.iter().flat_map(|(_, numbers)| numbers.iter()).map(|number| log(*number));
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return html! { p { "There are no answers." } };
    }
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let x = |value: f64| LEFT + (log(value) - low) / (high - low) * (RIGHT - LEFT);
    let bottom = ROW * rows.len() as f64;
    let strip = |at: usize, row: &str, sorted: &[f64]| {
        let (y, tone) = (middle(at), colour(at));
        let mut ticks = String::new();
        for value in sorted.iter().step_by(sorted.len().div_ceil(MOST_TICKS)) {
            let _ = write!(ticks, "M{:.1} {:.1}v14", x(*value), y - 7.0);
        }
        let [lower, median, upper, p99] = [0.25, 0.5, 0.75, 0.99].map(|part| quantile(sorted, part));
        html! {
            path class={ "faint c" (tone) } d=(ticks) {}
            rect class={ "box c" (tone) } x=(px(x(lower))) y=(px(y - 10.0)) width=(px((x(upper) - x(lower)).max(1.0)))
                height="20" rx="3" {}
            line class={ "c" (tone) } x1=(px(x(median))) x2=(px(x(median))) y1=(px(y - 10.0)) y2=(px(y + 10.0))
                stroke-width="3" {
                title { (harmless(row)) ": median " (shown(median)) }
            }
            (dot(at, x(p99), 4, &format!("{row}: 99th percentile {}", shown(p99))))
            (number(at, &shown(median)))
        }
    };
    svg(
        bottom + AXIS,
        &html! {
            @for value in (low as i32..=high as i32).map(|power| 10_f64.powi(power)) {
                (grid(x(value), bottom, &shown(value)))
            }
            @for (at, (row, numbers)) in rows.iter().enumerate() {
                (name(middle(at), row))
                @if !numbers.is_empty() { (strip(at, row, &sorted(numbers))) }
            }
        },
    )
}

fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the number below which the given part of the sorted numbers lies. Interpolates linearly, like the tables.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Returns the vertical middle of a row.
fn middle(row: usize) -> f64 {
    ROW * (row as f64 + 0.5)
}

fn px(length: f64) -> String {
    format!("{length:.1}")
}

fn svg(height: f64, content: &Markup) -> Markup {
    html! { svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" { (content) } }
}

fn grid(x: f64, bottom: f64, label: &str) -> Markup {
    html! {
        line class="grid" x1=(px(x)) x2=(px(x)) y1="0" y2=(bottom) {}
        text x=(px(x)) y=(px(bottom + 18.0)) text-anchor="middle" { (label) }
    }
}

fn dot(row: usize, x: f64, radius: u8, title: &str) -> Markup {
    html! {
        circle class={ "c" (colour(row)) } cx=(px(x)) cy=(px(middle(row))) r=(radius) { title { (harmless(title)) } }
    }
}

/// Draws the number at the right of a row.
fn number(row: usize, text: &str) -> Markup {
    html! { text class="value" x=(px(RIGHT + 12.0)) y=(px(middle(row) + 4.0)) { (text) } }
}

/// Draws the name at the left of a row.
fn name(y: f64, name: &str) -> Markup {
    html! { text class="name" x="0" y=(px(y + 4.0)) { (harmless(&short(name))) title { (harmless(name)) } } }
}

fn legend(at: usize, of: usize, name: &str) -> Markup {
    let x = 40.0 + at as f64 * (WIDTH - 50.0) / of as f64;
    html! {
        circle class={ "c" (colour(at)) } cx=(px(x + 4.0)) cy="8" r="4" {}
        text class="name" x=(px(x + 14.0)) y="12" { (harmless(&short(name))) }
    }
}

fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}
