//! Plots as inline SVG. They know numbers and names, and nothing of evaluations; colours come from the page's style.
#![expect(clippy::cast_precision_loss, reason = "plots are not that precise")]

use std::fmt::Write as _;

use super::html::escaped;

/// Two of them beside each other are about as wide as the page, so that letters are as large as those of the text.
const WIDTH: f64 = 500.0;
/// Where names end and plots begin.
const LEFT: f64 = 120.0;
/// Where plots end and numbers begin.
const RIGHT: f64 = 426.0;
const ROW: f64 = 34.0;
/// Below the last row stands the axis.
const AXIS: f64 = 26.0;
const LONGEST_NAME: usize = 16;
/// So many answers are drawn at the most; more would be one solid line.
const MOST_TICKS: usize = 600;

/// The colour of the experiment with this number; there are six, and then the first again.
pub(super) fn colour(at: usize) -> usize {
    at % 6
}

/// One value with its range, from 0 to 1.
pub(super) struct Dot {
    pub(super) name: String,
    pub(super) value: Option<f64>,
    pub(super) range: Option<(f64, f64)>,
}

/// Values between 0 and 1 with their ranges, one row each.
pub(super) fn dots(rows: &[Dot], shown: impl Fn(f64) -> String) -> String {
    let bottom = ROW * rows.len() as f64;
    let x = |value: f64| LEFT + value.clamp(0.0, 1.0) * (RIGHT - LEFT);
    let mut svg = opening(bottom + AXIS);
    for step in 0..=4 {
        let value = f64::from(step) / 4.0;
        grid(&mut svg, x(value), bottom, &format!("{value}"));
    }
    for (at, row) in rows.iter().enumerate() {
        let (y, tone) = (ROW * (at as f64 + 0.5), colour(at));
        named(&mut svg, y, &row.name);
        let Some(value) = row.value else { continue };
        if let Some((low, high)) = row.range {
            let _ = write!(
                svg,
                "<line class=\"c{tone}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\" stroke-width=\"3\" stroke-linecap=\"round\"/>",
                x(low),
                x(high)
            );
        }
        let _ = write!(
            svg,
            "<circle class=\"c{tone}\" cx=\"{:.1}\" cy=\"{y}\" r=\"6\"><title>{}: {}</title></circle>\
             <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(value),
            escaped(&row.name),
            shown(value),
            RIGHT + 12.0,
            y + 4.0,
            shown(value)
        );
    }
    closed(svg)
}

/// How many numbers are in each tenth from 0 to 1, the rows beside each other.
pub(super) fn bars(rows: &[(String, &[usize])]) -> String {
    let (top, height) = (24.0, 180.0);
    let parts = rows.first().map_or(0, |(_, counts)| counts.len()).max(1);
    let most = rows.iter().flat_map(|(_, counts)| counts.iter()).copied().max().unwrap_or(0).max(1) as f64;
    let (left, right) = (40.0, WIDTH - 10.0);
    let wide = (right - left) / parts as f64;
    let mut svg = opening(top + height + AXIS);
    for step in 0..=2 {
        let y = top + height * (1.0 - f64::from(step) / 2.0);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            (most * f64::from(step) / 2.0).round()
        );
    }
    for part in 0..=parts {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + wide * part as f64,
            top + height + 18.0,
            part as f64 / parts as f64
        );
    }
    let gap = wide * 0.15;
    let bar = (wide - 2.0 * gap) / rows.len().max(1) as f64;
    for (at, (name, counts)) in rows.iter().enumerate() {
        for (part, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let tall = height * *count as f64 / most;
            let _ = write!(
                svg,
                "<rect class=\"bar c{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" rx=\"1.5\"><title>{}: {count} \
                 samples with a score of {:.1} to {:.1}</title></rect>",
                colour(at),
                left + wide * part as f64 + gap + bar * at as f64,
                top + height - tall,
                (bar - 1.0).max(0.5),
                escaped(name),
                part as f64 / parts as f64,
                (part + 1) as f64 / parts as f64,
            );
        }
        legend(&mut svg, at, rows.len(), name);
    }
    closed(svg)
}

/// Positive numbers on a logarithmic axis: each one as a tick, the middle half as a box, the median and the 99th percentile.
pub(super) fn strips(rows: &[(String, &[f64])], shown: impl Fn(f64) -> String) -> String {
    // Below a hundredth of a millisecond nothing is told apart.
    let log = |value: f64| value.max(0.01).log10();
    let all = || rows.iter().flat_map(|(_, numbers)| numbers.iter()).map(|number| log(*number));
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return "<p>There are no answers.</p>".to_owned();
    }
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let x = |value: f64| LEFT + (log(value) - low) / (high - low) * (RIGHT - LEFT);
    let bottom = ROW * rows.len() as f64;
    let mut svg = opening(bottom + AXIS);
    for power in low as i32..=high as i32 {
        let value = 10_f64.powi(power);
        grid(&mut svg, x(value), bottom, &shown(value));
    }
    for (at, (name, numbers)) in rows.iter().enumerate() {
        let (y, tone) = (ROW * (at as f64 + 0.5), colour(at));
        named(&mut svg, y, name);
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            continue;
        }
        let part = |part: f64| quantile(&sorted, part);
        let step = sorted.len().div_ceil(MOST_TICKS);
        let mut path = String::new();
        for value in sorted.iter().step_by(step) {
            let _ = write!(path, "M{:.1} {:.1}v14", x(*value), y - 7.0);
        }
        let (from, to) = (x(part(0.25)), x(part(0.75)));
        let _ = write!(
            svg,
            "<path class=\"faint c{tone}\" d=\"{path}\"/><rect class=\"box c{tone}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"20\" rx=\"3\"/><line class=\"c{tone}\" x1=\"{2:.1}\" x2=\"{2:.1}\" y1=\"{0:.1}\" y2=\"{3:.1}\" \
             stroke-width=\"3\"><title>{4}: median {5}</title></line>",
            y - 10.0,
            (to - from).max(1.0),
            x(part(0.5)),
            y + 10.0,
            escaped(name),
            shown(part(0.5)),
        );
        let _ = write!(
            svg,
            "<circle class=\"c{tone}\" cx=\"{:.1}\" cy=\"{y}\" r=\"4\"><title>{}: 99th percentile {}</title></circle>\
             <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(part(0.99)),
            escaped(name),
            shown(part(0.99)),
            RIGHT + 12.0,
            y + 4.0,
            shown(part(0.5)),
        );
    }
    closed(svg)
}

/// Where the given part of sorted numbers ends: between two of them in a straight line, as the tables have it.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn opening(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">")
}

fn closed(mut svg: String) -> String {
    svg.push_str("</svg>");
    svg
}

fn grid(svg: &mut String, x: f64, bottom: f64, label: &str) {
    let _ = write!(
        svg,
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
        bottom + 18.0
    );
}

fn named(svg: &mut String, y: f64, name: &str) {
    let _ = write!(
        svg,
        "<text class=\"name\" x=\"0\" y=\"{:.1}\">{}<title>{}</title></text>",
        y + 4.0,
        escaped(&short(name)),
        escaped(name)
    );
}

fn legend(svg: &mut String, at: usize, of: usize, name: &str) {
    let x = 40.0 + at as f64 * (WIDTH - 50.0) / of as f64;
    let _ = write!(
        svg,
        "<circle class=\"c{}\" cx=\"{:.1}\" cy=\"8\" r=\"4\"/><text class=\"name\" x=\"{:.1}\" y=\"12\">{}</text>",
        colour(at),
        x + 4.0,
        x + 14.0,
        escaped(&short(name))
    );
}

fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}
