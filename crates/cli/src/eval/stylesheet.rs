//! The stylesheet of the page. It needs no script: a choice is a radio button, and the style hides what the choice
//! excludes.

use std::fmt::Write as _;

use super::failed_samples::{FAILURE_KINDS, MOST_PAGES};

/// Returns the stylesheet of a page with this many experiments.
pub(super) fn sheet(experiments: usize) -> String {
    let mut sheet = STYLE.to_owned();
    for at in 0..experiments {
        let _ = write!(sheet, "#x{at}:checked~.group:not(.x{at}){{display:none}}");
    }
    for kind in FAILURE_KINDS {
        let class = kind.class();
        let _ = write!(sheet, "#k-{class}:checked~.group:not(.{class}){{display:none}}");
    }
    for page in 1..=MOST_PAGES {
        let chosen = format!(".group>.pick:nth-of-type({page}):checked~");
        let _ = write!(
            sheet,
            "{chosen}.pages>.page:nth-child({page}){{display:block}}\
             {chosen}.pages-nav>label:nth-child({page}){{background:var(--ink);color:var(--back)}}\
             .group>.pick:nth-of-type({page}):focus-visible~.pages-nav>label:nth-child({page}){{outline:2px solid var(--c0)}}"
        );
    }
    sheet
}

const STYLE: &str = include_str!("report.css");
