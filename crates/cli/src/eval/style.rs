//! How the page looks, and what its choices show. No script: a choice is a radio button, and the style hides what it leaves out.

use std::fmt::Write as _;

use super::wrong::{KINDS, PAGES};

/// The style of a page about so many experiments.
pub(super) fn sheet(experiments: usize) -> String {
    let mut sheet = STYLE.to_owned();
    for at in 0..experiments {
        let _ = write!(sheet, "#x{at}:checked~.group:not(.x{at}){{display:none}}");
    }
    for kind in KINDS {
        let class = kind.class();
        let _ = write!(sheet, "#k-{class}:checked~.group:not(.{class}){{display:none}}");
    }
    for page in 1..=PAGES {
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

const STYLE: &str = "\
:root{--back:#fbfbfa;--card:#fff;--ink:#1d2025;--soft:#646a73;--line:#e0e2e6;--bad:#b3261e;--badback:#fdeceb;--good:#116b4a;--goodback:#e3f5ec;\
--c0:#2f6fde;--c1:#d9740b;--c2:#1a936f;--c3:#a23fb5;--c4:#c0392b;--c5:#6b7280}\
@media(prefers-color-scheme:dark){:root{--back:#15171b;--card:#1d2025;--ink:#e8eaed;--soft:#9aa1ab;--line:#343942;\
--bad:#ff8a80;--badback:#3a2020;--good:#7fe0b4;--goodback:#173327;--c0:#7aa7ff;--c1:#ffb05c;--c2:#5fd3a8;--c3:#d99bea;--c4:#ff8a80;--c5:#aab1bc}}\
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif}\
main{max-width:70rem;margin:0 auto;padding:2rem 1.25rem 4rem}h1{margin:0;font-size:1.7rem}\
h2{margin:2.2rem 0 .8rem;font-size:1.1rem}.lead,.note{color:var(--soft);margin:.3rem 0 1.4rem}.note{font-size:.85rem}\
code{font:.9em ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}\
.alarm{background:var(--badback);color:var(--bad);padding:.7rem 1rem;border-radius:.5rem;font-weight:600}\
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.6rem}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.5rem .75rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}\
thead th{color:var(--soft);font-weight:600;font-size:.8rem;white-space:normal;vertical-align:bottom}\
th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:10rem}\
tbody tr:last-child>*{border-bottom:0}\
small{display:block;color:var(--soft);font-size:.8rem}.none{color:var(--soft)}.bad{color:var(--bad);font-weight:700}\
.mark{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.5em}\
.mark.c0{background:var(--c0)}.mark.c1{background:var(--c1)}.mark.c2{background:var(--c2)}.mark.c3{background:var(--c3)}\
.mark.c4{background:var(--c4)}.mark.c5{background:var(--c5)}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1rem}\
figure{margin:0;padding:1rem;background:var(--card);border:1px solid var(--line);border-radius:.6rem}\
figcaption{color:var(--soft);font-size:.85rem;margin-bottom:.8rem}figcaption b{color:var(--ink)}svg{display:block;width:100%;height:auto}\
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .name{fill:var(--ink)}svg .value{fill:var(--ink);font-weight:600}\
svg .grid{stroke:var(--line)}.c0{fill:var(--c0);stroke:var(--c0)}.c1{fill:var(--c1);stroke:var(--c1)}\
.c2{fill:var(--c2);stroke:var(--c2)}.c3{fill:var(--c3);stroke:var(--c3)}.c4{fill:var(--c4);stroke:var(--c4)}\
.c5{fill:var(--c5);stroke:var(--c5)}svg .faint{opacity:.28}svg .box{fill-opacity:.22}svg .bar{stroke:none}\
.pick{position:absolute;opacity:0;pointer-events:none}\
.choice,.pages-nav label{display:inline-block;cursor:pointer;padding:.15rem .65rem;margin:0 .3rem .4rem 0;border:1px solid var(--line);\
border-radius:1rem;background:var(--card);font-size:.85rem}\
.pick:checked+.choice{background:var(--ink);color:var(--back)}.pick:focus-visible+.choice{outline:2px solid var(--c0)}\
.row-end{display:block;height:.2rem}.group{margin-top:1rem}.group h3{font-size:.95rem;margin:.8rem 0 .5rem}.page{display:none}\
.pages-nav{max-height:6.5rem;overflow-y:auto}\
article{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.7rem 1rem;margin-bottom:.7rem}\
article h4{margin:0 0 .4rem;font-size:.9rem;overflow-wrap:anywhere}article h4 span{font-weight:400;color:var(--soft);margin-left:.6rem}\
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.8rem}\
.sides h5,.diff h5{margin:.2rem 0;font-size:.75rem;font-weight:600;color:var(--soft)}\
pre{margin:0;font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre-wrap;overflow-wrap:anywhere;\
max-height:22rem;overflow-y:auto}.diff{margin-top:.6rem}.message{margin:.3rem 0 .5rem;overflow-wrap:anywhere;white-space:pre-wrap}\
del{background:var(--badback);color:var(--bad)}ins{background:var(--goodback);color:var(--good);text-decoration:none;font-weight:600}\
@media(max-width:40rem){.plots{grid-template-columns:1fr}}@media print{body{background:#fff}}";
