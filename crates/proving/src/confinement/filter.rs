//! Seccomp filters, one for each error that a profile returns.
//!
//! The kernel applies the strictest answer of all filters, and the sets of refused calls are disjoint. Together they do
//! the same as the single filter that a runtime installs.

use std::collections::BTreeMap;
use std::io;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

/// System calls that get an error instead of being executed.
#[derive(Clone, Copy, Debug)]
pub enum SyscallRefusal {
    /// These calls, always.
    Calls(c_int, &'static [c_long]),
    /// Every call above this number, which is newer than the profile.
    Above(c_int, c_long),
    /// This call if any of the bits is set in the argument.
    AnyBit(c_int, c_long, SyscallArgument),
    /// This call if all of the bits are set in the argument.
    AllBits(c_int, c_long, SyscallArgument),
    /// This call if the argument, counted from 0, is among these values.
    OneOf(c_int, c_long, u8, &'static [u64]),
    /// This call unless the argument is among these values.
    Unless(c_int, c_long, u8, &'static [u64]),
}

/// An argument of a call, counted from 0, and bits of it.
#[derive(Clone, Copy, Debug)]
pub struct SyscallArgument(pub u8, pub u64);

/// Above all numbers that the kernel will assign in the next years.
const LAST_NUMBER: c_long = 600;

type FilterRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Compiles one program per error.
pub(super) fn compile(refusals: &[SyscallRefusal]) -> io::Result<Vec<BpfProgram>> {
    let mut by_errno: BTreeMap<c_int, FilterRules> = BTreeMap::new();
    for refusal in refusals {
        let rules = by_errno.entry(refusal.errno()).or_default();
        refusal.add_to(rules).map_err(io::Error::other)?;
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let program = |(errno, rules): (c_int, FilterRules)| {
        let refuse = SeccompAction::Errno(errno as u32);
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).and_then(BpfProgram::try_from)
    };
    by_errno.into_iter().map(|entry| program(entry).map_err(io::Error::other)).collect()
}

/// Installs a program. `seccompiler`'s own function is no alternative, because it sets `no_new_privs`, which most
/// runtimes do not.
pub(super) fn install(program: &BpfProgram) -> io::Result<()> {
    #[repr(C)]
    struct BpfProgram {
        length: u16,
        filter: *const sock_filter,
    }
    let program = BpfProgram { length: program.len() as u16, filter: program.as_ptr() };
    // SAFETY: the structure has the kernel's layout. The structure and the instructions that it points to live through
    // the call.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl SyscallRefusal {
    fn errno(&self) -> c_int {
        match self {
            Self::Calls(errno, _)
            | Self::Above(errno, _)
            | Self::AnyBit(errno, ..)
            | Self::AllBits(errno, ..)
            | Self::OneOf(errno, ..)
            | Self::Unless(errno, ..) => *errno,
        }
    }

    fn add_to(&self, rules: &mut FilterRules) -> Result<(), seccompiler::BackendError> {
        // A call without a rule is refused whatever its arguments are.
        match *self {
            Self::Calls(_, calls) => rules.extend(calls.iter().map(|call| (*call, Vec::new()))),
            Self::Above(_, last) => rules.extend((last + 1..=LAST_NUMBER).map(|call| (call, Vec::new()))),
            Self::AnyBit(_, call, SyscallArgument(index, bits)) => {
                for bit in (0..64).map(|shift| 1 << shift).filter(|bit| bits & bit != 0) {
                    add(rules, call, &[(index, SeccompCmpOp::MaskedEq(bit), bit)])?;
                }
            }
            Self::AllBits(_, call, SyscallArgument(index, bits)) => {
                add(rules, call, &[(index, SeccompCmpOp::MaskedEq(bits), bits)])?;
            }
            Self::OneOf(_, call, index, values) => {
                for value in values {
                    add(rules, call, &[(index, SeccompCmpOp::Eq, *value)])?;
                }
            }
            Self::Unless(_, call, index, values) => {
                let none: Vec<_> = values.iter().map(|value| (index, SeccompCmpOp::Ne, *value)).collect();
                add(rules, call, &none)?;
            }
        }
        Ok(())
    }
}

/// Adds a rule whose conditions must all hold.
fn add(
    rules: &mut FilterRules,
    call: c_long,
    conditions: &[(u8, SeccompCmpOp, u64)],
) -> Result<(), seccompiler::BackendError> {
    // The profiles check flags and numbers of 32 bits and ignore higher bits.
    let condition = |(index, operation, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*index, SeccompCmpArgLen::Dword, operation.clone(), *value)
    };
    let conditions = conditions.iter().map(condition).collect::<Result<_, _>>()?;
    rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    Ok(())
}
