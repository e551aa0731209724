//! The choice of the exit mode: the precedence table, rule by rule.
//!
//! Pure: reads no clock and no environment, and logs nothing. The caller provides the inputs and reports the result.

use std::ffi::OsStr;

use super::mode::ExitMode;

/// The variable that sets the exit mode of scripts.
pub(super) const EXIT_VARIABLE: &str = "SNAKEPIT_SCRIPT_EXIT";
/// The deprecated variable.
pub(super) const HALT_VARIABLE: &str = "SNAKEPIT_SCRIPT_HALT";

/// Everything that can set the exit mode.
#[derive(Clone, Copy, Default)]
pub(super) struct ExitModeInputs<'a> {
    pub(super) exit_mode: Option<ExitMode>,
    pub(super) exit_variable: Option<&'a OsStr>,
    pub(super) halt_variable: Option<&'a OsStr>,
}

/// The input that decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExitModeSource {
    ExitMode,
    ExitVariable,
    HaltVariable,
    Default,
}

impl ExitModeSource {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ExitMode => "exit_mode",
            Self::ExitVariable => EXIT_VARIABLE,
            Self::HaltVariable => HALT_VARIABLE,
            Self::Default => "default",
        }
    }
}

/// The exit mode that applies, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selection {
    pub(super) source: ExitModeSource,
    /// The value of the source.
    pub(super) input: String,
    pub(super) mode: ExitMode,
    /// A value of [`EXIT_VARIABLE`] that names no exit mode.
    pub(super) invalid: Option<String>,
    /// The deprecated variable, if it was set, whether or not it decided.
    pub(super) deprecated: Option<&'static str>,
}

/// Applies the first rule that matches.
pub(super) fn select(inputs: ExitModeInputs<'_>) -> Selection {
    let mut invalid = None;
    let (source, input, mode) = first_rule(inputs, &mut invalid);
    let deprecated = inputs.halt_variable.filter(|value| !value.is_empty()).map(|_| HALT_VARIABLE);
    Selection { source, input, mode, invalid, deprecated }
}

fn first_rule(
    inputs: ExitModeInputs<'_>,
    invalid: &mut Option<String>,
) -> (ExitModeSource, String, ExitMode) {
    // 1. The option `exit_mode`.
    if let Some(mode) = inputs.exit_mode {
        return (ExitModeSource::ExitMode, mode.to_string(), mode);
    }
    // 2. The variable. An empty value counts as unset. An unknown value does, too, but is reported.
    if let Some(value) = inputs.exit_variable.map(OsStr::to_string_lossy)
        && !value.trim().is_empty()
    {
        match ExitMode::from_variable(&value) {
            Ok(mode) => return (ExitModeSource::ExitVariable, value.into_owned(), mode),
            Err(_) => *invalid = Some(value.into_owned()),
        }
    }
    // 3. The deprecated variable, if it is truthy.
    if let Some(value) = inputs.halt_variable.map(OsStr::to_string_lossy)
        && is_truthy(&value)
    {
        return (ExitModeSource::HaltVariable, value.into_owned(), ExitMode::Halt);
    }
    // 4. Nothing is set.
    (ExitModeSource::Default, String::new(), ExitMode::default())
}

/// Reports whether a value means yes.
pub(super) fn is_truthy(text: &str) -> bool {
    matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "y" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<'a>(exit: Option<&'a str>, halt: Option<&'a str>) -> ExitModeInputs<'a> {
        ExitModeInputs {
            exit_variable: exit.map(OsStr::new),
            halt_variable: halt.map(OsStr::new),
            ..ExitModeInputs::default()
        }
    }

    fn chosen(inputs: ExitModeInputs<'_>) -> (ExitModeSource, ExitMode) {
        let selection = select(inputs);
        (selection.source, selection.mode)
    }

    #[test]
    fn rule_1_the_option_exit_mode_wins_over_everything() {
        for mode in [ExitMode::None, ExitMode::Halt, ExitMode::Stop, ExitMode::Auto] {
            let all = ExitModeInputs { exit_mode: Some(mode), ..variables(Some("stop"), Some("1")) };
            assert_eq!(chosen(all), (ExitModeSource::ExitMode, mode));
        }
    }

    #[test]
    fn rule_1_an_unknown_exit_mode_is_an_error_that_names_it() {
        let error = "hault".parse::<ExitMode>().expect_err("no such mode");
        assert_eq!(
            error.to_string(),
            r#""hault" is not a value of exit_mode: the values are none, halt, stop and auto"#
        );
    }

    #[test]
    fn rule_2_the_variable_wins_over_its_predecessor() {
        assert_eq!(
            chosen(variables(Some("none"), Some("1"))),
            (ExitModeSource::ExitVariable, ExitMode::None)
        );
    }

    #[test]
    fn rule_2_parsing_trims_and_ignores_case() {
        for (text, mode) in [
            ("none", ExitMode::None),
            (" HALT ", ExitMode::Halt),
            ("\tStop\n", ExitMode::Stop),
            ("aUtO", ExitMode::Auto),
        ] {
            assert_eq!(chosen(variables(Some(text), None)), (ExitModeSource::ExitVariable, mode), "{text:?}");
        }
    }

    #[test]
    fn rule_2_an_empty_value_is_unset_without_a_warning() {
        for text in ["", "  ", "\t\n"] {
            let selection = select(variables(Some(text), None));
            assert_eq!((selection.source, selection.invalid), (ExitModeSource::Default, None), "{text:?}");
        }
    }

    #[test]
    fn rule_2_an_invalid_value_is_kept_for_the_warning_and_the_next_rules_decide() {
        let selection = select(variables(Some("never mind"), None));
        assert_eq!(selection.invalid.as_deref(), Some("never mind"));
        assert_eq!((selection.source, selection.mode), (ExitModeSource::Default, ExitMode::None));
        let selection = select(variables(Some("stopp"), Some("on")));
        assert_eq!(selection.invalid.as_deref(), Some("stopp"));
        assert_eq!((selection.source, selection.mode), (ExitModeSource::HaltVariable, ExitMode::Halt));
    }

    #[test]
    fn rule_2_a_value_that_is_not_text_is_invalid() {
        use std::os::unix::ffi::OsStrExt;
        let inputs = ExitModeInputs {
            exit_variable: Some(OsStr::from_bytes(b"stop\xff")),
            ..ExitModeInputs::default()
        };
        let selection = select(inputs);
        assert_eq!(selection.invalid.as_deref(), Some("stop\u{fffd}"));
        assert_eq!(selection.mode, ExitMode::None);
    }

    #[test]
    fn rule_3_the_old_variable_is_truthy_for_five_words_and_no_other() {
        for text in ["1", "true", "yes", "y", "on", " TRUE ", "On", "Y\n"] {
            assert_eq!(
                chosen(variables(None, Some(text))),
                (ExitModeSource::HaltVariable, ExitMode::Halt),
                "{text:?}"
            );
        }
        for text in ["", "0", "false", "no", "n", "off", "2", "ja", "halt", "truee", "1 1"] {
            assert_eq!(
                chosen(variables(None, Some(text))),
                (ExitModeSource::Default, ExitMode::None),
                "{text:?}"
            );
        }
    }

    #[test]
    fn rule_4_without_inputs_the_mode_is_none() {
        let selection = select(ExitModeInputs::default());
        assert_eq!((selection.source, selection.mode), (ExitModeSource::Default, ExitMode::None));
        assert_eq!(selection.deprecated, None);
    }

    #[test]
    fn the_deprecated_variable_is_reported_even_if_it_does_not_decide() {
        assert_eq!(select(variables(Some("none"), Some("0"))).deprecated, Some(HALT_VARIABLE));
        assert_eq!(select(variables(Some("none"), Some(""))).deprecated, None);
    }

    #[test]
    fn auto_is_stop_only_for_an_owner_with_no_halt() {
        use super::super::mode::ExitAction;
        assert_eq!(ExitMode::Auto.resolve(true, true), ExitAction::Stop);
        assert_eq!(ExitMode::Auto.resolve(true, false), ExitAction::Return);
        assert_eq!(
            ExitMode::Auto.resolve(false, true),
            ExitAction::Return,
            "an embedded script returns, whatever the arguments say"
        );
        assert_eq!(ExitMode::Auto.resolve(false, false), ExitAction::Return);
    }
}
