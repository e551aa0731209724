//! Which exit mode holds: the precedence table, one rule after the other. No clock, no environment, no log: whoever asks
//! brings what there is, and says what is to be said.

use std::ffi::OsStr;

use super::mode::ExitMode;

/// The variable that says how scripts exit.
pub(super) const EXIT_VARIABLE: &str = "SNAKEPIT_SCRIPT_EXIT";
/// Its predecessor.
pub(super) const HALT_VARIABLE: &str = "SNAKEPIT_SCRIPT_HALT";

/// Everything that has a say.
#[derive(Clone, Copy, Default)]
pub(super) struct Inputs<'a> {
    pub(super) exit_mode: Option<ExitMode>,
    pub(super) halt: Option<bool>,
    pub(super) exit_variable: Option<&'a OsStr>,
    pub(super) halt_variable: Option<&'a OsStr>,
}

/// What was decisive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    ExitMode,
    Halt,
    ExitVariable,
    HaltVariable,
    Default,
}

impl Source {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ExitMode => "exit_mode",
            Self::Halt => "halt",
            Self::ExitVariable => EXIT_VARIABLE,
            Self::HaltVariable => HALT_VARIABLE,
            Self::Default => "default",
        }
    }
}

/// The exit mode that holds, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selection {
    pub(super) source: Source,
    /// What the source said.
    pub(super) input: String,
    pub(super) mode: ExitMode,
    /// A value of [`EXIT_VARIABLE`] that is none.
    pub(super) invalid: Option<String>,
    /// Old ways to say it that were used, whether or not they were decisive.
    pub(super) deprecated: Vec<&'static str>,
}

/// The first rule that applies, from the top.
pub(super) fn select(inputs: Inputs<'_>) -> Selection {
    let mut invalid = None;
    let (source, input, mode) = first_rule(inputs, &mut invalid);
    let halt_variable = inputs.halt_variable.filter(|value| !value.is_empty());
    let deprecated = [inputs.halt.map(|_| "the option halt"), halt_variable.map(|_| HALT_VARIABLE)];
    Selection { source, input, mode, invalid, deprecated: deprecated.into_iter().flatten().collect() }
}

fn first_rule(inputs: Inputs<'_>, invalid: &mut Option<String>) -> (Source, String, ExitMode) {
    // 1. The option `exit_mode`.
    if let Some(mode) = inputs.exit_mode {
        return (Source::ExitMode, mode.to_string(), mode);
    }
    // 2. The old option `halt`, if it says yes.
    if inputs.halt == Some(true) {
        return (Source::Halt, "true".to_owned(), ExitMode::Halt);
    }
    // 3. The variable: empty is unset, and what is no mode is reported and unset.
    if let Some(value) = inputs.exit_variable.map(OsStr::to_string_lossy)
        && !value.trim().is_empty()
    {
        match ExitMode::from_variable(&value) {
            Ok(mode) => return (Source::ExitVariable, value.into_owned(), mode),
            Err(_) => *invalid = Some(value.into_owned()),
        }
    }
    // 4. The old variable, if it says yes.
    if let Some(value) = inputs.halt_variable.map(OsStr::to_string_lossy)
        && is_truthy(&value)
    {
        return (Source::HaltVariable, value.into_owned(), ExitMode::Halt);
    }
    // 5. Nobody said anything.
    (Source::Default, String::new(), ExitMode::default())
}

/// Whether a text means yes.
pub(super) fn is_truthy(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "y" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(exit_mode: Option<ExitMode>, halt: Option<bool>) -> Inputs<'static> {
        Inputs { exit_mode, halt, ..Inputs::default() }
    }

    fn variables<'a>(exit: Option<&'a str>, halt: Option<&'a str>) -> Inputs<'a> {
        Inputs {
            exit_variable: exit.map(OsStr::new),
            halt_variable: halt.map(OsStr::new),
            ..Inputs::default()
        }
    }

    fn chosen(inputs: Inputs<'_>) -> (Source, ExitMode) {
        let selection = select(inputs);
        (selection.source, selection.mode)
    }

    #[test]
    fn rule_1_the_option_exit_mode_wins_over_everything() {
        for mode in [ExitMode::None, ExitMode::Halt, ExitMode::Stop, ExitMode::Auto] {
            for halt in [None, Some(true), Some(false)] {
                let all = Inputs { exit_mode: Some(mode), halt, ..variables(Some("stop"), Some("1")) };
                assert_eq!(chosen(all), (Source::ExitMode, mode));
            }
        }
    }

    #[test]
    fn rule_1_an_unknown_exit_mode_is_an_error_that_names_it() {
        let error = "hault".parse::<ExitMode>().expect_err("no such mode");
        assert_eq!(
            error.to_string(),
            r#""hault" is not a value of exit_mode: there are none, halt, stop and auto"#
        );
    }

    #[test]
    fn rule_2_halt_true_is_halt_whatever_the_environment_says() {
        let all = Inputs { halt: Some(true), ..variables(Some("stop"), Some("0")) };
        assert_eq!(chosen(all), (Source::Halt, ExitMode::Halt));
    }

    #[test]
    fn rule_2_halt_false_continues_to_rule_3() {
        let all = Inputs { halt: Some(false), ..variables(Some("stop"), None) };
        assert_eq!(chosen(all), (Source::ExitVariable, ExitMode::Stop));
        let all = Inputs { halt: Some(false), ..variables(None, Some("yes")) };
        assert_eq!(chosen(all), (Source::HaltVariable, ExitMode::Halt));
        assert_eq!(chosen(options(None, Some(false))), (Source::Default, ExitMode::None));
    }

    #[test]
    fn rule_3_the_variable_wins_over_its_predecessor() {
        assert_eq!(chosen(variables(Some("none"), Some("1"))), (Source::ExitVariable, ExitMode::None));
    }

    #[test]
    fn rule_3_parsing_trims_and_ignores_case() {
        for (text, mode) in [
            ("none", ExitMode::None),
            (" HALT ", ExitMode::Halt),
            ("\tStop\n", ExitMode::Stop),
            ("aUtO", ExitMode::Auto),
        ] {
            assert_eq!(chosen(variables(Some(text), None)), (Source::ExitVariable, mode), "{text:?}");
        }
    }

    #[test]
    fn rule_3_an_empty_value_is_unset_and_nothing_to_warn_of() {
        for text in ["", "  ", "\t\n"] {
            let selection = select(variables(Some(text), None));
            assert_eq!((selection.source, selection.invalid), (Source::Default, None), "{text:?}");
        }
    }

    #[test]
    fn rule_3_an_invalid_value_is_kept_for_the_warning_and_the_next_rules_decide() {
        let selection = select(variables(Some("never mind"), None));
        assert_eq!(selection.invalid.as_deref(), Some("never mind"));
        assert_eq!((selection.source, selection.mode), (Source::Default, ExitMode::None));
        let selection = select(variables(Some("stopp"), Some("on")));
        assert_eq!(selection.invalid.as_deref(), Some("stopp"));
        assert_eq!((selection.source, selection.mode), (Source::HaltVariable, ExitMode::Halt));
    }

    #[test]
    fn rule_3_a_value_that_is_not_text_is_invalid() {
        use std::os::unix::ffi::OsStrExt;
        let inputs = Inputs { exit_variable: Some(OsStr::from_bytes(b"stop\xff")), ..Inputs::default() };
        let selection = select(inputs);
        assert_eq!(selection.invalid.as_deref(), Some("stop\u{fffd}"));
        assert_eq!(selection.mode, ExitMode::None);
    }

    #[test]
    fn rule_4_the_old_variable_is_truthy_for_five_words_and_no_other() {
        for text in ["1", "true", "yes", "y", "on", " TRUE ", "On", "Y\n"] {
            assert_eq!(
                chosen(variables(None, Some(text))),
                (Source::HaltVariable, ExitMode::Halt),
                "{text:?}"
            );
        }
        for text in ["", "0", "false", "no", "n", "off", "2", "ja", "halt", "truee", "1 1"] {
            assert_eq!(chosen(variables(None, Some(text))), (Source::Default, ExitMode::None), "{text:?}");
        }
    }

    #[test]
    fn rule_5_nothing_said_is_none() {
        let selection = select(Inputs::default());
        assert_eq!((selection.source, selection.mode), (Source::Default, ExitMode::None));
        assert!(selection.deprecated.is_empty());
    }

    #[test]
    fn what_is_deprecated_is_told_even_where_it_decides_nothing() {
        assert_eq!(select(options(None, Some(false))).deprecated, ["the option halt"]);
        assert_eq!(select(options(Some(ExitMode::Stop), Some(true))).deprecated, ["the option halt"]);
        assert_eq!(select(variables(Some("none"), Some("0"))).deprecated, [HALT_VARIABLE]);
        assert!(select(variables(Some("none"), Some(""))).deprecated.is_empty());
    }

    #[test]
    fn auto_is_stop_only_for_an_owner_with_no_halt() {
        use super::super::mode::Exit;
        assert_eq!(ExitMode::Auto.resolve(true, true), Exit::Stop);
        assert_eq!(ExitMode::Auto.resolve(true, false), Exit::Return);
        assert_eq!(
            ExitMode::Auto.resolve(false, true),
            Exit::Return,
            "embedded is none, whatever the arguments say"
        );
        assert_eq!(ExitMode::Auto.resolve(false, false), Exit::Return);
    }
}
